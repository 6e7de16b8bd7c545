"""One class for what a model is trained and measured on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100  # a label that no loss and no accuracy counts


@dataclass(frozen=True, eq=False)
class Batch:
    """B examples, padded on the right.

    The target needs no mask of its padding: it comes after every real token, where a causal mask hides it from
    them all, and its own places have no label. So the fused kernels get their causal flag instead of a dense mask.
    """

    source: Tensor  # (B, S) ids
    source_is_real: Tensor | None  # (B, S), False at padding; None where nothing is padded
    target: Tensor  # (B, T) ids that the decoder reads: the answer shifted right
    labels: Tensor  # (B, T) the token to write at each place; IGNORED where nothing is asked

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)


def is_real(lengths: Tensor, n_columns: int) -> Tensor | None:
    """(B,) lengths -> (B, n_columns), True at the first `length` places; None where that is all of them."""
    if bool((lengths == n_columns).all()):
        return None
    return torch.arange(n_columns, device=lengths.device) < lengths[:, None]


def pad(rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor | None]:
    """Lay rows of ids side by side: ids (B, S) and which of them are real, None where nothing is padded.

    The fill is id 0, whatever that stands for: what is real comes from the lengths. It stands on the right, or on the
    left, where the last column then holds the last token of every row.
    """
    lengths = [len(row) for row in rows]
    n = max(lengths)
    ids = torch.tensor([[0] * (n - len(row)) + [*row] if left else [*row] + [0] * (n - len(row)) for row in rows])
    real = is_real(torch.tensor(lengths), n)
    return ids.long().view(len(rows), n), real.flip(1) if left and real is not None else real


def unpad(ids: Tensor, is_real: Tensor | None) -> list[list[int]]:
    """Return the real ids of each row: what `pad` was given."""
    if is_real is None:
        return ids.tolist()
    return [row[real].tolist() for row, real in zip(ids, is_real, strict=True)]
