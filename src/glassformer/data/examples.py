"""Examples as token ids: how long each is, and how some of them become a batch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.config.model import ModelConfig
from glassformer.data.batch import Batch, continuations, labelled, pairs
from glassformer.data.store import Rows
from glassformer.errors import DataError

Lengths = NDArray[np.integer]
SIDES = ("source", "target")
LEFT_OUT = {
    "blank": "one side is blank",
    "too_long": "longer than data.max_length, or the model's positions, allow",
    "unknown_class": "of a class that the model does not have",
}
OTHER_COUNTS = {"read", "cut", "lines", *(f"{side}_{what}" for side in SIDES for what in ("tokens", "unknown"))}


class Examples(Protocol):
    """What batches are made of."""

    lengths: Lengths  # (N,) or (N, 2): tokens that the model reads of each, of its source and its target
    counts: Counter[str]  # of what was read and what was left out

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def of_epoch(self, seed: int, epoch: int) -> "Examples":
        """Return them as they are in one epoch, counted from 1."""
        ...

    def batch(self, rows: Sequence[int] | Lengths) -> Batch:
        """Lay out some of them."""
        ...


class Pairs:
    """A source and its target, a prompt and its answer, a text and its class; or lines for a decoder alone."""

    def __init__(
        self,
        model: ModelConfig,
        source: Rows | None,
        target: Rows,
        *,
        start: int | None,
        end: int,
        counts: Counter[str],
        max_length: int | None = None,
        truncate: bool = False,
    ) -> None:
        """Take the ids of both sides; leave out what is longer than the model, or `max_length`, allows.

        Args:
            model: What the examples are for.
            source: Sources, prompts or texts; None: lines that a decoder learns to write from nothing.
            target: Targets, answers, lines; of a classifier the number of the class.
            start: The id of the start token, if there is one.
            end: The id of the end token.
            counts: Of what was read; what is left out here is added.
            max_length: The most tokens of a side.
            truncate: Cut sources that are longer instead.

        """
        self._kind, self._source, self._target = model.kind, source, target
        self._start, self._end, self.counts = start, end, counts
        n_source = np.zeros(len(target), np.uint32) if source is None else source.lengths
        n_target = target.lengths
        room = model.longest if max_length is None else min(max_length, model.longest or max_length)
        self._cut = room if truncate else None
        if self._cut is not None:
            counts["cut"] = int((n_source > self._cut).sum())
            n_source = np.minimum(n_source, np.uint32(self._cut))
        lengths: Lengths
        limits: list[tuple[Lengths, int | None]]  # what may not be longer than what
        if self._kind == "encoder":
            lengths, limits = n_source, [(n_source, room)]
        elif self._kind == "encoder-decoder":  # the decoder reads the start token too
            lengths = np.stack([n_source, n_target + np.uint32(1)], axis=1)
            limits = [(n_source, room), (n_target, max_length), (lengths[:, 1], model.longest)]
        else:
            lengths = n_source + n_target + np.uint32(start is not None)
            limits = [(n_source, max_length), (n_target, max_length), (lengths, model.longest)]
        fits = [side <= most for side, most in limits if most is not None]
        # places among the rows, where some are left out: of a large corpus that is much memory
        self._rows = np.flatnonzero(np.logical_and.reduce(fits)) if fits else None
        self.lengths = lengths if self._rows is None else lengths[self._rows]
        counts["too_long"] = len(target) - len(self.lengths)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.lengths)

    def of_epoch(self, seed: int, epoch: int) -> "Pairs":  # noqa: ARG002  the same in each
        """Return them as they are."""
        return self

    def class_counts(self, n_classes: int) -> NDArray[np.int64]:
        """Return how many examples each class has."""
        return np.bincount(
            [int(self._target[i][0]) for i in self._places(range(len(self)))], minlength=n_classes
        ).astype(np.int64)

    def batch(self, rows: Sequence[int] | Lengths) -> Batch:
        """Lay out some of them."""
        own = self._places(rows)
        sources = [()] * len(own) if self._source is None else [self._source[i][: self._cut] for i in own]
        targets = [self._target[i] for i in own]
        if self._kind == "encoder":
            return labelled(sources, [int(target[0]) for target in targets])
        if self._kind == "decoder":
            return continuations(sources, targets, start=self._start, end=self._end)
        if self._start is None:
            raise DataError("the vocabulary has no start token, which an encoder–decoder reads first")
        return pairs(sources, targets, start=self._start, end=self._end)

    def _places(self, rows: Sequence[int] | Lengths) -> list[int]:
        """Return where these examples stand among all rows."""
        return [int(i) for i in (rows if self._rows is None else self._rows[rows])]


class Windows:
    """Plain text, cut into windows: each reads `window` tokens and is asked for the one after each of them.

    In each epoch the cuts lie elsewhere, and the windows of one epoch have no token in common.
    """

    def __init__(self, text: Rows, window: int, *, counts: Counter[str], first: int = 0) -> None:
        self._text, self._window, self._first, self.counts = text, window, first, counts
        n_labels = text.size - 1 - first  # the first token is read only
        n = -(-n_labels // window)
        if n_labels < 1:
            raise DataError(f"the text has {text.size} tokens: too few to learn from")
        self.lengths: Lengths = np.full(n, window, np.uint32)
        self.lengths[-1] = n_labels - (n - 1) * window  # the last window is used, not dropped

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.lengths)

    def of_epoch(self, seed: int, epoch: int) -> "Windows":
        """Return the windows of one epoch: they begin at a place of its own."""
        most = min(self._window, self._text.size - 1)
        first = int(np.random.default_rng([seed, epoch, 1]).integers(most))
        return Windows(self._text, self._window, counts=self.counts, first=first)

    def batch(self, rows: Sequence[int] | Lengths) -> Batch:
        """Lay out some of them."""
        begins = [self._first + int(i) * self._window for i in rows]
        texts = [self._text.flat(start, start + self._window + 1) for start in begins]
        return continuations([()] * len(texts), texts, start=None, end=None)


def what_is_left_out(counts: Mapping[str, int], *, held_out: float | None) -> str:
    """Say what was read and what was left out of it, and whose the rest is."""
    told = [f"{counts['read']:,} read"]
    told += [f"{n:,} left out: {LEFT_OUT.get(reason, reason)}" for reason, n in left_out(counts).items()]
    if held_out is not None:
        told.append(f"data.held_out={held_out} is the share of validation, and equal sources stay on one side")
    return "; ".join(told)


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many examples were left out, by reason: those of LEFT_OUT, and what a format skips (fuzzy, …)."""
    return {reason: n for reason, n in counts.items() if n and reason not in OTHER_COUNTS}
