"""Where each of our parameters stands in another format: one table, read in both directions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Part:
    """A tensor of theirs, or the i-th of the parameters whose rows stand in it one after the other."""

    name: str
    i: int = 0


Layout = Mapping[str, Part]  # by the names of our parameters


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each of our parameters, tied ones once."""
    with torch.device("meta"):
        return {name: tuple(p.shape) for name, p in Transformer(config).named_parameters()}


def embedding_names(config: ModelConfig) -> dict[str, str]:
    """Return under which name the matrix of the source, the target and the output is kept, which may be one."""
    source, target, output = "encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight", "output.weight"
    if config.has_encoder and config.tying in ("all", "source-target"):
        target = source
    if config.tying in ("all", "target-output"):
        output = target
    return {"source": source, "target": target, "output": output}


def take(layout: Layout, theirs: Mapping[str, Tensor], config: ModelConfig, where: str) -> dict[str, Tensor]:
    """Return our parameters, from tensors of theirs; all of theirs must be used.

    Raises:
        CheckpointError: A tensor is missing, has another shape, holds no numbers, or is one that our model has not.

    """
    found = {}
    ours = shapes(config)
    for name, shape in ours.items():
        if name not in layout:
            raise CheckpointError(f"{where} has nothing for {name}, which the model that its settings describe has")
        part = layout[name]
        rows = {layout[one].i: size[0] for one, size in ours.items() if one in layout and layout[one].name == part.name}
        start = sum(n for i, n in rows.items() if i < part.i)
        if part.name not in theirs:
            raise CheckpointError(f"{where} has no tensor {part.name}, which the model that its settings describe has")
        tensor = theirs[part.name]
        whole = (sum(rows.values()), *shape[1:])
        if tuple(tensor.shape) != whole:
            raise CheckpointError(f"{part.name} is {tuple(tensor.shape)} in {where}, but by its settings {whole}")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{part.name} is {tensor.dtype} in {where}; weights are floating-point numbers")
        if not tensor.isfinite().all():
            raise CheckpointError(f"{part.name} holds infinity or NaN in {where}")
        found[name] = tensor[start : start + shape[0]]
    unused = sorted(theirs.keys() - {layout[name].name for name in ours})
    if unused:
        others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise CheckpointError(f"{where} holds {unused[0]}{others}, for which our model has no place")
    return found


def give(layout: Layout, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of theirs, from our parameters."""
    parts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in ours.items():
        parts.setdefault(layout[name].name, {})[layout[name].i] = tensor
    return {
        name: next(iter(rows.values())) if len(rows) == 1 else torch.cat([rows[i] for i in sorted(rows)])
        for name, rows in parts.items()
    }


def layers(n: int | None, table: Mapping[str, str], ours: str, theirs: str) -> dict[str, Part]:
    """Return the layout of a stack: `table` for one layer, with `ours` and `theirs` before its names."""
    return {
        f"{ours}.layers.{i}.{name}": Part(f"{theirs}.{i}.{other}")
        for i in range(n or 0)
        for name, other in table.items()
    }


def with_bias(table: Mapping[str, str], kinds: Sequence[str] = ("weight", "bias")) -> dict[str, str]:
    """Spell a table of modules out for their parameters."""
    return {f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in table.items() for kind in kinds}


def turned(ours: Mapping[str, Tensor], config: ModelConfig, convention: str) -> dict[str, Tensor]:
    """Return parameters of a model with rotary positions for the other convention: a permutation of rows, no more.

    "interleaved" turns the rows (2i, 2i + 1) of a head together, "halves" (i, i + d/2).
    """
    if config.positions.kind != "rotary" or config.positions.convention == convention:
        return dict(ours)
    order: Callable[[Tensor], Tensor] = _to_halves if convention == "halves" else _to_pairs
    names = ("self_attention.w_q.", "self_attention.w_k.")
    return {
        name: order(tensor.view(-1, config.d_k, *tensor.shape[1:])).flatten(0, 1)
        if any(n in name for n in names)
        else tensor
        for name, tensor in ours.items()
    }


def _to_halves(rows: Tensor) -> Tensor:
    """(H, K, ..): rows 0, 2, 4, .. first, then 1, 3, 5, .."""
    return torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)


def _to_pairs(rows: Tensor) -> Tensor:
    half = rows.shape[1] // 2
    return torch.stack([rows[:, :half], rows[:, half:]], dim=2).flatten(1, 2)


def without(theirs: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """Return tensors without those that are no weights, or stand in the file twice."""
    dropped = set(names)
    return {name: tensor for name, tensor in theirs.items() if name not in dropped}
