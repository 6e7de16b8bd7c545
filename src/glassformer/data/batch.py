"""One class for what a model is trained and measured on, and how examples are laid out in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100  # a label that no loss and no accuracy counts
Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Batch:
    """B examples, padded on the right.

    The target needs no mask of its padding: it comes after every real token, where a causal mask hides it from
    them all, and its own places have no label. So the fused kernels get their causal flag instead of a dense mask.
    """

    source: Tensor | None  # (B, S) ids; None: the model has no encoder
    source_is_real: Tensor | None  # (B, S), False at padding; None where nothing is padded
    target: Tensor | None  # (B, T) ids that the decoder reads: the answer shifted right; None: no decoder
    labels: Tensor  # (B, T) the token to write at each place, IGNORED where nothing is asked; (B,) of a classifier

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    @property
    def n_labels(self) -> int:
        """Places where something is asked."""
        return int((self.labels != IGNORED).sum())

    @property
    def n_columns(self) -> int:
        """Tokens of the longer side, padding included."""
        return max(0 if side is None else side.shape[1] for side in (self.source, self.target))

    @property
    def n_tokens(self) -> int:
        """Real tokens that the model reads, of both sides."""
        source = 0 if self.source is None else self.source.numel()
        if self.source_is_real is not None:
            source = int(self.source_is_real.sum())
        if self.target is None or not self.target.shape[1]:
            return source
        places = torch.arange(1, self.target.shape[1] + 1, device=self.labels.device)
        last = ((self.labels != IGNORED) * places).amax(dim=1)  # what a row is to write ends where it ends
        return source + int(last.sum())

    def silent(self) -> "Batch":
        """Return the batch with nothing asked of it: its loss and gradients are 0."""
        return replace(self, labels=torch.full_like(self.labels, IGNORED))

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        moved = {name: None if tensor is None else tensor.to(device) for name, tensor in vars(self).items()}
        return replace(self, **moved)  # type: ignore[arg-type]


def is_real(lengths: Tensor, n_columns: int) -> Tensor | None:
    """(B,) lengths -> (B, n_columns), True at the first `length` places; None where that is all of them."""
    if bool((lengths == n_columns).all()):
        return None
    return torch.arange(n_columns, device=lengths.device) < lengths[:, None]


def pad(rows: Sequence[Ids], *, left: bool = False) -> tuple[Tensor, Tensor | None]:
    """Lay rows of ids side by side: ids (B, S) and which of them are real, None where nothing is padded.

    The fill is id 0, whatever that stands for: what is real comes from the lengths. It stands on the right, or on the
    left, where the last column then holds the last token of every row.
    """
    lengths = torch.tensor([len(row) for row in rows])
    ids = _filled(rows, 0, left=left)
    real = is_real(lengths, ids.shape[1])
    return ids, real.flip(1) if left and real is not None else real


def unpad(ids: Tensor, is_real: Tensor | None) -> list[list[int]]:
    """Return the real ids of each row: what `pad` was given."""
    if is_real is None:
        return ids.tolist()
    return [row[real].tolist() for row, real in zip(ids, is_real, strict=True)]


def pairs(sources: Sequence[Ids], targets: Sequence[Ids], *, start: int, end: int) -> Batch:
    """Lay out sources and their targets for an encoder–decoder: it reads `<s> a b` and is to write `a b </s>`."""
    source, source_is_real = pad(sources)
    target = _filled([[start, *row] for row in targets], 0)
    labels = _filled([[*row, end] for row in targets], IGNORED)
    return Batch(source, source_is_real, target, labels)


def continuations(prompts: Sequence[Ids], answers: Sequence[Ids], *, start: int | None, end: int | None) -> Batch:
    """Lay out prompts and their answers for a decoder alone: only the answer, and the end token, are asked for.

    Without a start token nothing stands before the first token, so that it is not asked for where the prompt is empty.
    """
    first, last = [] if start is None else [start], [] if end is None else [end]
    read, labels = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        row = [*first, *prompt, *answer, *last]
        n_given = max(1, len(first) + len(prompt))
        read.append(row[:-1])
        labels.append([IGNORED] * (n_given - 1) + row[n_given:])
    return Batch(None, None, _filled(read, 0), _filled(labels, IGNORED))


def labelled(texts: Sequence[Ids], classes: Sequence[int]) -> Batch:
    """Lay out texts and the numbers of their classes for an encoder alone."""
    source, source_is_real = pad(texts)
    return Batch(source, source_is_real, None, torch.tensor(classes))


def _filled(rows: Sequence[Ids], fill: int, *, left: bool = False) -> Tensor:
    """(B, longest row), filled up with `fill`."""
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), fill, np.int64)
    for i, row in enumerate(rows):
        if left:
            ids[i, longest - len(row) :] = row
        else:
            ids[i, : len(row)] = row
    return torch.from_numpy(ids)
