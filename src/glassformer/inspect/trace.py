"""Every tensor of a forward pass, by name: those that were asked for, and no others."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from glassformer.data.batch import pad
from glassformer.errors import DataError, nearest
from glassformer.model.tap import Tap
from glassformer.model.transformer import Transformer

Ids = Tensor | Sequence[int] | Sequence[Sequence[int]]


class UnknownTensorError(DataError, KeyError):
    """A name that a trace does not have."""

    __str__ = Exception.__str__  # a KeyError would put its sentence in quotes


@dataclass(frozen=True, eq=False)
class Traced:
    """One tensor with its name and named axes, such as ("B", "H", "T", "S")."""

    name: str
    axes: tuple[str, ...]
    values: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return tuple(self.values.shape)

    def select(self, **indices: int) -> "Traced":
        """Return the part at an index of each named axis: `select(B=0, H=1)`."""
        values, axes = self.values, list(self.axes)
        for axis, index in indices.items():
            position = self._position(axis, axes)
            values = values.select(position, index)
            axes.pop(position)
        return Traced(self.name, tuple(axes), values)

    def mean(self, axis: str) -> "Traced":
        """Return the mean over a named axis: `mean("H")` is the mean of the heads."""
        position = self._position(axis, self.axes)
        axes = self.axes[:position] + self.axes[position + 1 :]
        return Traced(self.name, axes, self.values.mean(dim=position))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        values = self.values.float() if self.values.dtype == torch.bfloat16 else self.values  # NumPy has no bfloat16
        return np.array(values.cpu().numpy(), dtype=dtype, copy=copy)

    def _position(self, axis: str, axes: Sequence[str]) -> int:
        if axis not in axes:
            raise DataError(f"{self.name} has no axis {axis!r}; its axes are {' '.join(axes)}")
        return list(axes).index(axis)


class Trace(Mapping[str, Traced]):
    """The recorded tensors by name, in the order in which they were computed."""

    def __init__(
        self,
        tensors: Mapping[str, Traced],
        *,
        source_tokens: Sequence[str] = (),
        target_tokens: Sequence[str] = (),
    ) -> None:
        self._tensors = tensors
        self.source_tokens = tuple(source_tokens)  # what the columns of "S" read, where text was given
        self.target_tokens = tuple(target_tokens)  # what the decoder read: the rows of its "T"

    def __getitem__(self, name: str) -> Traced:
        try:
            return self._tensors[name]
        except KeyError:
            raise UnknownTensorError(
                f"there is no tensor {name!r} in this trace{nearest(name, self._tensors)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def taps(model: nn.Module) -> dict[str, Tap]:
    """Return every named place of a model, in the order of its modules."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


@contextmanager
def watch(model: nn.Module, *patterns: str) -> Iterator[dict[str, Traced]]:
    """Record what passes the taps whose names match, while the block runs: `watch(model, "decoder.*.weights")`.

    A tap that is passed several times keeps its last value.

    Raises:
        DataError: A pattern matches no name.

    """
    places = taps(model)
    chosen = dict.fromkeys(name for pattern in patterns for name in _matching(pattern, places))
    seen: dict[str, Traced] = {}

    def record(name: str, tap: nn.Module, _: object, value: Tensor) -> None:
        assert isinstance(tap, Tap)
        seen[name] = Traced(name, tap.axes, value.detach())

    handles = [places[name].register_forward_hook(partial(record, name)) for name in chosen]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def trace(
    model: Transformer,
    source: Ids | None = None,
    target: Ids | None = None,
    *,
    only: str | Sequence[str] = "*",
) -> Trace:
    """Run a model once in eval mode, without gradients, and return its tensors.

    Args:
        model: Any Transformer; it is left in the mode in which it was.
        source: Ids for the encoder: one row, several rows of any lengths, or a tensor (B, S).
        target: Ids for the decoder, the same; what it has so far, the start token first.
        only: Names, or patterns such as "decoder.*.weights". 24 layers on 512 tokens are 0.6 GB.

    """
    device = model.device
    source_ids, source_is_real = _rows(source, model.config.source_vocabulary, "source", device)
    target_ids, target_is_real = _rows(target, model.config.target_vocabulary, "target", device)
    if source_ids is not None and target_ids is not None and len(source_ids) != len(target_ids):
        raise DataError(f"there are {len(source_ids)} sources, but {len(target_ids)} targets")
    in_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with watch(model, *([only] if isinstance(only, str) else only)) as seen, torch.inference_mode():
            model(source_ids, target_ids, source_is_real=source_is_real, target_is_real=target_is_real)
    finally:
        for module in in_training:
            module.training = True
    return Trace(seen)


def _matching(pattern: str, names: Mapping[str, Tap]) -> list[str]:
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise DataError(f"no tensor of this model is named {pattern!r}{nearest(pattern, names)}")
    return found


def _rows(
    ids: Ids | None, vocabulary: int | None, side: str, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Return ids (B, S) and which are real, from whatever was given."""
    if ids is None:
        return None, None
    if vocabulary is None:
        raise DataError(f"this model reads no {side}")
    is_real = None
    if not isinstance(ids, Tensor):
        ids, is_real = pad(_lists(ids, side))
    if ids.ndim not in (1, 2) or ids.is_floating_point() or not ids.numel():
        raise DataError(
            f"the {side} must be whole-number ids of shape (B, S) or (S), not {ids.dtype} {tuple(ids.shape)}"
        )
    ids = ids if ids.ndim == 2 else ids[None]
    if not ids.is_meta and not (int(ids.min()) >= 0 and int(ids.max()) < vocabulary):
        raise DataError(f"the {side} holds an id outside 0 to {vocabulary - 1}, the model's vocabulary")
    return ids.to(device), None if is_real is None else is_real.to(device)


def _lists(ids: Sequence[int] | Sequence[Sequence[int]], side: str) -> list[list[int]]:
    """Return rows of whole numbers, from one row or several."""
    several = bool(ids) and all(isinstance(item, Sequence) for item in ids)
    try:
        rows = [[operator.index(i) for i in row] for row in (ids if several else [ids])]  # type: ignore[arg-type, union-attr]
    except TypeError:
        raise DataError(f"the {side} must be ids: whole numbers in one row, or in a list of rows") from None
    if not all(rows):
        raise DataError(f"the {side} holds no tokens")
    return rows
