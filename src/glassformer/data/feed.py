"""What training reads, step by step: a pure function of the data, the seed and the number of the step."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count as countup
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np

from glassformer.config.train import TrainConfig
from glassformer.data.batch import Batch
from glassformer.data.examples import Examples, Lengths
from glassformer.data.plan import Indices, epoch_plan, heaviest
from glassformer.data.tasks import Reversal
from glassformer.errors import ConfigError

BATCH_SIZE = 64  # examples, where the configuration says nothing
T = TypeVar("T")


class Feed(Protocol):
    """The batches of each step. An epoch without an end has number 1, and there is no other."""

    endless: bool
    lengths: Lengths | None  # of all examples; None: without end
    counts: Counter[str]  # of what was read and what was left out

    def steps(self, epoch: int, *, skip: int = 0, rank: int = 0, count: int = 1) -> Iterator[list[Batch]]:
        """Yield the batches of each step of an epoch, after `skip` steps; the last step may have fewer.

        Of `count` processes each gets its own: as many as the others, and where there are none left, silent ones.
        """
        ...

    def n_steps(self, epoch: int) -> int:
        """Return how many steps an epoch has."""
        ...

    def heaviest(self) -> list[Batch]:
        """Return the batches that need the most memory: first that of the most tokens, by the longer side."""
        ...


class ExampleFeed:
    """Every example once an epoch, those of like length together."""

    endless = False

    def __init__(self, examples: Examples, settings: TrainConfig) -> None:
        self._examples, self._settings = examples, settings
        self.lengths: Lengths | None = examples.lengths
        self.counts = examples.counts
        self._size = {"batch_size": settings.batch_size, "batch_tokens": settings.batch_tokens}
        if settings.batch_tokens is None:
            self._size["batch_size"] = settings.batch_size or BATCH_SIZE

    def steps(self, epoch: int, *, skip: int = 0, rank: int = 0, count: int = 1) -> Iterator[list[Batch]]:
        """Yield the batches of each step of an epoch, after `skip` steps; the last step may have fewer."""
        examples = self._examples.of_epoch(self._settings.seed, epoch)
        for step in islice(self._plan(examples, epoch), skip, None):
            yield _dealt(step, examples.batch, rank, count)

    def n_steps(self, epoch: int) -> int:
        """Return how many steps an epoch has."""
        return sum(1 for _ in self._plan(self._examples.of_epoch(self._settings.seed, epoch), epoch))

    def heaviest(self) -> list[Batch]:
        """Return the batches that need the most memory: first that of the most tokens, by the longer side.

        Then, if it is another one, that of the most target tokens, each of which has a row of logits.
        """
        lengths = self._examples.lengths
        found = [heaviest(lengths, **self._size)]
        if lengths.ndim > 1:
            found.append(heaviest(lengths, **self._size, side=1))
            if np.array_equal(found[0], found[1]):
                found.pop()
        return [self._examples.batch(rows) for rows in found]

    def _plan(self, examples: Examples, epoch: int) -> Iterator[list[Indices]]:
        batches = epoch_plan(examples.lengths, seed=self._settings.seed, epoch=epoch, **self._size)
        while step := list(islice(batches, self._settings.accumulate)):
            yield step


class DrawnFeed:
    """Examples that a task draws: each step has its own, whatever came before, without end."""

    endless = True
    lengths: Lengths | None = None

    def __init__(self, task: Reversal, settings: TrainConfig) -> None:
        self._task, self._settings = task, settings
        self._size, self.counts = settings.batch_size or BATCH_SIZE, Counter[str]()

    def steps(
        self,
        epoch: int,  # noqa: ARG002  there is one
        *,
        skip: int = 0,
        rank: int = 0,
        count: int = 1,
    ) -> Iterator[list[Batch]]:
        """Yield the batches of each step, after `skip` steps."""
        for step in countup(skip + 1):
            yield _dealt(range(self._settings.accumulate), partial(self._draw, step), rank, count)

    def n_steps(self, epoch: int) -> int:
        """Refuse, as there is no end.

        Raises:
            ConfigError: Always.

        """
        raise ConfigError(f"epoch {epoch} of a task that draws its examples has no end: set train.steps")

    def heaviest(self) -> list[Batch]:
        """Return the batch that needs the most memory."""
        return [self._task.longest_batch(self._size)]

    def _draw(self, step: int, i: int) -> Batch:
        return self._task.training_batch(self._size, seed=self._settings.seed, step=step, part=i)


def _dealt(step: Sequence[T], batch: Callable[[T], Batch], rank: int, count: int) -> list[Batch]:
    """Return the batches of one of `count` processes: every count-th of a step, from its own place on."""
    places = range(rank, -(-len(step) // count) * count, count)
    return [batch(step[place]) if place < len(step) else batch(step[0]).silent() for place in places]
