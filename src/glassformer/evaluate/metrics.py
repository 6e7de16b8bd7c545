"""Measures of written text against references, each with a 95 % bootstrap interval.

One idea holds them together: each line gives a row of counts, and a metric is a function of the summed rows. A
bootstrap resample (Efron 1979; for translation Koehn 2004) is then a weighted sum of the rows, and the text is read
once. BLEU and chrF are sacreBLEU's (Post 2018).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU, CHRF

from glassformer.errors import DataError, nearest

Lines = Sequence[str]
References = Sequence[Sequence[str]]  # all references of each line
Counts = NDArray[np.float64]

BLOCK = 4_000_000  # numbers that a resampling holds at once: 32 MB
MOST_LABELS = 1000  # the counts of one line grow with the number of labels
STRESS = re.compile(r"(?<=[A-Za-z])[012](?!\S)")  # CMUdict: 0 none, 1 primary, 2 secondary


@dataclass(frozen=True)
class Metric:
    """A metric as counts of lines and a function of their sum."""

    rows: Callable[[Lines, References], Counts]  # -> (n, k), the counts of n lines
    value: Callable[[Counts], Counts]  # (..., k) -> (...), from summed counts


@dataclass(frozen=True)
class Measured:
    """The value of a metric, with its 95 % bootstrap interval."""

    name: str
    value: float  # BLEU and chrF: 0 to 100; all others a share of 1, where an error rate can pass 1
    low: float
    high: float
    signature: str  # all that another must know to get the same number, in sacreBLEU's style


@dataclass(frozen=True)
class Confusion:
    """Which label was answered for which; a label that was never answered has precision 0, never true: recall 0."""

    labels: list[str]  # (C,), sorted: all that are true or answered somewhere
    counts: list[list[int]]  # (C, C): row = true label, column = answer
    precision: list[float]  # (C,), as are the three below
    recall: list[float]
    f1: list[float]
    support: list[int]  # lines whose true label it is


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions that make `b` of `a` (Levenshtein 1966)."""
    row = list(range(len(b) + 1))  # row[j]: from the part of `a` that was read to b[:j]
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def _match_rows(hypotheses: Lines, references: References) -> Counts:
    """Return (right, 1) for each line; outer white space does not count."""
    pairs = zip(hypotheses, references, strict=True)
    return np.array([(line.strip() in {each.strip() for each in all_of}, 1) for line, all_of in pairs], np.float64)


def _error_rows(hypotheses: Lines, references: References) -> Counts:
    """Return (edits, length of the reference) for each line, from the reference with the fewest edits."""
    rows = []
    for line, all_of in zip(hypotheses, references, strict=True):
        written, wanted = line.split(), [each.split() for each in all_of]
        edits, length = min((edit_distance(written, each), -len(each)) for each in wanted)  # ties: the longer one
        rows.append((edits, -length))
    return np.array(rows, np.float64)


def _phone_rows(hypotheses: Lines, references: References) -> Counts:
    """Return what `_error_rows` does, without the stress at the end of a phone: AH0 is AH."""
    plain = partial(STRESS.sub, "")
    return _error_rows([plain(line) for line in hypotheses], [[plain(each) for each in a] for a in references])


def _ratio(totals: Counts) -> Counts:
    """Divide; references without any token count as one token, so that nothing is divided by 0."""
    ratio: Counts = totals[..., 0] / np.maximum(totals[..., 1], 1)
    return ratio


def _coded(hypotheses: Lines, references: References) -> tuple[list[str], list[int], list[int]]:
    """Return all labels, sorted, and the places of each line's answer and of its true label among them."""
    answers = [line.strip() for line in hypotheses]
    truths = [all_of[0].strip() for all_of in references]
    labels = sorted({*answers, *truths})
    if len(labels) > MOST_LABELS:
        raise DataError(
            f"{len(labels)} different labels in {len(truths)} lines are too many, the most is {MOST_LABELS}: "
            "each line must be one label, not a text"
        )
    place = {label: i for i, label in enumerate(labels)}
    return labels, [place[answer] for answer in answers], [place[truth] for truth in truths]


def _class_rows(hypotheses: Lines, references: References) -> Counts:
    """Return for each line and each of C classes: hit, answered, true; (n, 3C)."""
    labels, answers, truths = _coded(hypotheses, references)
    one_hot = np.eye(len(labels))
    answered, true = one_hot[answers], one_hot[truths]  # (n, C)
    return np.concatenate([answered * true, answered, true], axis=1)


def _macro_f1(totals: Counts) -> Counts:
    """Return the mean F1 = 2 hits / (answered + true) over the classes that occur."""
    hits, answered, true = np.split(totals, 3, axis=-1)  # (..., C)
    places = answered + true
    mean: Counts = (2 * hits / np.maximum(places, 1)).sum(axis=-1) / (places > 0).sum(axis=-1)
    return mean


def _streams(references: References) -> list[tuple[str, ...]]:
    """Return the references as sacreBLEU takes them: the first of all lines, the second, ...; None where one lacks."""
    return list(zip_longest(*references))


def _of_sacrebleu(make: Callable[[], BLEU | CHRF]) -> Metric:
    """Return sacreBLEU's statistics of lines, which its own significance tests use, as a metric of ours."""

    def rows(hypotheses: Lines, references: References) -> Counts:
        return np.array(make()._extract_corpus_statistics(hypotheses, _streams(references)), np.float64)

    def value(totals: Counts) -> Counts:
        metric = make()
        flat = totals.astype(int).reshape(-1, totals.shape[-1]).tolist()
        return np.array([metric._compute_score_from_stats(row).score for row in flat]).reshape(totals.shape[:-1])

    return Metric(rows, value)


# `force` only silences the guess that text was tokenised before
SACREBLEU: dict[str, Callable[[], BLEU | CHRF]] = {"bleu": partial(BLEU, force=True), "chrf": CHRF}
METRICS = {
    "bleu": _of_sacrebleu(SACREBLEU["bleu"]),
    "chrf": _of_sacrebleu(SACREBLEU["chrf"]),
    "exact_match": Metric(_match_rows, _ratio),
    "token_error_rate": Metric(_error_rows, _ratio),
    "phone_error_rate": Metric(_phone_rows, _ratio),
    "accuracy": Metric(_match_rows, _ratio),
    "macro_f1": Metric(_class_rows, _macro_f1),
}
OF_CLASSES = ("accuracy", "macro_f1")
OF_LABELS = (*OF_CLASSES, "confusion")  # one true label a line


def metric_for(name: str, hypotheses: Lines, references: References) -> Metric:
    """Return the metric of that name, once it is sure that the lines fit it.

    Raises:
        DataError: See `measure`.

    """
    if name not in METRICS:
        raise DataError(f"there is no metric {name!r}{nearest(name, METRICS)} Metrics: {', '.join(METRICS)}")
    _check(name, hypotheses, references)
    return METRICS[name]


def _check(name: str, hypotheses: Lines, references: References) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} lines were written, but {len(references)} lines have references: "
            "line i of the one must belong to line i of the other"
        )
    if not hypotheses:
        raise DataError(f"there is no line: {name} needs at least one")
    for number, all_of in enumerate(references, 1):
        if isinstance(all_of, str):  # which would be read as one reference a letter
            raise DataError(f"the references of line {number} are the string {all_of!r}: give a list of strings")
        if not all_of:
            raise DataError(f"line {number} has no reference: each line needs at least one")
        if name in OF_LABELS and len(all_of) > 1:
            raise DataError(f"line {number} has {len(all_of)} references: {name} takes exactly one, the true label")


def value_of(name: str, hypotheses: Lines, references: References) -> float:
    """Return the value alone that `measure` gives, without its interval.

    Raises:
        DataError: See `measure`.

    """
    metric = metric_for(name, hypotheses, references)
    return float(metric.value(metric.rows(hypotheses, references).sum(axis=0)))


def measure(
    name: str, hypotheses: Lines, references: References, *, resamples: int = 1000, seed: int = 12345
) -> Measured:
    """Measure written lines against their references.

    `bleu` and `chrf` are sacreBLEU's with its defaults, and so is their interval: the mean of the resamples ± half the
    width of their middle 95 %. `exact_match` is the share of lines that equal one of their references, `accuracy` the
    same of labels. `token_error_rate` is edits over the length of the references, in tokens between white space;
    of several references the one with the fewest edits, then the longest. `phone_error_rate` is the same without
    CMUdict's stress digits. `macro_f1` is the mean F1 over the classes that are true or answered somewhere; in a
    resample, those that occur in it. The interval of these five runs from the 2.5th to the 97.5th percentile.

    Args:
        name: One of `METRICS`.
        hypotheses: (n,), the lines that were written.
        references: (n,), for each line all its references: one or more, not the same number everywhere.
        resamples: Bootstrap resamples, 2 or more.
        seed: Of the resamples, 0 or more.

    Raises:
        DataError: The name is unknown; the lengths differ; there is no line; a line has no reference, or a string
            instead of a list of them; labels have several references, or there are more than 1000; too few resamples.

    """
    metric = metric_for(name, hypotheses, references)
    if resamples < 2:
        raise DataError(f"resamples={resamples} give no interval: the smallest is 2")
    counts = metric.rows(hypotheses, references)
    value, values = float(metric.value(counts.sum(axis=0))), _bootstrap(metric, counts, resamples, seed)
    low, high = _interval_of_sacrebleu(values) if name in SACREBLEU else np.percentile(values, [2.5, 97.5])
    return Measured(name, value, float(low), float(high), _signature(name, references, resamples, seed))


def _bootstrap(metric: Metric, counts: Counts, resamples: int, seed: int) -> Counts:
    """Return the metric's value in each resample, (R,), from the rows of n lines, (n, k)."""
    n, random = len(counts), np.random.default_rng(seed)
    at_once = max(1, BLOCK // n)
    values = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        drawn = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]  # n places to each resample
        weights = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        values.append(metric.value(weights @ counts))
    return np.concatenate(values)


def _interval_of_sacrebleu(values: Counts) -> tuple[float, float]:
    """Return the mean ± half the width of the middle 95 %, as sacreBLEU's `Score.estimate_ci` has it.

    The resamples are those of its `corpus_score(n_bootstrap=...)` too. That itself sums in single precision, takes its
    seed from the environment alone, and fails on chrF where only some of the resamples are 0 (sacreBLEU 2.6.0).
    """
    values, outside = np.sort(values), len(values) // 40
    half = (values[-1 - outside] - values[outside]) / 2
    return float(values.mean() - half), float(values.mean() + half)


def _signature(name: str, references: References, resamples: int, seed: int) -> str:
    numbers = {len(all_of) for all_of in references}
    n_references = numbers.pop() if len(numbers) == 1 else "var"
    if name not in SACREBLEU:
        return f"{name}|nrefs:{n_references}|bs:{resamples}|seed:{seed}|version:{version('glassformer')}"
    metric = SACREBLEU[name]()
    metric.num_refs = -1  # it gives no signature before it knows; the true number is set below
    signature = metric.get_signature()
    for key, value in (("nrefs", n_references), ("bs", resamples), ("seed", seed)):
        signature.update(key, value)
    return f"{'BLEU' if name == 'bleu' else 'chrF2'}|{signature}"


def confusion(hypotheses: Lines, references: References) -> Confusion:
    """Count which label was answered for which.

    Args:
        hypotheses: (n,), the answers.
        references: (n,), for each line a list of one: its true label.

    Raises:
        DataError: The lines do not fit each other, as in `measure`.

    """
    _check("confusion", hypotheses, references)
    labels, answers, truths = _coded(hypotheses, references)
    counts = np.zeros((len(labels), len(labels)), int)
    np.add.at(counts, (truths, answers), 1)
    hits, answered, true = counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1)
    return Confusion(
        labels=labels,
        counts=counts.tolist(),
        precision=(hits / np.maximum(answered, 1)).tolist(),
        recall=(hits / np.maximum(true, 1)).tolist(),
        f1=(2 * hits / (answered + true)).tolist(),
        support=true.tolist(),
    )
