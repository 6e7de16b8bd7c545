"""Models from elsewhere become runs, and runs become what others read; each is tried when it is written."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from glassformer.checkpoint import fill
from glassformer.decode.hypothesis import Prompt
from glassformer.errors import CheckpointError, ConfigError
from glassformer.files import directory_written_whole
from glassformer.interop import ctranslate2, ctranslate2_write, gguf, huggingface, onnx
from glassformer.interop.engine import Engine, open_writer, save_beside
from glassformer.interop.foreign import Foreign
from glassformer.interop.onnx_model import OnnxModel
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, load, save
from glassformer.text.vocabularies import Vocabularies

Format = Literal["run", "hf", "ctranslate2", "onnx"]
TRIED = 20  # inputs, after something was written
LONGEST_READ, LONGEST_WRITTEN = 12, 30  # tokens of each
PRECISIONS = {
    "run": ("float32", "bfloat16"), "hf": (), "ctranslate2": ("float32", "int8"), "onnx": ("float32",),
}  # fmt: skip
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
    if to not in PRECISIONS:
        raise ConfigError(f"there is no format {to!r}; there are {', '.join(PRECISIONS)}")
    if precision not in (None, *PRECISIONS[to]):
        allowed = ", ".join(PRECISIONS[to]) or "only that of the weights"
        raise ConfigError(f"the format {to} has no precision {precision!r}; it has {allowed}")
    path = Path(out)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise CheckpointError(f"{out} is there and not empty; choose another name")
    run, left_out = read(source)
    n = sum(p.numel() for p in run.model.parameters())
    said = [f"{n:,} parameters", *(f"left out: {one}" for one in left_out)]
    with directory_written_whole(path) as place:
        if to == "run":
            save(run, place, dtype=None if precision is None else DTYPES[precision])
        else:
            said += _export(run, place, to, precision or "float32")
    return said


def _export(run: Run, out: Path, to: Literal["hf", "ctranslate2", "onnx"], precision: str) -> list[str]:
    """Write what others read, and try it; return what is to be said."""
    said, tensors = [], {name: p.detach() for name, p in run.model.named_parameters()}
    if to == "hf":
        said.append(f"written as {huggingface.write(run.config, tensors, run.vocabularies, out)}")
        same = _read_back(run, out)
    else:
        run.model.float()
        if to == "ctranslate2":
            ctranslate2_write.write(run.config, tensors, run.vocabularies, out, precision)
        else:
            onnx.write(run.model, out)
        save_beside(run.config, run.vocabularies, out)
        same = _tried(run, to, out)
    if same < TRIED and precision != "int8":
        raise CheckpointError(
            f"of {TRIED} inputs only {same} come out the same, so nothing was written: please report it"
        )
    return [*said, f"tried on {TRIED} inputs: {same} come out the same"]


def _drawn(run: Run) -> list[list[int]]:
    """Draw texts from the vocabulary that is read, as ids, none longer than the model's learned positions."""
    draw, tokenizer = torch.Generator().manual_seed(0), run.vocabularies.source
    plain = torch.tensor(
        [i for i in range(tokenizer.size) if not tokenizer.is_special(i) and i != tokenizer.unknown_id]
    )
    frame = len(tokenizer.framed([])) if run.config.model.has_encoder else 0
    most = min(LONGEST_READ, (run.config.model.longest or LONGEST_READ) - frame)
    lengths = torch.randint(min(3, most), most + 1, (TRIED,), generator=draw).tolist()
    return [plain[torch.randint(len(plain), (n,), generator=draw)].tolist() for n in lengths]


def _tried(run: Run, to: Engine, out: Path) -> int:
    """Return for how many texts an engine writes what the run writes, the likeliest token each time."""
    model = run.config.model
    if not model.has_decoder:
        other = OnnxModel(out, model)
        return sum(_close(run.model(x), other.classify(x)) for x in map(_row, _drawn(run)))
    way = {"beam_size": 1, "n_best": 1, "sample": False}
    prompts = []
    for ids in _drawn(run):
        source = run.vocabularies.source.framed(ids) if model.has_encoder else None
        begun = ids if source is None else [run.tokenizer.start_id or 0]
        room = LONGEST_WRITTEN if model.longest is None else model.longest - len(begun) + 1
        prompts.append(Prompt(source, begun, min(LONGEST_WRITTEN, room)))
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
