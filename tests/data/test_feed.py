"""Steps of an epoch: their batches, where they begin again, and that nothing but the numbers decides them."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config.data import DataConfig
from glassformer.config.train import TrainConfig
from glassformer.data.batch import Batch, labelled
from glassformer.data.examples import Lengths, Windows
from glassformer.data.feed import DrawnFeed, ExampleFeed, Feed
from glassformer.data.store import Rows
from glassformer.data.tasks import Reversal
from glassformer.errors import ConfigError


class Numbered:
    """Examples of which each batch says which they are: as its labels."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths: Lengths = np.array(lengths, np.uint32)
        self.counts = Counter({"read": len(lengths) + 1})

    def __len__(self) -> int:
        return len(self.lengths)

    def of_epoch(self, seed: int, epoch: int) -> "Numbered":  # noqa: ARG002  the same in each
        return self

    def batch(self, rows: Sequence[int] | Lengths) -> Batch:
        return labelled([[7] * int(self.lengths[i]) for i in rows], [int(i) for i in rows])


EXAMPLES = Numbered(np.random.default_rng(3).integers(1, 20, 103).tolist())


def feed(**settings: Any) -> ExampleFeed:
    return ExampleFeed(EXAMPLES, TrainConfig(**settings))


def steps(some: Feed, epoch: int, *, skip: int = 0, most: int | None = None) -> list[list[list[int]]]:
    """Labels of each batch of each step."""
    return [[batch.labels.tolist() for batch in step] for step in islice(some.steps(epoch, skip=skip), most)]


SETTINGS: list[dict[str, Any]] = [
    {"batch_size": 10},
    {"batch_size": 10, "accumulate": 4},
    {"batch_tokens": 60},
    {"batch_tokens": 60, "accumulate": 3},
    {},
]


class TestExamples:
    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    def test_every_example_once_an_epoch(self, settings: dict[str, Any]) -> None:
        for epoch in (1, 2):
            found = steps(feed(**settings), epoch)
            assert sorted(row for step in found for batch in step for row in batch) == list(range(103))

    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    def test_how_many_steps(self, settings: dict[str, Any]) -> None:
        for epoch in (1, 2, 3):
            assert feed(**settings).n_steps(epoch) == len(steps(feed(**settings), epoch))

    def test_accumulate_groups_batches_and_the_last_step_has_the_rest(self) -> None:
        one_by_one = [step[0] for step in steps(feed(batch_size=10), 1)]
        assert sorted(map(len, one_by_one)) == [3] + [10] * 10
        grouped = steps(feed(batch_size=10, accumulate=4), 1)
        assert [len(step) for step in grouped] == [4, 4, 3]
        assert [batch for step in grouped for batch in step] == one_by_one

    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    def test_to_skip_is_to_drop_the_first_steps(self, settings: dict[str, Any]) -> None:
        for epoch in (1, 2):
            whole = steps(feed(**settings), epoch)
            for skip in range(len(whole) + 2):
                assert steps(feed(**settings), epoch, skip=skip) == whole[skip:]

    def test_it_goes_on_without_any_state(self) -> None:
        """One feed that has come far, and a new one, which is told where."""
        old, new = feed(batch_tokens=60, accumulate=2, seed=7), feed(batch_tokens=60, accumulate=2, seed=7)
        before = [*steps(old, 1), *steps(old, 2)]
        n = old.n_steps(1)
        assert steps(new, 2, skip=3) == before[n + 3 :]
        assert steps(new, 1, skip=1) == before[1:n]

    def test_epochs_and_seeds_differ(self) -> None:
        found = [steps(feed(batch_size=10, seed=seed), epoch) for seed in (0, 1) for epoch in (1, 2)]
        assert all(a != b for i, a in enumerate(found) for b in found[:i])
        assert steps(feed(batch_size=10), 1) == found[0]

    def test_without_a_size_64_examples(self) -> None:
        assert sorted(len(batch) for step in steps(feed(), 1) for batch in step) == [39, 64]

    def test_the_budget_holds(self) -> None:
        lengths = EXAMPLES.lengths
        found = [batch for step in steps(feed(batch_tokens=60), 1) for batch in step]
        assert all(len(batch) * lengths[batch].max() <= 60 for batch in found)
        assert any(len(batch) > 10 for batch in found)

    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    def test_the_heaviest_batch(self, settings: dict[str, Any]) -> None:
        own = feed(**settings)
        found = own.heaviest()[0]
        for epoch in (1, 2, 3):
            for step in own.steps(epoch):
                for batch in step:
                    assert len(batch) * batch.n_columns**2 <= len(found) * found.n_columns**2

    def test_what_it_says_of_itself(self) -> None:
        assert (feed().lengths is not None, feed().endless, feed().counts) == (True, False, {"read": 104})


class TestWindows:
    def windows(self, **settings: Any) -> ExampleFeed:
        text = Rows.of([list(range(1000))])
        return ExampleFeed(Windows(text, 16, counts=Counter()), TrainConfig(**settings))

    def test_each_epoch_cuts_elsewhere(self) -> None:
        begins = []
        for epoch in range(1, 9):
            batches = [batch for step in self.windows(batch_size=5).steps(epoch) for batch in step]
            begins.append(min(int(batch.target[:, 0].min()) for batch in batches if batch.target is not None))
            assert sum(batch.n_labels for batch in batches) == 999 - begins[-1]
            assert len(batches) == self.windows(batch_size=5).n_steps(epoch)
        assert len(set(begins)) > 4
        assert all(0 <= begin < 16 for begin in begins)

    def test_to_skip_is_to_drop_the_first_steps(self) -> None:
        whole = [step[0].labels.tolist() for step in self.windows(batch_size=5).steps(3)]
        assert [step[0].labels.tolist() for step in self.windows(batch_size=5).steps(3, skip=4)] == whole[4:]

    def test_the_seed_counts(self) -> None:
        def first(seed: int) -> list[int]:
            steps = self.windows(batch_size=100, seed=seed)
            return [
                min(batch.labels[batch.labels >= 0].min().item() for batch in next(steps.steps(e)))
                for e in (1, 2, 3, 4)
            ]

        assert first(0) == first(0) != first(1)


class TestDrawn:
    TASK = Reversal(DataConfig(task="reversal"))

    def feed(self, **settings: Any) -> DrawnFeed:
        return DrawnFeed(self.TASK, TrainConfig(**settings))

    def test_each_step_has_its_own(self) -> None:
        found = list(islice(self.feed(batch_size=4, seed=3).steps(1), 3))
        for number, step in enumerate(found, start=1):
            assert len(step) == 1
            assert torch.equal(step[0].labels, self.TASK.training_batch(4, seed=3, step=number).labels)

    def test_the_batches_of_a_step_differ(self) -> None:
        step = next(self.feed(batch_size=64, accumulate=3).steps(1))
        rows = [[tuple(row) for row in batch.labels.tolist()] for batch in step]
        assert [len(batch) for batch in rows] == [64] * 3
        assert rows[0] != rows[1] != rows[2] != rows[0]
        following = next(self.feed(batch_size=64, accumulate=3).steps(1, skip=1))
        assert all(batch.labels.tolist() != other.labels.tolist() for batch in step for other in following)

    def test_to_skip_is_to_drop_the_first_steps(self) -> None:
        whole = steps(self.feed(batch_size=4, accumulate=2), 1, most=8)
        for skip in range(5):
            assert steps(self.feed(batch_size=4, accumulate=2), 1, skip=skip, most=8 - skip) == whole[skip:]

    def test_the_heaviest_batch(self) -> None:
        (found,) = self.feed().heaviest()
        assert (len(found), found.n_columns) == (64, 9)  # 8 letters and the start token
        assert found.source is not None
        assert found.source.shape == (64, 8)
        assert found.source_is_real is None
        assert [len(batch) for batch in self.feed(batch_size=7).heaviest()] == [7]

    def test_what_it_says_of_itself(self) -> None:
        own = self.feed()
        assert (own.lengths, own.endless, own.counts) == (None, True, {})
        with pytest.raises(ConfigError, match="epoch 1 of a task that draws its examples has no end: set train"):
            own.n_steps(1)
