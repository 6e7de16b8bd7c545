"""What training reads, step by step: a pure function of the data, the seed and the number of the step."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from glassformer.config.train import TrainConfig
from glassformer.data.batch import Batch
from glassformer.data.examples import Examples, Lengths
from glassformer.data.plan import Rows, epoch_plan, heaviest
from glassformer.data.tasks import Reversal
from glassformer.errors import ConfigError

BATCH_SIZE = 64  # examples, where the configuration says nothing


class Feed(Protocol):
    """The batches of each step. An epoch without an end has number 1, and there is no other."""

    endless: bool
    lengths: Lengths | None  # of all examples; None: without end
    counts: Counter[str]  # of what was read and what was left out

    def steps(self, epoch: int, *, skip: int = 0) -> Iterator[list[Batch]]:
        """Yield the batches of each step of an epoch, after `skip` steps; the last step may have fewer."""
        ...

    def n_steps(self, epoch: int) -> int:
        """Return how many steps an epoch has."""
        ...

    def heaviest(self) -> Batch:
        """Return a batch that no other passes in tokens times rows."""
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

    def steps(self, epoch: int, *, skip: int = 0) -> Iterator[list[Batch]]:
        """Yield the batches of each step of an epoch, after `skip` steps; the last step may have fewer."""
        examples = self._examples.of_epoch(self._settings.seed, epoch)
        for step in islice(self._plan(examples, epoch), skip, None):
            yield [examples.batch(rows) for rows in step]

    def n_steps(self, epoch: int) -> int:
        """Return how many steps an epoch has."""
        return sum(1 for _ in self._plan(self._examples.of_epoch(self._settings.seed, epoch), epoch))

    def heaviest(self) -> Batch:
        """Return a batch that no other passes in tokens times rows."""
        return self._examples.batch(heaviest(self._examples.lengths, **self._size))

    def _plan(self, examples: Examples, epoch: int) -> Iterator[list[Rows]]:
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

    def steps(self, epoch: int, *, skip: int = 0) -> Iterator[list[Batch]]:  # noqa: ARG002  there is one
        """Yield the batches of each step, after `skip` steps."""
        step = skip
        while True:
            step += 1
            yield [self._draw(step, i) for i in range(self._settings.accumulate)]

    def n_steps(self, epoch: int) -> int:
        """Refuse, as there is no end.

        Raises:
            ConfigError: Always.

        """
        raise ConfigError(f"epoch {epoch} of a task that draws its examples has no end: set train.steps")

    def heaviest(self) -> Batch:
        """Return a batch that no other passes in tokens times rows."""
        return self._task.longest_batch(self._size)

    def _draw(self, step: int, i: int) -> Batch:
        return self._task.training_batch(self._size, seed=self._settings.seed, step=step, part=i)
