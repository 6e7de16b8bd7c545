"""Models from elsewhere become runs, and runs become what others read; each is tried when it is written."""

from pathlib import Path

import torch

from glassformer.checkpoint import fill
from glassformer.errors import CheckpointError
from glassformer.interop import gguf, huggingface
from glassformer.interop.foreign import Foreign
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, load, save
from glassformer.text.vocabularies import Vocabularies

FORMATS = ("run", "hf")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def read(source: str | Path) -> tuple[Run, list[str]]:
    """Open a model from elsewhere as a run; return it with what was left out, in words.

    Args:
        source: A directory as Hugging Face writes it (Llama, Marian, BERT), or a GGUF file of a Llama.

    Raises:
        CheckpointError: It is none of these, damaged, or has something that we do not have.
        DataError: Its vocabulary cannot be used.

    """
    path = Path(source)
    if not path.exists():
        raise CheckpointError(f"there is nothing at {source}")
    if RunFiles(path).config.is_file():
        return load(path), []
    if path.is_dir() and huggingface.is_directory(path):
        found = huggingface.read(path)
    elif path.is_file() and gguf.is_file(path):
        found = gguf.read(path)
    else:
        raise CheckpointError(
            f"{source} is no model that we read: a run, a directory with a config.json as Hugging Face writes it, "
            "or a GGUF file"
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


def convert(source: str | Path, out: str | Path, *, to: str = "run", precision: str | None = None) -> list[str]:
    """Read a model and write it in another format; return what is to be said about it.

    Args:
        source: What `read` takes.
        out: A directory that is not there yet.
        to: "run", or "hf": Hugging Face's layout.
        precision: Of a run's weights: "float32" or "bfloat16"; None: as they are.

    Raises:
        CheckpointError: The source cannot be read, the format has no equal of the model, or it cannot be written.
        DataError: The vocabulary cannot be used.

    """
    run, said = read(source)
    said = [f"left out: {one}" for one in said]
    if Path(out).exists() and any(Path(out).iterdir()):
        raise CheckpointError(f"{out} is there and not empty; choose another name")
    if to == "run":
        save(run, out, dtype=None if precision is None else PRECISIONS[precision])
    else:
        tensors = {name: p.detach() for name, p in run.model.named_parameters()}
        said.append(f"written as {huggingface.write(run.config, tensors, run.vocabularies, Path(out))}")
    n = sum(p.numel() for p in run.model.parameters())
    return [f"{n:,} parameters", *said]
