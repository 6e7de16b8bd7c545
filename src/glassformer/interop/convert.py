"""Models from elsewhere become runs, and runs become what others read; each is tried when it is written."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from glassformer.checkpoint import fill
from glassformer.decode.hypothesis import Prompt
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop import ctranslate2, ctranslate2_write, gguf, huggingface, onnx
from glassformer.interop.engine import Engine, open_writer, save_beside
from glassformer.interop.foreign import Foreign
from glassformer.interop.onnx_model import OnnxModel
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, load, save
from glassformer.text.vocabularies import Vocabularies

Format = Literal["run", "hf", "ctranslate2", "onnx"]
TRIED = 20  # inputs, after something was written
LONGEST_TRIED = 30  # tokens
PRECISIONS = {"run": ("float32", "bfloat16"), "hf": (), "ctranslate2": ("float32", "int8"), "onnx": ()}  # by format
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def read(source: str | Path) -> tuple[Run, list[str]]:
    """Open a model from elsewhere as a run; return it with what was left out, in words.

    Args:
        source: A directory as Hugging Face writes it (Llama, Marian, BERT), one of CTranslate2, or a GGUF file of
            a Llama.

    Raises:
        CheckpointError: It is none of these, damaged, or has something that we do not have.
        DataError: Its vocabulary cannot be used.

    """
    path = Path(source)
    if not path.exists():
        raise CheckpointError(f"there is nothing at {source}")
    if RunFiles(path).config.is_file():
        return load(path), []
    if path.is_dir() and ctranslate2.is_directory(path):
        found = ctranslate2.read(path)
    elif path.is_dir() and huggingface.is_directory(path):
        found = huggingface.read(path)
    elif path.is_file() and gguf.is_file(path):
        found = gguf.read(path)
    else:
        raise CheckpointError(
            f"{source} is no model that we read: a run, a directory with a config.json as Hugging Face writes it, "
            "one with CTranslate2's model.bin, or a GGUF file"
        )
    return _run(found, path.name), list(found.left_out)


def _run(found: Foreign, name: str) -> Run:
    model = Transformer(found.config)
    fill(model, found.tensors)
    given = found.vocabularies
    vocabularies = Vocabularies(given.source, given.target, given.classes, found.chat_template)
    _check_sizes(model, vocabularies)
    return Run(found.config, model, vocabularies, {"weights": f"converted from {name}"})


def _check_sizes(model: Transformer, vocabularies: Vocabularies) -> None:
    """Refuse a vocabulary with more tokens than the model; with fewer, the last rows belong to no token."""
    config = model.config
    for size, tokenizer in (
        (config.source_vocabulary, vocabularies.source),
        (config.target_vocabulary, vocabularies.target),
    ):
        if size is not None and tokenizer.size > size:
            raise CheckpointError(f"its vocabulary has {tokenizer.size:,} tokens, but its model knows {size:,}")


def convert(source: str | Path, out: str | Path, *, to: Format = "run", precision: str | None = None) -> list[str]:
    """Read a model and write it in another format; return what is to be said about it.

    Args:
        source: What `read` takes.
        out: A directory that is not there yet.
        to: "run"; "hf": Hugging Face's layout; "ctranslate2"; "onnx".
        precision: Of a run's weights: "float32" or "bfloat16"; of CTranslate2's "float32" or "int8"; None: as they are.

    Raises:
        ConfigError: There is no such format, or precision of it.
        CheckpointError: The source cannot be read, the format has no equal of the model, or it cannot be written.
        DataError: The vocabulary cannot be used.

    """
    if to not in PRECISIONS or (precision is not None and precision not in PRECISIONS[to]):
        raise ConfigError(f"there is no format {to!r} with precision {precision!r}; there are {PRECISIONS}")
    if Path(out).is_file() or (Path(out).is_dir() and any(Path(out).iterdir())):
        raise CheckpointError(f"{out} is there and not empty; choose another name")
    run, said = read(source)
    said = [f"left out: {one}" for one in said]
    if to == "run":
        save(run, out, dtype=None if precision is None else DTYPES[precision])
        n = sum(p.numel() for p in run.model.parameters())
        return [f"{n:,} parameters", *said]
    tensors = {name: p.detach() for name, p in run.model.named_parameters()}
    if to == "hf":
        said.append(f"written as {huggingface.write(run.config, tensors, run.vocabularies, Path(out))}")
        same = _read_back(run, Path(out))
    else:
        run.model.float()
        if to == "ctranslate2":
            ctranslate2_write.write(run.config, tensors, run.vocabularies, Path(out), precision or "float32")
        else:
            onnx.write(run.model, Path(out))
        save_beside(run.config, run.vocabularies, Path(out))
        same = _tried(run, to, Path(out))
    said.append(f"tried on {TRIED} inputs: {same} come out the same")
    if same < TRIED and precision != "int8":
        raise CheckpointError(
            f"{out} was written, but of {TRIED} inputs only {same} come out the same: please report it"
        )
    n = sum(p.numel() for p in run.model.parameters())
    return [f"{n:,} parameters", *said]


def _drawn(run: Run) -> list[list[int]]:
    """Draw texts from the vocabulary that is read, as ids."""
    draw, tokenizer = torch.Generator().manual_seed(0), run.vocabularies.source
    plain = torch.tensor(
        [i for i in range(tokenizer.size) if not tokenizer.is_special(i) and i != tokenizer.unknown_id]
    )
    lengths = torch.randint(3, 13, (TRIED,), generator=draw).tolist()
    return [plain[torch.randint(len(plain), (n,), generator=draw)].tolist() for n in lengths]


def _tried(run: Run, to: Engine, out: Path) -> int:
    """Return for how many texts an engine writes what the run writes, the likeliest token each time."""
    if not run.config.model.has_decoder:
        other = OnnxModel(out, run.config.model)
        return sum(_close(run.model(x), other.classify(x)) for x in map(_row, _drawn(run)))
    way = {"beam_size": 1, "n_best": 1, "sample": False}
    framed, start = run.vocabularies.source.framed, [run.tokenizer.start_id or 0]
    prompts = [
        Prompt(framed(ids), start, LONGEST_TRIED) if run.config.model.has_encoder else Prompt(None, ids, LONGEST_TRIED)
        for ids in _drawn(run)
    ]
    own, theirs = run.writer(way).write(prompts), open_writer(to, out, way).write(prompts)
    return sum(a[0].ids == b[0].ids for a, b in zip(own, theirs, strict=True))


@torch.inference_mode()
def _read_back(run: Run, out: Path) -> int:
    """Return of how many texts the written model, read again, makes the same: its scores, to the last place but one."""
    again, same = read(out)[0].model.float(), 0
    run.model.float()
    for x in map(_row, _drawn(run)):
        match run.config.model.kind:
            case "decoder":
                same += _close(run.model.decode(x), again.decode(x))
            case "encoder":
                same += _close(run.model(x), again(x))
            case _:
                y = x.clamp(max=run.tokenizer.size - 1)
                same += _close(run.model(x, y), again(x, y))
    return same


def _row(ids: list[int]) -> Tensor:
    return torch.tensor([ids])


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-4 * a.abs().max())
