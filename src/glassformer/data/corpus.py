"""The examples of a configuration: read from its files, cut into tokens, and kept on disk as ids."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassformer.config.data import Format, TextConfig
from glassformer.config.run import Config, with_sizes
from glassformer.config.train import TrainConfig
from glassformer.data.examples import Examples, Pairs, Windows, what_is_left_out
from glassformer.data.feed import DrawnFeed, ExampleFeed, Feed
from glassformer.data.readers import PIECE, Example, format_of, read_examples, whole_texts
from glassformer.data.store import Rows, Sources, kept, stored
from glassformer.data.tasks import Reversal, task_of
from glassformer.errors import ConfigError, DataError
from glassformer.text.learn import tokenizer_for
from glassformer.text.lines import one_line
from glassformer.text.tokenizer import TextError, Tokenizer
from glassformer.text.vocabularies import Vocabularies

Split = Literal["train", "validation", "test"]
CHUNK = 4096  # examples that are cut into tokens together
TOGETHER = 16  # pieces of a text: a million characters, about
MOST_CLASSES = 1000


class Corpus:
    """The files, or the task, of a configuration.

    `config` is the configuration with the sizes filled in that the data decide: of the vocabularies, and the number of
    classes.
    """

    def __init__(self, config: Config, vocabularies: Vocabularies | None = None) -> None:
        """Read the training files for their vocabularies, unless these are given.

        Raises:
            ConfigError: The data do not go with the model, or the vocabulary has another size than it.
            DataError: A file cannot be read.

        """
        if config.data is None:
            raise ConfigError("there is nothing to train on: the configuration has no [data] part")
        self.data, self._kind, self._sources = config.data, config.model.kind, Sources()
        self._task = None if config.data.task is None else task_of(config.data)
        self._check_task(config)
        self._format = None if config.data.task else _format(config)
        self.vocabularies = vocabularies or self._learn(config)
        source, target, n_classes = self.vocabularies.source, self.vocabularies.target, len(self.vocabularies.classes)
        if self._kind == "encoder-decoder" and target.start_id is None:
            raise ConfigError("the target's vocabulary has no start token, which an encoder–decoder reads first")
        self.config = with_sizes(config, source=source.size, target=target.size, classes=n_classes or None)

    def feed(self, settings: TrainConfig) -> Feed:
        """Return what training reads, step by step.

        Raises:
            ConfigError: The task has no such batches.
            DataError: A file cannot be read, or nothing is left of it.

        """
        if isinstance(self._task, Reversal):
            if settings.epochs is not None or settings.batch_tokens is not None or settings.snapshot_epochs:
                raise ConfigError(
                    "the task 'reversal' draws its examples without end: set steps and batch_size instead"
                )
            return DrawnFeed(self._task, settings)
        return ExampleFeed(self.examples("train"), settings)

    @cached_property
    def fingerprint(self) -> str:
        """A name of the examples to learn from and to validate on; of a task's, which never change, none."""
        splits: tuple[Split, ...] = ("train", "validation")
        return "" if self._task is not None else " ".join(self._cache_name(one) for one in splits if self.has(one))

    @property
    def is_plain_text(self) -> bool:
        """Whether the examples have one side only, which a decoder alone learns to write."""
        return self._format == "text"

    def class_counts(self) -> NDArray[np.int64]:
        """Return how many training examples each class has.

        Raises:
            ConfigError: The model is no classifier.

        """
        if not self.vocabularies.classes:
            raise ConfigError("class weights are for classifiers, which an encoder alone is")
        examples = self.examples("train")
        assert isinstance(examples, Pairs)
        return examples.class_counts(len(self.vocabularies.classes))

    def has(self, split: Split) -> bool:
        """Whether there are such examples."""
        is_held_out = split == "validation" and self.data.held_out is not None
        return self._task is not None or is_held_out or bool(self._paths(split))

    def examples(self, split: Split) -> Examples:
        """Return the examples of a split as ids, from the cache if they were made before.

        Raises:
            DataError: A file cannot be read, or nothing is left of it.

        """
        words, data = self.vocabularies, self.data
        if data.window is not None:
            rows, counts = stored(self._cache_name(split), ("text",), words.target.size, partial(self._made, split))
            return Windows(rows["text"], data.window, counts=counts)
        if data.task is not None:
            counts = Counter()
            parts = list(self._cut_pairs(self.read(split), counts))
            sides = [Rows.of([row for part in parts for row in part[side]]) for side in (0, 1)]
            rows = dict(zip(("source", "target"), sides, strict=True))
        else:
            largest = max(words.source.size, words.target.size)
            rows, counts = stored(self._cache_name(split), ("source", "target"), largest, partial(self._made, split))
        found = self._pairs(rows["source"], rows["target"], counts)
        if not len(found):
            told = what_is_left_out(counts, held_out=None if split == "test" else data.held_out)
            raise DataError(f"nothing is left of the {split} examples: {told}")
        return found

    def _pairs(self, source: Rows, target: Rows, counts: Counter[str]) -> Pairs:
        return Pairs(
            self.config.model,
            source,
            target,
            start=self.vocabularies.target.start_id,
            end=self.vocabularies.target.end_id,
            counts=counts,
            max_length=self.data.max_length,
            truncate=self.data.truncate,
        )

    def read(self, split: Split, counts: Counter[str] | None = None) -> Iterator[Example]:
        """Yield the examples of a split as text; what the format itself leaves out is counted.

        Raises:
            DataError: A file cannot be read, and where.

        """
        if self._task is not None:
            for number, (source, target) in enumerate(self._task.pairs(held_out=split != "train"), start=1):
                yield Example(source, target, Path(str(self.data.task)), number)
            return
        assert self._format is not None
        columns = {"source": self.data.source, "target": self.data.target}
        found = read_examples(self._paths(split), format=self._format, **columns, skipped=counts)
        share = self.data.held_out
        if share is None or split == "test":
            yield from found
        else:
            yield from (example for example in found if _is_held_out(example.source, share) == (split == "validation"))

    def texts(
        self, split: Split, most: int | None = None, *, only_learnable: bool = False
    ) -> tuple[list[str], list[list[str]]]:
        """Return sources and their references, or texts and their classes; blank ones are left out.

        Lines of one source and different targets are one source with several references; a classifier's are not.
        References are what a file of lines can hold: a newline in one becomes a blank.

        Args:
            split: Which examples.
            most: So many sources, drawn from all of them, always the same; None: all.
            only_learnable: Leave out what the examples for the loss leave out, such as what is too long.

        """
        examples = [e for e in self.read(split) if e.source.strip() and (e.target or "").strip()]
        rows = [[example] for example in examples] if self._kind == "encoder" else _by_source(examples)
        if most is not None and most < len(rows):  # the first ones may all be of one kind
            drawn = np.random.default_rng(0).choice(len(rows), most, replace=False)
            rows = [rows[i] for i in sorted(drawn)]
        if only_learnable:
            rows = [kept for row in rows if (kept := [example for example in row if self._is_learnable(example)])]
        targets = [list(dict.fromkeys(one_line(example.target or "") for example in row)) for row in rows]
        if self._kind == "encoder":  # the name of a class has no blanks around it
            targets = [[target.strip() for target in row] for row in targets]
        return [row[0].source for row in rows], targets

    def _is_learnable(self, example: Example) -> bool:
        sources, targets = next(self._cut_pairs([example], Counter()))
        return bool(targets) and len(self._pairs(Rows.of(sources), Rows.of(targets), Counter())) == 1

    def _check_task(self, config: Config) -> None:
        """Refuse a model that is not of the task's kind."""
        if self._task is not None and config.model.kind != self._task.kind:
            raise ConfigError(
                f"the task {self.data.task!r} is for a model of kind={self._task.kind!r}, not {config.model.kind!r}"
            )

    def _paths(self, split: Split) -> list[Path]:
        of_train = split == "validation" and self.data.held_out is not None
        return [Path(self.data.folder) / name for name in (self.data.train if of_train else getattr(self.data, split))]

    def _learn(self, config: Config) -> Vocabularies:
        """Make the vocabularies from the training examples, and from nothing else."""
        if self._task is not None:
            return Vocabularies.one(self._task.tokenizer)
        assert config.text is not None  # the configuration has checked it
        if config.model.kind == "encoder":
            return Vocabularies.one(self._tokenizer(config.text, "source"), self._classes())
        if config.target_text is not None:
            return Vocabularies(self._tokenizer(config.text, "source"), self._tokenizer(config.target_text, "target"))
        return Vocabularies.one(self._tokenizer(config.text, "text" if self.data.window else "both"))

    def _tokenizer(self, config: TextConfig, what: Literal["source", "target", "both", "text"]) -> Tokenizer:
        """Return a vocabulary, from the cache if it was learnt before."""
        start = what != "text" and self._kind != "encoder"
        texts = {
            "source": lambda: (example.source for example in self.read("train")),
            "target": lambda: (example.target or "" for example in self.read("train")),
            "both": lambda: _both_sides(self.read("train")),
            "text": lambda: self.stream("train"),
        }[what]
        if config.file is not None or config.kind == "bytes":
            return tokenizer_for(config, texts, start=start)
        side = f"pieces of {PIECE}" if what == "text" else what
        how = (self._format, self.data.source, self.data.target, self.data.held_out, side, start)
        name = self._sources.name(self._paths("train"), repr(how), config.model_dump_json())

        def made() -> str:
            learnt = tokenizer_for(config, texts, start=start)
            self._sources.check(self._paths("train"))
            return learnt.json

        return Tokenizer.load(kept(f"{name}.json", made))

    def _classes(self) -> tuple[str, ...]:
        names = sorted({(example.target or "").strip() for example in self.read("train")} - {""})
        if not 2 <= len(names) <= MOST_CLASSES:
            raise DataError(
                f"the training examples have {len(names)} different classes, but a classifier has 2 to {MOST_CLASSES}: "
                "is data.target the column of the classes?"
            )
        bad = next((name for name in names if not name.isprintable()), None)
        if bad is not None:
            raise DataError(f"the class {bad!r} is not one printable line")
        return tuple(names)

    def stream(self, split: Split) -> Iterator[str]:
        """Yield the plain text of a split, in pieces that are cut into tokens each."""
        yield from chain.from_iterable(self._texts_of_stream(split))

    def _texts_of_stream(self, split: Split) -> Iterator[Iterator[str]]:
        """Yield the text of each file, in pieces; with held_out, what this side has of it, if anything."""
        held_out = None if split == "test" else self.data.held_out
        return whole_texts(self._paths(split), held_out, is_held_out=split == "validation")

    def _made(self, split: Split, counts: Counter[str]) -> Iterator[list[list[list[int]]]]:
        """Yield the ids of a split, to be kept if the files are still those that named them."""
        if self.data.window is None:
            yield from self._cut_pairs(self.read(split, counts), counts)
        else:
            yield from self._cut_stream(split, counts)
        self._sources.check(self._paths(split))

    def _cut_stream(self, split: Split, counts: Counter[str]) -> Iterator[list[list[list[int]]]]:
        """Yield the ids of a whole text; between two files stands an end token."""
        tokenizer = self.vocabularies.target
        for number, text in enumerate(self._texts_of_stream(split)):
            if number:
                yield [[[tokenizer.end_id]]]
            before = ""
            while chunk := list(islice(text, TOGETHER)):
                try:
                    rows = tokenizer.encode_pieces(chunk, before)
                except TextError:
                    self._refuse_line("".join(chunk), split, counts["lines"])
                    raise
                before = chunk[-1]
                counts["lines"] += sum(piece.count("\n") for piece in chunk)
                _count_unknown(counts, "target", rows, tokenizer)
                yield [rows]
            counts["lines"] += bool(before) and not before.endswith("\n")

    def _refuse_line(self, text: str, split: Split, lines: int) -> None:
        """Say which line of a text, after so many others, the vocabulary cannot read."""
        try:
            self.vocabularies.target.encode_batch(list(StringIO(text)))
        except TextError as error:
            number = lines + error.index + 1
            raise DataError(f"line {number} of the {split} text: {error.reason}") from None

    def _cut_pairs(self, examples: Iterable[Example], counts: Counter[str]) -> Iterator[list[list[list[int]]]]:
        """Yield the ids of both sides; examples with a blank side are left out and counted."""
        examples = iter(examples)
        while chunk := list(islice(examples, CHUNK)):
            counts["read"] += len(chunk)
            kept = [e for e in chunk if e.source.strip() and (e.target is None or e.target.strip())]
            sources = self._ids(kept, "source", counts)
            targets = self._class_ids(kept, counts) if self._kind == "encoder" else self._ids(kept, "target", counts)
            if self._format == "text":  # a decoder's lines: nothing stands before them
                sources, targets = [[] for _ in kept], sources
            pairs = [
                pair for pair in zip(sources, targets, strict=True) if pair[1] and (pair[0] or self._format == "text")
            ]
            counts["blank"] += len(chunk) - len(pairs)
            yield [[source for source, _ in pairs], [target for _, target in pairs]]

    def _ids(
        self, examples: Sequence[Example], side: Literal["source", "target"], counts: Counter[str]
    ) -> list[list[int]]:
        tokenizer: Tokenizer = getattr(self.vocabularies, side)
        texts = [getattr(example, side) or "" for example in examples]
        try:
            rows = tokenizer.encode_batch(texts)
        except DataError:
            for example, text in zip(examples, texts, strict=True):
                try:
                    tokenizer.encode(text)
                except DataError as error:
                    raise DataError(f"{example.where}: {error}") from None
            raise
        _count_unknown(counts, side, rows, tokenizer)
        is_read = side == "source" and self._kind != "decoder"
        return [tokenizer.framed(row) if row else row for row in rows] if is_read else rows

    def _class_ids(self, examples: Sequence[Example], counts: Counter[str]) -> list[list[int]]:
        """Return the number of each one's class; none for a class that the training examples do not have."""
        places = {name: i for i, name in enumerate(self.vocabularies.classes)}
        found = [places.get((example.target or "").strip()) for example in examples]
        counts["unknown_class"] += found.count(None)
        counts["blank"] -= found.count(None)  # they are counted where they belong
        return [[] if place is None else [place] for place in found]

    def _cache_name(self, split: Split) -> str:
        """Name the ids of a split by all that they depend on."""
        words, data = self.vocabularies, self.data
        held_out = None if data.held_out is None or split == "test" else (split, data.held_out)
        cut = data.window is None or PIECE
        how = (self._format, data.source, data.target, held_out, self._kind == "encoder", cut)
        others = repr(how), repr(words.classes), words.source.json, words.target.json
        return self._sources.name(self._paths(split), *others)


def _format(config: Config) -> Format:
    """Return how the files are read, once it is sure that this goes with the model."""
    data = config.data
    assert data is not None
    model = config.model
    names = (*data.train, *data.validation, *data.test)
    found = data.format or format_of([Path(name) for name in names], kind=model.kind)
    if found == "text" and model.kind != "decoder":
        raise ConfigError(f"plain text is for a decoder alone; a model of kind={model.kind!r} learns from pairs")
    if data.window is not None and found != "text":
        raise ConfigError(f"windows are cut from plain text, not from files of the format {found!r}")
    if model.kind == "encoder" and (model.classifier is None or model.classifier.pooling == "none"):
        raise ConfigError("an encoder alone learns to classify texts: it needs [model.classifier] with a pooling")
    return found


def _is_held_out(source: str, share: float) -> bool:
    """Pick a share of all sources, by their text alone: the same one always falls on the same side."""
    digest = hashlib.blake2b(source.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _by_source(examples: Sequence[Example]) -> list[list[Example]]:
    """Put the examples of one source together where their targets differ; equal ones stay apart, as they came."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.source, []).append(example)
    differ = {source for source, row in rows.items() if len({example.target for example in row}) > 1}
    first = {source: row[0] for source, row in rows.items()}
    return [
        rows[example.source] if example.source in differ else [example]
        for example in examples
        if example.source not in differ or example is first[example.source]
    ]


def _both_sides(examples: Iterable[Example]) -> Iterator[str]:
    for example in examples:
        yield example.source
        if example.target is not None:
            yield example.target


def _count_unknown(counts: Counter[str], side: str, rows: Sequence[Sequence[int]], tokenizer: Tokenizer) -> None:
    counts[f"{side}_tokens"] += sum(map(len, rows))
    if tokenizer.unknown_id is not None:
        counts[f"{side}_unknown"] += sum(row.count(tokenizer.unknown_id) for row in rows)
