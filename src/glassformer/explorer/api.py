"""What the page asks for, and what it gets: pure functions from a run and a request to plain data.

The contract is docs/explorer-contract.md; `VERSION` changes when something in it changes its meaning.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config.run import Config, model_of
from glassformer.errors import DataError
from glassformer.explorer.machine import machine
from glassformer.explorer.shelf import Shelved
from glassformer.explorer.walk import steps
from glassformer.inspect.count import closed_form, count
from glassformer.inspect.origin import origins
from glassformer.text.tokenizer import Tokenizer

VERSION = 1
MOST = 4 * 2**20  # numbers in one answer
ALL_NAMES = 512  # of a vocabulary of at most so many tokens all names are sent with the walk
EXAMPLES = {"reversal": "c a b e d", "number-words": "8 9 ="}


@dataclass(frozen=True)
class Request:
    """Which input of a run, and which of its snapshots."""

    source: str
    target: str | None = None  # what an encoder–decoder has written so far; None: what it writes, greedily
    snapshot: int | None = None  # a step of training; None: the finished run


@dataclass(frozen=True)
class Numbers:
    """A part of a tensor: float32 in the order of its axes, the last one fastest."""

    shape: tuple[int, ...]
    values: NDArray[np.float32]


def about(runs: list[Shelved]) -> dict[str, Any]:
    """Return what there is to look at."""
    return {"version": VERSION, "runs": [_about(i, one) for i, one in enumerate(runs)]}


def walk(shelved: Shelved, request: Request) -> dict[str, Any]:
    """Return the tokens of an input, the machine, the steps, and every tensor's axes, shape and origin."""
    read = shelved.input(request.source, request.target, request.snapshot)
    config, run = model_of(shelved.run.config), shelved.run
    told = origins(config)
    shapes = {shape.name: shape for shape in shelved.shapes(read)}
    tensors = {name: {"axes": shapes[name].axes, "shape": shapes[name].shape, **asdict(told[name])} for name in told}
    sizes = {name: parameter.numel() for name, parameter in run.model.named_parameters()}
    size = run.tokenizer.size
    names = (
        run.classes
        if config.classifier is not None
        else spelt(run.tokenizer, range(size))
        if size <= ALL_NAMES
        else None
    )
    return {
        "source": None if read.source is None else tokens(run.vocabularies.source, read.source),
        "target": None if read.target is None else tokens(run.tokenizer, read.target),
        "vocabulary": None if names is None else list(names),
        "n_cut": read.n_cut,
        "written": None if request.target is not None or read.target is None else run.tokenizer.decode(read.target),
        "tensors": tensors,
        "machine": [asdict(column) for column in machine(config, sizes)],
        "steps": [asdict(step) for step in steps(config)],
    }


def tensor(shelved: Shelved, request: Request, name: str, at: str = "") -> Numbers:
    """Return a tensor of an input, or a part of it.

    Args:
        shelved: The run.
        request: The input.
        name: Of the tensor.
        at: For each axis an index (`3`: the axis stays, with one place), a range (`0:64`), or all (`:`);
            "": everything.

    Raises:
        DataError: There is no such tensor or part, or it is too large for one answer.

    """
    read = shelved.input(request.source, request.target, request.snapshot)
    return _part(shelved.tensor(read, name, request.snapshot).values, name, at)


def parameter(shelved: Shelved, name: str, at: str = "", *, snapshot: int | None = None) -> Numbers:
    """Return a weight, or a part of it, in the same way."""
    return _part(shelved.parameter(name, snapshot), name, at)


def shapes(shelved: Shelved, n_source: int, n_target: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a run for other lengths, to be set beside those of another run."""
    return {shape.name: shape.shape for shape in shelved.shapes_of(n_source, n_target)}


def names(shelved: Shelved, start: int, stop: int) -> list[str]:
    """Return the names of the tokens with the ids from `start` up to `stop`, of what the model writes."""
    size = shelved.run.tokenizer.size
    if not 0 <= start <= stop <= size or stop - start > MOST // 1024:
        raise DataError(f"ids {start} to {stop} are not to be had: there are 0 to {size}, {MOST // 1024} at a time")
    return spelt(shelved.run.tokenizer, range(start, stop))


def best(shelved: Shelved, request: Request, n: int = 5) -> list[list[dict[str, Any]]]:
    """Return the `n` most likely tokens (or classes) of each row of the probabilities, the most likely first."""
    read = shelved.input(request.source, request.target, request.snapshot)
    values = shelved.tensor(read, "probabilities", request.snapshot).values[0]
    values = values if values.ndim == 2 else values[None]  # a classifier has one row for the text
    found, ids = values.float().topk(min(n, values.shape[-1]))
    run = shelved.run
    named = (lambda row: [run.classes[i] for i in row]) if run.classes else partial(spelt, run.tokenizer)
    return [
        [{"token": token, "id": i, "probability": p} for token, i, p in zip(named(row), row, ps, strict=True)]
        for row, ps in zip(ids.tolist(), found.tolist(), strict=True)
    ]


def tokens(tokenizer: Tokenizer, ids: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return each token with its id, and whether it is a special one."""
    return [
        {"token": name, "id": i, "special": tokenizer.is_special(i)}
        for name, i in zip(spelt(tokenizer, ids), ids, strict=True)
    ]


def spelt(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text that each token stands for; its name where that is none: a special one, half of a character."""
    found = []
    for name, i in zip(tokenizer.tokens(ids), ids, strict=True):
        text = "" if tokenizer.is_special(i) else tokenizer.decode([i])
        found.append(text if text and "\ufffd" not in text else name)
    return found


def parameters(shelved: Shelved) -> dict[str, Any]:
    """Return how many parameters each part has, in the built model and by its closed form."""
    found = count(shelved.run.config)
    parts = [{**asdict(part), "total": part.total} for part in closed_form(model_of(shelved.run.config))]
    return {"total": found.total, "closed_form": found.closed_form, "parts": parts, "tied": found.tied}


def example(config: Config) -> str:
    """Return a text to begin with, "" where nothing is known."""
    task = None if config.data is None else config.data.task
    return EXAMPLES.get(task or "", "")


def _about(i: int, shelved: Shelved) -> dict[str, Any]:
    run, config = shelved.run, shelved.run.config.model
    return {
        "id": i,
        "name": shelved.name,
        "about": run.config.about,
        "kind": config.kind,
        "example": shelved.example or example(run.config),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "snapshots": shelved.snapshots,
        "weights": run.notes.get("weights", ""),
        "config": config.model_dump(mode="json", exclude_none=True),
        "writes": config.has_decoder,
    }


def _part(values: Tensor, name: str, at: str) -> Numbers:
    wanted = at.split(",") if at else [":"] * values.ndim
    if len(wanted) != values.ndim:
        raise DataError(f"{name} has {values.ndim} axes, but {at!r} names {len(wanted)}")
    region = tuple(
        _range(one, size, f"axis {axis + 1} of {name}")
        for axis, (one, size) in enumerate(zip(wanted, values.shape, strict=True))
    )
    n = int(np.prod([one.stop - one.start for one in region]))
    if n > MOST:
        raise DataError(f"{n:,} numbers of {name} are too many for one answer: ask for a part of at most {MOST:,}")
    part = values[region].to(torch.float32).cpu().contiguous()
    return Numbers(tuple(part.shape), part.numpy())


def _range(wanted: str, size: int, what: str) -> slice:
    start, colon, stop = wanted.partition(":")
    try:
        first = int(start) if start else 0
        last = int(stop) if stop else size if colon else first + 1
    except ValueError:
        raise DataError(f"{what}: {wanted!r} is no index, range such as 0:64, or ':'") from None
    if not 0 <= first < last <= size or (not colon and not start):
        raise DataError(f"{what}: {wanted!r} is not to be had, its {size} places are 0 to {size - 1}")
    return slice(first, last)
