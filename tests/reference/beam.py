"""Beam search and exhaustive search in plain Python and NumPy, one sentence at a time: nothing of src is used.

`next_log_probabilities(ids)` gives the log-probabilities (V,) of the token after `ids`.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

Next = Callable[[tuple[int, ...]], np.ndarray]
Found = tuple[float, float, tuple[int, ...]]  # score, log-probability, tokens with the end token


def penalty(kind: str, alpha: float, n: int) -> float:
    return {"wu": math.pow((5 + n) / 6, alpha), "power": math.pow(n, alpha), "average": n, "none": 1}[kind]


def plain_beam(following: Next, *, width: int, limit: int, end: int, kind: str, alpha: float) -> list[Found]:
    """Run to the limit, without stopping early; every finished hypothesis, the best score first, then those cut."""
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Found] = []
    for n in range(1, limit + 1):
        grown = []
        for total, ids in beams:
            for token, value in enumerate(following(ids)):
                if value > -math.inf:
                    grown.append((total + float(value), (*ids, token)))
        grown.sort(key=lambda pair: -pair[0])
        best = grown[: 2 * width]
        finished += [(total / penalty(kind, alpha, n), total, ids) for total, ids in best if ids[-1] == end]
        beams = [(total, ids) for total, ids in best if ids[-1] != end][:width]
    finished.sort(key=lambda found: -found[0])
    return finished + [(total / penalty(kind, alpha, limit), total, ids) for total, ids in beams]


def brute_force(following: Next, *, vocabulary: int, limit: int, end: int, kind: str, alpha: float) -> list[Found]:
    """Every sequence that ends within the limit, the best score first."""
    others = [token for token in range(vocabulary) if token != end]
    found: list[Found] = []
    for n in range(limit):
        for ids in itertools.product(others, repeat=n):
            total = sum(float(following(ids[:i])[token]) for i, token in enumerate((*ids, end)))
            found.append((total / penalty(kind, alpha, n + 1), total, (*ids, end)))
    return sorted(found, key=lambda one: -one[0])


def cached(following: Next) -> Next:
    """Remember what was asked before."""
    known: dict[Sequence[int], np.ndarray] = {}

    def ask(ids: tuple[int, ...]) -> np.ndarray:
        if ids not in known:
            known[ids] = following(ids)
        return known[ids]

    return ask
