"""Two systems on the same lines: is the difference more than chance would give?

Were the two equally good, then each line could as well have come from the other. So lines are swapped between them,
each with probability 1/2, and the p-value is how often the difference gets as large as the observed one (Noreen 1989;
Riezler and Maxwell 2005).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from glassformer.errors import DataError
from glassformer.evaluate import metrics
from glassformer.evaluate.metrics import Counts, Lines, References, metric_for

# Swaps that give the observed difference give it through other sums: the last digits may differ
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Compared:
    """One metric of two systems, and the chance of such a difference if they were equally good."""

    name: str
    ours: float  # in the unit of `Measured.value`, as are the two below
    theirs: float
    difference: float  # ours − theirs
    p_value: float  # two-sided
    test: str  # which test, with what it takes to repeat it


def compare(
    name: str, ours: Lines, theirs: Lines, references: References, *, trials: int = 10_000, seed: int = 12345
) -> Compared:
    """Compare two systems by paired randomisation.

    Lines that count the same for both are left out, as swapping them changes nothing. If all swaps of the others are no
    more than `trials`, each is tried once and p is the share that reaches the observed difference; otherwise that
    many are drawn and p = (reached + 1) / (trials + 1).

    `bleu` and `chrf` go the same way, on sacreBLEU's statistics of each line. Its own `PairedTest` counts only trials
    that pass the observed difference, not those that equal it, so that a system differs from itself with p = 0.001.

    Args:
        name: One of `metrics.METRICS`.
        ours: (n,), the lines that one system wrote.
        theirs: (n,), those of the other.
        references: (n,), for each line all its references.
        trials: The most swaps to try, 1 or more.
        seed: Of the swaps, 0 or more.

    Raises:
        DataError: The lines of one system do not fit the references, as in `measure`; `trials` is below 1.

    """
    if trials < 1:
        raise DataError(f"trials={trials} test nothing: the smallest is 1")
    metric_for(name, theirs, references)
    metric = metric_for(name, ours, references)
    # in one go, so that both have the same classes
    a, b = np.split(metric.rows([*ours, *theirs], [*references, *references]), 2)  # (n, k) each
    sum_a, sum_b = a.sum(axis=0), b.sum(axis=0)  # (k,)
    value_a, value_b = float(metric.value(sum_a)), float(metric.value(sum_b))
    gap = (b - a)[(a != b).any(axis=1)]  # (m, k): what the swap of a line gives to ours, and takes from theirs
    is_exact = 2 ** len(gap) <= trials
    n_reached = 0
    for swaps in _all_swaps(len(gap)) if is_exact else _random_swaps(len(gap), trials, seed):
        moved = swaps @ gap  # (trials, k)
        difference = np.abs(metric.value(sum_a + moved) - metric.value(sum_b - moved))
        n_reached += int((difference >= abs(value_a - value_b) - TOLERANCE).sum())
    if is_exact:
        p_value, test = n_reached / 2 ** len(gap), f"exact randomisation|swaps:{2 ** len(gap)}"
    else:
        p_value, test = (n_reached + 1) / (trials + 1), f"approximate randomisation|trials:{trials}|seed:{seed}"
    return Compared(name, value_a, value_b, value_a - value_b, p_value, test)


def _all_swaps(n_lines: int) -> Iterator[Counts]:
    """Yield all 2^m choices of m lines, in blocks (trials, m) of 0 and 1: the digits of 0, 1, 2, ... to base 2."""
    for start, stop in _blocks(n_lines, 2**n_lines):
        yield (np.arange(start, stop)[:, None] >> np.arange(n_lines) & 1).astype(np.float64)


def _random_swaps(n_lines: int, trials: int, seed: int) -> Iterator[Counts]:
    """Yield random choices of m lines, in blocks (trials, m) of 0 and 1."""
    random = np.random.default_rng(seed)
    for start, stop in _blocks(n_lines, trials):
        yield (random.random((stop - start, n_lines)) < 0.5).astype(np.float64)


def _blocks(n_lines: int, trials: int) -> Iterator[tuple[int, int]]:
    """Cut the trials into blocks that memory holds."""
    at_once = max(1, metrics.BLOCK // max(1, n_lines))
    for start in range(0, trials, at_once):
        yield start, min(start + at_once, trials)
