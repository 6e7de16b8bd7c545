"""What is to be said about examples: the numbers, from where on they are worth a sentence, and the sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from glassformer.data.catalogues import listed
from glassformer.data.examples import LEFT_OUT, SIDES, Lengths, left_out

Severity = Literal["error", "warning", "note"]  # training refuses or is senseless; look at it; good to know

MOST_UNKNOWN = 0.05  # of the tokens; beyond it something is wrong with the vocabulary, or the text
MOST_LEFT_OUT = 0.05  # of the examples, for one reason; beyond it the data are not what was meant
FAR = 20  # times the median: a batch with such an example is mostly padding, or has few rows
LONG = 256  # tokens; shorter examples cost little, however far above the median they are
RATIO = 9  # tokens of one side for each of the other: beyond it Moses drops a pair as not a translation
MOST_ODD = 0.01  # of the pairs of odd lengths: some are right (numbers, names), many are a file that has shifted
MOST_COPIED = 0.05  # of the pairs: beyond it a translator learns to copy (Khayrallah and Koehn 2018)
MOST_REPEATED = 0.1  # of the training examples; some come with every corpus
FEWEST = 10  # examples of a class, below which it is hardly learnt
UNEVEN = 20  # times as many examples of the largest class as of the smallest: balance them
SHOWN = 3  # places, or names, that a sentence shows

# what is odd: the share of the examples beyond which it is a warning, and its sentence
ODD = {
    "copied": (MOST_COPIED, "have", "the source itself as the target"),
    "odd_ratio": (MOST_ODD, "have", f"more than {RATIO} times as many tokens on one side as on the other"),
    "replacement_characters": (0.0, "hold", "U+FFFD, which stands where a character was lost: make the file anew"),
    "mojibake": (0.0, "hold", "characters such as Ã¤ for ä, UTF-8 that was read as Latin-1: convert the file anew"),
    "control_characters": (MOST_ODD, "hold", "control characters"),
    "carriage_returns": (MOST_ODD, "hold", "a carriage return in the middle of a text"),
    "byte_order_marks": (MOST_ODD, "hold", "a byte order mark in the middle of a text"),
}


@dataclass(frozen=True)
class Finding:
    """One thing to know about the data."""

    severity: Severity
    text: str


@dataclass(frozen=True)
class Places:
    """Examples of which something holds."""

    count: int = 0
    first: tuple[str, ...] = ()  # where the first ones stand, such as "train.tsv, line 7"


@dataclass(frozen=True)
class Side:
    """Tokens of one side of the examples, special ones aside; blank examples are not counted."""

    name: str  # source, target or text
    tokens: int
    unknown: int
    shortest: int
    median: int
    percentile_95: int  # so many per cent are no longer
    longest: int
    longest_at: str


@dataclass(frozen=True)
class SplitReport:
    """What one split holds."""

    split: str  # train, validation or test
    read: int  # examples; of a text in windows: lines
    kept: int  # examples, or windows, to learn from or to measure on
    cut: int = 0  # of the kept ones, sources that are cut to the longest length
    left_out: dict[str, int] = field(default_factory=dict)  # by reason; what a format skips was not "read"
    sides: tuple[Side, ...] = ()
    odd: dict[str, Places] = field(default_factory=dict)  # by the names of ODD
    duplicates: int | None = None  # train: examples that stand there already
    other_targets: int | None = None  # train: examples whose source has another target before
    classes: dict[str, int] = field(default_factory=dict)
    sources_in_train: Places | None = None  # of other splits
    pairs_in_train: Places | None = None
    unseen: str = ""  # windows: characters that train does not have


def fast_findings(
    counts: Mapping[str, int], lengths: Lengths, places: Mapping[int, str] | None = None
) -> list[Finding]:
    """Return what the counts and lengths of examples (`Examples.counts`, `.lengths`) say without reading them again.

    Args:
        counts: Of what was read and left out.
        lengths: (N,) or (N, 2), tokens that the model reads.
        places: Where an example of so many tokens stands, if that is known.

    """
    findings = []
    sides = [side for side in SIDES if counts.get(f"{side}_tokens")]
    for side in sides:
        share = counts.get(f"{side}_unknown", 0) / counts[f"{side}_tokens"]
        if share > MOST_UNKNOWN:
            of_side = f" {side}" if len(sides) > 1 else ""
            text = f"{_percent(share)} of the{of_side} tokens are unknown to the vocabulary"
            findings.append(Finding("warning", text))
    for reason, n in left_out(counts).items():
        total = counts.get("read", 0) + (0 if reason in LEFT_OUT else n)
        is_much = n > MOST_LEFT_OUT * total or reason == "unknown_class"
        text = f"{_examples(n, total, 'is', 'are')} left out: {LEFT_OUT.get(reason, reason)}"
        findings.append(Finding("warning" if is_much else "note", text))
    if n := counts.get("cut", 0):
        is_much = n > MOST_LEFT_OUT * counts["read"]
        text = f"{_examples(n, counts['read'], 'has', 'have')} a source longer than data.max_length, or the model's "
        findings.append(Finding("warning" if is_much else "note", f"{text}positions, allow: it is cut"))
    # the decoder of a pair reads the start token too
    longest = lengths if lengths.ndim == 1 else np.maximum(lengths[:, 0], lengths[:, 1] - 1)
    most, median = int(longest.max()), float(np.median(longest))
    if most > LONG and most > FAR * median:
        where = f" ({places[most]})" if places and most in places else ""
        text = f"the longest example has {most:,} tokens{where}, {most / median:,.0f} times the median"
        findings.append(Finding("warning", f"{text}: set data.max_length"))
    return findings


def of_texts(report: SplitReport, n: int) -> list[Finding]:
    """Say what is odd about the n texts, or pairs, of a split."""
    findings = []
    for name, (most, verb, what) in ODD.items():
        if (places := report.odd[name]).count:
            text = f"{_examples(places.count, n, {'have': 'has', 'hold': 'holds'}[verb], verb)} {what}"
            findings.append(Finding("warning" if places.count > most * n else "note", f"{text} {_at(places)}"))
    if report.duplicates:
        text = f"{_examples(report.duplicates, n, 'is a repetition', 'are repetitions')} of an earlier one"
        findings.append(Finding("warning" if report.duplicates > MOST_REPEATED * n else "note", text))
    if report.other_targets and report.classes:
        text = f"{_examples(report.other_targets, n, 'has', 'have')} a text that stands there with another class too: "
        findings.append(Finding("warning", f"{text}no model can be right about both"))
    elif report.other_targets:
        text = f"{_examples(report.other_targets, n, 'gives', 'give')} a source another target than an earlier one"
        findings.append(Finding("note", text))
    sources, pairs = report.sources_in_train, report.pairs_in_train
    if sources is not None and sources.count:
        what = "sources" if report.sides[0].name == "source" else "texts"
        same = f", {pairs.count:,} with the same {'class' if report.classes else 'target'}" if pairs is not None else ""
        text = f"{sources.count:,} of {n:,} {what} stand in the training examples too{same}"
        findings.append(Finding("warning", f"{text} {_at(sources)}"))
    return findings


def of_classes(report: SplitReport, *, balanced: bool) -> list[Finding]:
    """Say which classes a split has too few examples of; `balanced`: the classes count alike already."""
    if not report.classes:
        return []
    smallest, largest = (choose(report.classes, key=report.classes.__getitem__) for choose in (min, max))
    findings, n, most = [], report.classes[smallest], report.classes[largest]
    if report.split != "train":
        if missing := [name for name, count in report.classes.items() if not count]:
            findings.append(Finding("note", f"no example has the class {listed(map(repr, missing), SHOWN)}"))
        return findings
    if few := [f"{name!r} ({count})" for name, count in report.classes.items() if count < FEWEST]:
        text = f"fewer than {FEWEST} examples are too few to learn a class from: {listed(few, SHOWN)}"
        findings.append(Finding("warning", text))
    if most > UNEVEN * n and not balanced:
        text = f"{most:,} examples have the class {largest!r}, {n:,} the class {smallest!r}"
        findings.append(Finding("note", f"{text}: train.class_weights='balanced' lets each class count alike"))
    return findings


def _examples(n: int, total: int, one: str, many: str) -> str:
    return f"{n:,} of {total:,} examples {one if n == 1 else many}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _at(places: Places) -> str:
    return f"({'; '.join(places.first)}{'; …' if places.count > len(places.first) else ''})"
