"""Which examples go into which batch: a pure function of the lengths, a seed and an epoch, so nothing is stored."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]  # places of examples
POOL = 100  # batches, about, whose examples are sorted by length together


def epoch_plan(
    lengths: NDArray[np.integer], *, seed: int, epoch: int, batch_size: int | None, batch_tokens: int | None
) -> Iterator[Indices]:
    """Yield the batches of one epoch: every example once, those of like length together, in random order.

    The examples are shuffled, taken in pools of about 100 batches, sorted by length in each, cut into batches, and the
    batches of a pool are shuffled.

    Args:
        lengths: (N,) or (N, sides); the longest of a row counts, the others break ties.
        seed: Of the run.
        epoch: Counted from 1.
        batch_size: Examples of a batch, or None.
        batch_tokens: Otherwise the most that rows times the longest length may be. A longer example is a batch alone.

    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(np.arange(len(lengths), dtype=np.uint32))
    if batch_tokens is None:
        pool = POOL * (batch_size or 1)
    else:
        pool = max(1, POOL * batch_tokens // max(1, int(_longest(lengths[order[:10_000]]).mean())))
    for start in range(0, len(order), pool):
        batches = list(_cut(lengths, order[start : start + pool].astype(np.int64), batch_size, batch_tokens))
        for i in random.permutation(len(batches)):
            yield batches[i]


def in_order(
    lengths: NDArray[np.integer], *, batch_size: int | None = None, batch_tokens: int | None = None
) -> Iterator[Indices]:
    """Yield batches of all examples, the shortest first: for measuring, where the order does not matter."""
    yield from _cut(lengths, np.arange(len(lengths)), batch_size, batch_tokens)


def heaviest(
    lengths: NDArray[np.integer], *, batch_size: int | None, batch_tokens: int | None, side: int | None = None
) -> Indices:
    """Return a batch that no batch of any epoch passes in rows times the square of the longest length.

    Or, with a side, in rows times the longest length of that side alone.

    With `batch_tokens` it need not hold the longest example: two of 5 tokens are more than one of 6 where 10 may stand
    together.
    """
    longest = _longest(lengths)
    values, counts = np.unique(longest, return_counts=True)
    up_to = np.cumsum(counts)  # examples of each length or less
    n = np.full(len(values), batch_size or 1)  # rows of the batch whose longest has each length
    if batch_tokens is not None:
        n = np.maximum(1, batch_tokens // np.maximum(1, values.astype(np.int64)))
    n = np.minimum(n, up_to)
    weights = n * values.astype(np.int64) ** 2
    if side is not None:
        widest = np.zeros(len(values), np.int64)  # of that side, among the rows of each length
        np.maximum.at(widest, np.searchsorted(values, longest), lengths[:, side])
        weights = n * widest
    best = int(np.flatnonzero(weights == weights.max())[-1])  # of equals that with the longest rows
    first = int(np.searchsorted(up_to, up_to[best] - n[best], side="right"))  # the shortest length in it
    rows = np.flatnonzero((longest >= values[first]) & (longest <= values[best]))
    return rows[_by_length(lengths[rows])][-n[best] :]


def _longest(lengths: NDArray[np.integer]) -> NDArray[np.integer]:
    return lengths if lengths.ndim == 1 else lengths.max(axis=1)


def _by_length(lengths: NDArray[np.integer]) -> Indices:
    """Return the order of the longest sides, the shortest first; the others break ties, and then the places."""
    longest = _longest(lengths)
    return np.lexsort((longest,) if lengths.ndim == 1 else (*lengths.T, longest))  # the last key counts most


def _cut(
    lengths: NDArray[np.integer], rows: Indices, batch_size: int | None, batch_tokens: int | None
) -> Iterator[Indices]:
    """Sort examples by length, stably, and cut them into batches."""
    own = lengths[rows]
    order = _by_length(own)
    rows, longest = rows[order], _longest(own)[order]
    start = 0
    while start < len(rows):
        if batch_tokens is None:
            end = start + (batch_size or 1)
        else:  # (rows so far) · (longest so far) only grows along the sorted lengths
            ahead = longest[start : start + batch_tokens].astype(np.int64)
            area = ahead * np.arange(1, len(ahead) + 1)
            end = start + max(1, int(np.searchsorted(area, batch_tokens, side="right")))
        yield rows[start:end]
        start = end
