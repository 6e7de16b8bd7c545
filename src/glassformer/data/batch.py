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


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
    """Lay rows of ids side by side: ids (B, S) and which of them are real, None where nothing is padded.

    The fill is id 0, whatever that stands for: what is real comes from the lengths.
    """
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return ids, is_real(lengths, ids.shape[1])


def unpad(ids: Tensor, is_real: Tensor | None) -> list[list[int]]:
    """Return the real ids of each row: what `pad` was given."""
    if is_real is None:
        return ids.tolist()
    return [row[real].tolist() for row, real in zip(ids, is_real, strict=True)]
