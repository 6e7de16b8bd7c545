"""The data doctor: what stands in the examples of a configuration, and what is wrong with them, before any training.

Each split is read once more, as text, and is not held: a training example leaves two numbers of eight bytes.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from glassformer.data.catalogues import listed
from glassformer.data.corpus import CHUNK, Corpus, Split
from glassformer.data.examples import left_out
from glassformer.data.findings import (
    ODD,
    RATIO,
    SHOWN,
    Finding,
    Places,
    Side,
    SplitReport,
    fast_findings,
    of_classes,
    of_texts,
)
from glassformer.data.readers import Example
from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

__all__ = ["Diagnosis", "Finding", "Places", "Side", "SplitReport", "examine", "fast_findings"]

Hashes = NDArray[np.int64]

# UTF-8 that was read as Latin-1 or Windows-1252: ä as Ã¤, Ä as Ã„, ° as Â°, – as â€“, п as Ð¿ (two in a row)
MOJIBAKE = r"[ÃÂ][\x80-\xbf]|Ã[„–œŸ‰‡]|â(?:€|\x80)|ï[»¿][¿½]|(?:[ÐÑ][\x80-\xbf€‚ƒ„…†‡‹Œ]){2}"
CHARACTERS = {
    "replacement_characters": re.compile("\ufffd"),
    "mojibake": re.compile(MOJIBAKE),
    "control_characters": re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "carriage_returns": re.compile(r"\r"),
    "byte_order_marks": re.compile("\ufeff"),
}
ANY = re.compile("|".join(pattern.pattern for pattern in CHARACTERS.values()))


@dataclass(frozen=True)
class Diagnosis:
    """What the data of a configuration hold, and what is wrong with them."""

    splits: tuple[SplitReport, ...]
    findings: tuple[Finding, ...]


def examine(corpus: Corpus) -> Diagnosis:
    """Read all examples of a corpus and say what stands in them.

    A split that cannot be read is an error among the findings.
    """
    data = corpus.data
    reports, findings = [], _of_vocabulary(corpus)
    readings: dict[Split, _Reading] = {}
    for split in get_args(Split):
        if not corpus.has(split) or (data.task is not None and split == "test"):  # which is a task's validation too
            continue
        if data.task == "reversal" and split == "train":
            findings.append(Finding("note", "train: the task 'reversal' draws its examples: there is no list to check"))
            continue
        try:
            if data.window is None:
                readings[split] = _Reading(corpus, split, readings.get("train"))
                report, found = _of_examples(corpus, readings[split])
            else:
                report, found = _of_windows(corpus, split)
        except DataError as error:
            findings.append(Finding("error", f"{split}: {error}"))
            continue
        reports.append(report)
        findings += [Finding(one.severity, f"{split}: {one.text}") for one in found]
    if not corpus.has("validation"):
        text = "no validation examples: nothing is measured on what is not learnt; see data.validation, data.held_out"
        findings.append(Finding("note", text))
    return Diagnosis(tuple(reports), tuple(findings))


class _Tally:
    """Counts examples, and keeps where the first ones stand."""

    def __init__(self) -> None:
        self._count, self._first = 0, list[str]()

    def add(self, example: Example) -> None:
        self._count += 1
        if len(self._first) < SHOWN:
            self._first.append(_where(example))

    def places(self) -> Places:
        return Places(self._count, tuple(self._first))


class _Histogram:
    """How many examples have so many tokens, and where the first of them stands."""

    def __init__(self) -> None:
        self.counts, self.at = Counter[int](), dict[int, str]()

    def add(self, lengths: Sequence[int], examples: Sequence[Example]) -> None:
        self.counts.update(lengths)
        for length in set(lengths) - self.at.keys():
            self.at[length] = _where(examples[lengths.index(length)])

    def side(self, name: str, *, unknown: int) -> Side:
        lengths = np.array(sorted(self.counts))
        ranks = np.cumsum([self.counts[length] for length in lengths])
        median, most = (int(lengths[np.searchsorted(ranks, share * ranks[-1])]) for share in (0.5, 0.95))
        n_tokens, longest = sum(length * n for length, n in self.counts.items()), int(lengths[-1])
        return Side(name, n_tokens, unknown, int(lengths[0]), median, most, longest, self.at[longest])


class _Reading:
    """What one reading of a split's texts leaves."""

    def __init__(self, corpus: Corpus, split: Split, train: "_Reading | None") -> None:
        self.split, self.examples, words = split, corpus.examples(split), corpus.vocabularies
        self._kind = corpus.config.model.kind
        self.source, self.target, self.whole = _Histogram(), _Histogram(), _Histogram()
        self.odd = {name: _Tally() for name in ODD}
        self.classes: Counter[str] = Counter(dict.fromkeys(words.classes, 0))
        self.sources_in_train, self.pairs_in_train = _Tally(), _Tally()
        sources, pairs = array("q"), array("q")
        self.is_text, self.is_compared = False, train is not None
        for some in _chunks(corpus, split):
            self.is_text = some[0].target is None
            self._measure(some, words.source, words.target)
            for example in some:
                self._look_at(example)
            own = [example.source.strip() for example in some]
            both = [(source, (example.target or "").strip()) for source, example in zip(own, some, strict=True)]
            if train is not None:
                self._compare(some, list(map(hash, own)), list(map(hash, both)), train)
            elif split == "train":
                sources.extend(map(hash, own))
                pairs.extend(map(hash, both))
        self.sources, self.pairs = _ordered(sources), _ordered(pairs)

    def _measure(self, some: Sequence[Example], source: Tokenizer, target: Tokenizer) -> None:
        """Take the lengths of both sides."""
        n_source = [len(row) for row in source.encode_batch([example.source for example in some])]
        self.source.add(n_source, some)
        if self._kind == "encoder":
            self.classes.update(name for example in some if (name := (example.target or "").strip()) in self.classes)
            return
        n_target = [len(row) for row in target.encode_batch([example.target or "" for example in some])]
        self.target.add(n_target, some)
        self.whole.add([a + b for a, b in zip(n_source, n_target, strict=True)], some)
        if self._kind == "encoder-decoder":
            for a, b, example in zip(n_source, n_target, some, strict=True):
                if max(a, b) > RATIO * min(a, b):
                    self.odd["odd_ratio"].add(example)
                if example.source.strip() == (example.target or "").strip():
                    self.odd["copied"].add(example)

    def _look_at(self, example: Example) -> None:
        """Look for characters that should not be there."""
        text = f"{example.source}\n{example.target or ''}"
        if ANY.search(text):
            for name, pattern in CHARACTERS.items():
                if pattern.search(text):
                    self.odd[name].add(example)

    def _compare(self, some: Sequence[Example], own: list[int], both: list[int], train: "_Reading") -> None:
        """Look for examples that stand in train."""
        tallies = (self.sources_in_train, self.pairs_in_train)
        for tally, seen, hashes in zip(tallies, (train.sources, train.pairs), (own, both), strict=True):
            own_hashes = np.array(hashes, np.int64)
            for i in np.flatnonzero(seen[np.searchsorted(seen, own_hashes).clip(max=len(seen) - 1)] == own_hashes):
                tally.add(some[int(i)])

    def places(self, start: int) -> dict[int, str]:
        """Return where an example of so many tokens stands, as `Examples.lengths` counts them."""
        if self._kind == "decoder":
            return {length + start: where for length, where in self.whole.at.items()}
        return self.target.at | self.source.at


def _of_examples(corpus: Corpus, reading: _Reading) -> tuple[SplitReport, list[Finding]]:
    counts, split = reading.examples.counts, reading.split
    is_one_sided = reading.is_text or corpus.config.model.kind == "encoder"
    source = reading.source.side("text" if is_one_sided else "source", unknown=counts["source_unknown"])
    sides = [source]
    if not is_one_sided:
        sides.append(reading.target.side("target", unknown=counts["target_unknown"]))
    n_pairs, n_sources = _distinct(reading.pairs), _distinct(reading.sources)
    is_train, is_compared = split == "train", reading.is_compared
    report = SplitReport(
        split,
        counts["read"],
        len(reading.examples),
        counts["cut"],
        left_out(counts),
        tuple(sides),
        {name: tally.places() for name, tally in reading.odd.items()},
        duplicates=len(reading.pairs) - n_pairs if is_train else None,
        other_targets=n_pairs - n_sources if is_train else None,
        classes=dict(reading.classes),
        sources_in_train=reading.sources_in_train.places() if is_compared else None,
        pairs_in_train=reading.pairs_in_train.places() if is_compared and not reading.is_text else None,
    )
    places = reading.places(start=int(corpus.vocabularies.target.start_id is not None))
    found = fast_findings(counts, reading.examples.lengths, places)
    settings = corpus.config.train
    balanced = settings is not None and settings.class_weights == "balanced"
    n = sum(reading.source.counts.values())
    if corpus.data.task is None:  # a task's own examples are as they must be
        found += [*of_texts(report, n), *of_classes(report, balanced=balanced)]
    return report, found


def _of_windows(corpus: Corpus, split: Split) -> tuple[SplitReport, list[Finding]]:
    """Report on plain text that is cut into windows."""
    examples = corpus.examples(split)
    counts, n = examples.counts, int(examples.lengths[0])
    side = Side("text", counts["target_tokens"], counts["target_unknown"], n, n, n, n, "")
    found = fast_findings(counts, examples.lengths)
    new = _characters(corpus, split) - _characters(corpus, "train") if split != "train" else set()
    if new:
        text = f"{len(new):,} of its characters do not stand in train: {listed(map(repr, sorted(new)), SHOWN)}"
        found.append(Finding("note", text))
    unseen = "".join(sorted(new))
    return SplitReport(split, counts["lines"], len(examples), sides=(side,), unseen=unseen), found


def _of_vocabulary(corpus: Corpus) -> list[Finding]:
    findings, words = [], corpus.vocabularies
    tables = (("text", words.source), ("target_text", words.target))
    for name, tokenizer in tables:
        config = getattr(corpus.config, name)
        if config is not None and config.size is not None and tokenizer.size < config.size:
            text = (
                f"the vocabulary has {tokenizer.size:,} tokens, not {name}.size={config.size}: the texts give no more"
            )
            findings.append(Finding("note", text))
    return findings


def _chunks(corpus: Corpus, split: Split) -> Iterator[list[Example]]:
    """Yield the examples of a split that have two sides, many at a time."""
    examples = (e for e in corpus.read(split) if e.source.strip() and (e.target is None or e.target.strip()))
    while some := list(islice(examples, CHUNK)):
        yield some


def _characters(corpus: Corpus, split: Split) -> set[str]:
    found: set[str] = set()
    for piece in corpus.stream(split):
        found.update(piece)
    return found


def _ordered(hashes: "array[int]") -> Hashes:
    ordered = np.frombuffer(hashes, np.int64) if hashes else np.zeros(0, np.int64)
    ordered.sort()  # in place, in the array's own memory
    return ordered


def _distinct(ordered: Hashes) -> int:
    return len(ordered) and 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _where(example: Example) -> str:
    return f"{example.path.name}, {example.counted} {example.number}"
