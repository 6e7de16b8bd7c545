"""The plan of an epoch: every example once, within the budget, like lengths together, and nothing but a function."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassformer.data.plan import POOL, epoch_plan, heaviest, in_order

Lengths = NDArray[np.uint32]
ONE_SIDE = st.lists(st.integers(1, 40), min_size=1, max_size=120).map(lambda n: np.array(n, np.uint32))
TWO_SIDES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120).map(
    lambda n: np.array(n, np.uint32)
)
LENGTHS = st.one_of(ONE_SIDE, TWO_SIDES)
SIZE = st.one_of(
    st.builds(lambda n: {"batch_size": n, "batch_tokens": None}, st.integers(1, 30)),
    st.builds(lambda n: {"batch_size": None, "batch_tokens": n}, st.integers(1, 200)),
)
Size = dict[str, int | None]


def longest(lengths: Lengths) -> Lengths:
    return lengths if lengths.ndim == 1 else lengths.max(axis=1)


def plan(lengths: Lengths, *, seed: int = 0, epoch: int = 1, **size: Any) -> list[list[int]]:
    size = {"batch_size": None, "batch_tokens": None} | size
    return [rows.tolist() for rows in epoch_plan(lengths, seed=seed, epoch=epoch, **size)]


def random_lengths(n: int, most: int = 100, sides: int | None = None) -> Lengths:
    shape = n if sides is None else (n, sides)
    return np.random.default_rng(5).integers(1, most + 1, shape).astype(np.uint32)


def padding(lengths: Lengths, batches: list[list[int]]) -> float:
    """Share of the places that hold nothing."""
    real = int(lengths.sum())
    return 1 - real / sum(len(rows) * int(lengths[rows].max()) for rows in batches)


class TestEpoch:
    @given(LENGTHS, SIZE, st.integers(0, 2**63 - 1), st.integers(1, 100))
    def test_every_example_once(self, lengths: Lengths, size: Size, seed: int, epoch: int) -> None:
        batches = plan(lengths, seed=seed, epoch=epoch, **size)
        assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
        assert all(batches)

    @given(LENGTHS, SIZE)
    def test_no_batch_is_too_large(self, lengths: Lengths, size: Size) -> None:
        for rows in plan(lengths, **size):
            if size["batch_tokens"] is None:
                assert len(rows) <= size["batch_size"]
            else:
                assert len(rows) == 1 or len(rows) * longest(lengths)[rows].max() <= size["batch_tokens"]

    @given(LENGTHS, st.integers(1, 200))
    def test_batches_are_as_large_as_they_may_be(self, lengths: Lengths, budget: int) -> None:
        """In one pool there is one order of lengths, and each batch has no room for the next one's first."""
        own = longest(lengths)
        ordered = sorted(plan(lengths, batch_tokens=budget), key=lambda rows: (own[rows].max(), own[rows].min()))
        if len(lengths) * int(own.max()) > 50 * budget:
            return  # perhaps several pools
        for rows, following in pairwise(ordered):
            assert (len(rows) + 1) * own[following].min() > budget or own[following].min() == own[rows].max()

    def test_sizes_are_exact(self) -> None:
        sizes = [len(rows) for rows in plan(random_lengths(1005), batch_size=10)]
        assert sorted(sizes) == [5] + [10] * 100
        assert plan(np.array([3, 3, 3], np.uint32), batch_tokens=9) != []
        assert sorted(map(len, plan(np.array([3] * 7, np.uint32), batch_tokens=9))) == [1, 3, 3]  # 9 is not too much
        assert sorted(map(len, plan(np.array([3] * 7, np.uint32), batch_tokens=8))) == [1, 2, 2, 2]

    def test_one_that_is_too_long_is_alone(self) -> None:
        batches = plan(np.array([2, 100, 2, 2, 90], np.uint32), batch_tokens=10)
        assert sorted(map(sorted, batches)) == [[0, 2, 3], [1], [4]]

    def test_more_tokens_than_four_bytes_count(self) -> None:
        lengths = np.full(4, 2**31, np.uint32)
        assert sorted(map(len, plan(lengths, batch_tokens=2**32))) == [2, 2]

    @given(LENGTHS, SIZE, st.integers(0, 2**63 - 1), st.integers(1, 100))
    def test_nothing_but_a_function(self, lengths: Lengths, size: Size, seed: int, epoch: int) -> None:
        first = plan(lengths, seed=seed, epoch=epoch, **size)
        np.random.default_rng(0).random()
        before = lengths.copy()
        assert plan(lengths, seed=seed, epoch=epoch, **size) == first
        assert np.array_equal(lengths, before)

    @pytest.mark.parametrize("size", [{"batch_size": 4}, {"batch_tokens": 400}])
    def test_other_epochs_and_seeds_have_other_orders(self, size: dict[str, int]) -> None:
        lengths = random_lengths(200)
        found = [plan(lengths, seed=seed, epoch=epoch, **size) for seed in (0, 1, 2) for epoch in (1, 2, 3)]
        assert all(a != b for i, a in enumerate(found) for b in found[:i])
        in_sets = [{frozenset(rows) for rows in batches} for batches in found]
        assert all(a != b for i, a in enumerate(in_sets) for b in in_sets[:i]), "other batches, not only their order"

    def test_equal_lengths_are_shuffled_too(self) -> None:
        lengths = np.full(100, 7, np.uint32)
        assert {frozenset(rows) for rows in plan(lengths, batch_size=5)} != {
            frozenset(rows) for rows in plan(lengths, epoch=2, batch_size=5)
        }

    @pytest.mark.parametrize("size", [{"batch_size": 16}, {"batch_tokens": 800}])
    def test_batches_come_in_random_order(self, size: dict[str, int]) -> None:
        """Not the short ones first: over an epoch the lengths of the batches have no trend."""
        lengths = random_lengths(16 * 300)
        means = np.array([lengths[rows].mean() for rows in plan(lengths, **size)])
        assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2
        assert np.corrcoef(means[:-1], means[1:])[0, 1] < 0.2

    @pytest.mark.parametrize("size", [{"batch_size": 16}, {"batch_tokens": 800}])
    def test_like_lengths_stand_together(self, size: dict[str, int]) -> None:
        lengths = random_lengths(16 * 300)
        shuffled = np.random.default_rng(0).permutation(len(lengths)).reshape(-1, 16).tolist()
        assert padding(lengths, shuffled) > 0.4
        assert padding(lengths, plan(lengths, **size)) < 0.04

    def test_both_sides_are_of_like_length(self) -> None:
        """Ties of the longest side are broken by the others: here the target alone tells the batches apart."""
        n = 400
        lengths = np.stack([np.full(n, 50), np.arange(n) % 40 + 1], axis=1).astype(np.uint32)
        for rows in plan(lengths, batch_size=10):
            assert np.ptp(lengths[rows, 1].astype(int)) == 0

    def test_the_longer_side_counts(self) -> None:
        lengths = np.array([[1, 9], [9, 1], [2, 2], [2, 1]], np.uint32)
        assert sorted(map(sorted, plan(lengths, batch_size=2))) == [[0, 1], [2, 3]]
        assert max(len(rows) for rows in plan(lengths, batch_tokens=8)) == 2  # 2 · 2 and 2 · 1; a 9 is alone

    def test_pools_bound_what_is_sorted_together(self) -> None:
        """The examples of a batch come from one stretch of the shuffle: batches of two epochs share few neighbours."""
        lengths = random_lengths(POOL * 3 * 4)
        first, pool = plan(lengths, batch_size=4), POOL
        parts = [sorted(row for rows in first[i : i + pool] for row in rows) for i in range(0, len(first), pool)]
        assert [len(part) for part in parts] == [400, 400, 400]
        for part in parts:  # each pool is a random third: it has short and long ones
            assert 40 < lengths[part].mean() < 60
            assert lengths[part].min() < 5
            assert lengths[part].max() > 95


class TestInOrder:
    @given(LENGTHS, SIZE)
    def test_all_of_them_the_shortest_first(self, lengths: Lengths, size: Size) -> None:
        batches = [rows.tolist() for rows in in_order(lengths, **size)]
        rows = [row for batch in batches for row in batch]
        assert sorted(rows) == list(range(len(lengths)))
        assert (np.diff(longest(lengths)[rows].astype(int)) >= 0).all()
        if size["batch_tokens"] is not None:
            assert all(len(b) == 1 or len(b) * longest(lengths)[b].max() <= size["batch_tokens"] for b in batches)
        else:
            assert all(len(b) == size["batch_size"] for b in batches[:-1])

    def test_equals_keep_their_order(self) -> None:
        assert [rows.tolist() for rows in in_order(np.array([2, 1, 2, 1], np.uint32), batch_size=3)] == [[1, 3, 0], [2]]


class TestHeaviest:
    @given(LENGTHS, SIZE)
    def test_no_batch_passes_it(self, lengths: Lengths, size: Size) -> None:
        def weight(rows: list[int]) -> int:
            return len(rows) * int(longest(lengths)[rows].max()) ** 2

        found = heaviest(lengths, **size).tolist()
        assert len(set(found)) == len(found) > 0
        most = max(weight(rows) for epoch in range(1, 6) for rows in plan(lengths, epoch=epoch, **size))
        assert weight(found) >= most
        if size["batch_tokens"] is None:
            assert len(found) <= size["batch_size"]
        else:
            assert len(found) == 1 or len(found) * longest(lengths)[found].max() <= size["batch_tokens"]

    def test_of_equal_longest_sides_those_with_the_longest_others(self) -> None:
        lengths = np.array([[9, 8], [9, 1], [9, 9], [1, 9], [2, 2]], np.uint32)
        assert heaviest(lengths, batch_size=1, batch_tokens=None).tolist() == [2]

    @pytest.mark.parametrize(
        ("lengths", "size", "expected"),
        [
            ([5, 1, 9, 9], {"batch_size": 2, "batch_tokens": None}, [2, 3]),
            ([5, 1, 9], {"batch_size": 8, "batch_tokens": None}, [0, 1, 2]),
            ([5, 1, 9, 5], {"batch_size": None, "batch_tokens": 18}, [2, 3]),
            ([5, 1, 30, 5], {"batch_size": None, "batch_tokens": 18}, [2]),  # longer than the budget: alone
            ([6, 5, 5], {"batch_size": None, "batch_tokens": 10}, [1, 2]),  # 2 · 25 is more than 1 · 36
        ],
    )
    def test_which(self, lengths: list[int], size: Size, expected: list[int]) -> None:
        assert sorted(heaviest(np.array(lengths, np.uint32), **size).tolist()) == sorted(expected)

    def test_a_line_of_3000_tokens(self) -> None:
        lengths = np.array([10] * 50 + [3000], np.uint32)
        assert 50 in heaviest(lengths, batch_size=None, batch_tokens=4096)
        assert len(heaviest(lengths, batch_size=64, batch_tokens=None)) == 51

    def test_squares_do_not_overflow(self) -> None:
        assert heaviest(np.array([70_000, 3], np.uint32), batch_size=1, batch_tokens=None).tolist() == [0]
