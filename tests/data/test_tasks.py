"""The reversal task: its examples are right, and depend on the seed and the step alone."""

import torch

from glassformer.config import DataConfig
from glassformer.data.batch import IGNORED, pad, unpad
from glassformer.data.tasks import Reversal

TASK = Reversal(DataConfig(task="reversal"))


def test_every_example_is_a_reversal() -> None:
    batch = TASK.training_batch(500, seed=0, step=1)
    assert batch.source_is_real is not None
    seen = set()
    for row in range(len(batch)):
        letters = batch.source[row][batch.source_is_real[row]].tolist()
        n = len(letters)
        seen.add(n)
        assert all(3 <= letter <= 12 for letter in letters)
        assert batch.source[row, n:].tolist() == [0] * (8 - n)
        assert batch.target[row].tolist() == [1, *reversed(letters)] + [0] * (8 - n)
        assert batch.labels[row].tolist() == [*reversed(letters), 2] + [IGNORED] * (8 - n)
    assert seen == {3, 4, 5, 6, 7, 8}
    assert set(batch.source[batch.source_is_real].tolist()) == set(range(3, 13))


def test_examples_depend_on_seed_and_step_alone() -> None:
    first = TASK.training_batch(64, seed=3, step=7)
    TASK.training_batch(64, seed=3, step=8)
    torch.rand(3)
    assert torch.equal(first.source, TASK.training_batch(64, seed=3, step=7).source)
    for other in (TASK.training_batch(64, seed=3, step=8), TASK.training_batch(64, seed=4, step=7)):
        assert first.source.shape != other.source.shape or not torch.equal(first.source, other.source)


def test_the_test_set_is_the_same_for_every_run() -> None:
    assert torch.equal(TASK.test_batch().source, Reversal(DataConfig(task="reversal")).test_batch().source)
    assert len(TASK.test_batch()) == 500


def test_the_test_set_is_no_training_batch() -> None:
    test = TASK.test_batch().source
    for seed in range(5):
        for step in range(1, 6):
            training = TASK.training_batch(500, seed=seed, step=step).source
            assert (training[:, :3] == test[: len(training), :3]).all(dim=1).float().mean() < 0.1


def test_lengths_of_the_configuration() -> None:
    batch = Reversal(DataConfig(task="reversal", shortest=4, longest=4)).training_batch(10, seed=0, step=1)
    assert batch.source.shape == (10, 4)
    assert batch.source_is_real is None  # nothing is padded, and that is said


def test_unpad_is_the_inverse_of_pad() -> None:
    for rows in ([[5, 6], [7]], [[5, 6], [7, 8]]):
        assert unpad(*pad(rows)) == rows


def test_pad() -> None:
    ids, is_real = pad([[5, 6], [7]])
    assert ids.tolist() == [[5, 6], [7, 0]]
    assert is_real is not None
    assert is_real.tolist() == [[True, True], [True, False]]
    assert pad([[5, 6], [7, 8]])[1] is None
