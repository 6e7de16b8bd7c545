"""How examples lie in a batch: what is read, what is asked for, and what is only padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config.data import DataConfig
from glassformer.data.batch import IGNORED, Batch, continuations, is_real, labelled, pad, pairs, unpad
from glassformer.data.tasks import NumberWords

I = IGNORED  # noqa: E741  the tables below are read at a glance
ROWS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6)


def target(batch: Batch) -> list[list[int]]:
    assert batch.target is not None
    return batch.target.tolist()


class TestPad:
    @given(ROWS, st.booleans())
    def test_unpad_is_its_inverse(self, rows: list[list[int]], left: bool) -> None:
        """Also for rows that hold the id of the padding."""
        ids, real = pad(rows, left=left)
        assert ids.shape == (len(rows), max(map(len, rows)))
        assert ids.dtype == torch.int64
        assert unpad(ids, real) == rows
        assert (real is None) == (len({len(row) for row in rows}) == 1)

    def test_right(self) -> None:
        ids, real = pad([[5, 6, 7], [8]])
        assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
        assert real is not None
        assert real.tolist() == [[True, True, True], [True, False, False]]

    def test_left(self) -> None:
        ids, real = pad([[5, 6, 7], [8], []], left=True)
        assert ids.tolist() == [[5, 6, 7], [0, 0, 8], [0, 0, 0]]
        assert real is not None
        assert real.tolist() == [[True, True, True], [False, False, True], [False, False, False]]

    def test_arrays_of_any_integers(self) -> None:
        ids, real = pad([np.array([65535], np.uint16), np.array([1, 2**31], np.uint32)])
        assert ids.tolist() == [[65535, 0], [1, 2**31]]
        assert unpad(ids, real) == [[65535], [1, 2**31]]

    def test_is_real(self) -> None:
        found = is_real(torch.tensor([0, 2]), 3)
        assert found is not None
        assert found.tolist() == [[False, False, False], [True, True, False]]
        assert is_real(torch.tensor([2, 2]), 2) is None
        assert is_real(torch.tensor([2, 2]), 3) is not None


class TestPairs:
    def test_the_decoder_reads_the_answer_shifted(self) -> None:
        batch = pairs([[5, 6], [7]], [[8], [9, 10, 11]], start=1, end=2)
        assert batch.source is not None
        assert batch.source_is_real is not None
        assert batch.source.tolist() == [[5, 6], [7, 0]]
        assert batch.source_is_real.tolist() == [[True, True], [True, False]]
        assert target(batch) == [[1, 8, 0, 0], [1, 9, 10, 11]]
        assert batch.labels.tolist() == [[8, 2, I, I], [9, 10, 11, 2]]
        assert (len(batch), batch.n_labels, batch.n_tokens, batch.n_columns) == (2, 6, 9, 4)

    def test_nothing_padded(self) -> None:
        batch = pairs([[5, 6]], [[8]], start=1, end=2)
        assert batch.source_is_real is None
        assert (batch.n_labels, batch.n_tokens, batch.n_columns) == (2, 4, 2)

    def test_an_empty_target_asks_for_the_end(self) -> None:
        batch = pairs([[5]], [[]], start=1, end=2)
        assert target(batch) == [[1]]
        assert batch.labels.tolist() == [[2]]

    @given(
        st.lists(
            st.tuples(st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(0, 9), max_size=5)),
            min_size=1,
            max_size=5,
        )
    )
    def test_counts(self, examples: list[tuple[list[int], list[int]]]) -> None:
        """Real tokens, whatever their ids: id 0 in a text is not padding."""
        sources, targets = zip(*examples, strict=True)
        batch = pairs(sources, targets, start=1, end=2)
        assert batch.n_labels == sum(len(row) + 1 for row in targets)
        assert batch.n_tokens == sum(map(len, sources)) + batch.n_labels
        assert batch.n_columns == max(len(row) for row in (*sources, *([0, *row] for row in targets)))


class TestContinuations:
    @pytest.mark.parametrize(
        ("start", "end", "read", "labels"),
        [
            (1, 2, [1, 5, 6, 7, 8], [I, I, 7, 8, 2]),
            (None, 2, [5, 6, 7, 8], [I, 7, 8, 2]),
            (1, None, [1, 5, 6, 7], [I, I, 7, 8]),
            (None, None, [5, 6, 7], [I, 7, 8]),
        ],
    )
    def test_only_the_answer_is_asked_for(
        self, start: int | None, end: int | None, read: list[int], labels: list[int]
    ) -> None:
        batch = continuations([[5, 6]], [[7, 8]], start=start, end=end)
        assert batch.source is None
        assert batch.source_is_real is None
        assert target(batch) == [read]
        assert batch.labels.tolist() == [labels]

    @pytest.mark.parametrize(
        ("start", "end", "read", "labels"),
        [
            (1, 2, [1, 7, 8], [7, 8, 2]),
            (None, 2, [7, 8], [8, 2]),  # nothing stands before the first token
            (1, None, [1, 7], [7, 8]),
            (None, None, [7], [8]),
        ],
    )
    def test_an_empty_prompt(self, start: int | None, end: int | None, read: list[int], labels: list[int]) -> None:
        batch = continuations([[]], [[7, 8]], start=start, end=end)
        assert target(batch) == [read]
        assert batch.labels.tolist() == [labels]

    def test_several_of_unlike_length(self) -> None:
        batch = continuations([[5, 6], [], [5]], [[7], [8, 9, 8], [0]], start=1, end=2)
        assert target(batch) == [[1, 5, 6, 7], [1, 8, 9, 8], [1, 5, 0, 0]]
        assert batch.labels.tolist() == [[I, I, 7, 2], [8, 9, 8, 2], [I, 0, 2, I]]
        assert batch.n_labels == 2 + 4 + 2
        assert batch.n_tokens == 4 + 4 + 3  # the prompts are read too
        assert batch.n_columns == 4

    def test_of_windows_every_token_is_read(self) -> None:
        batch = continuations([[], []], [[5, 6, 7], [8, 9]], start=None, end=None)
        assert target(batch) == [[5, 6], [8, 0]]
        assert batch.labels.tolist() == [[6, 7], [9, I]]
        assert batch.n_tokens == batch.n_labels == 3

    def test_nothing_at_all(self) -> None:
        batch = continuations([[]], [[]], start=None, end=2)
        assert batch.labels.shape == (1, 0)
        assert batch.n_tokens == batch.n_labels == batch.n_columns == 0

    def test_prompts_and_answers_belong_together(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            continuations([[5], [6]], [[7]], start=1, end=2)

    def test_the_seeds_example(self) -> None:
        """`4 2 7 =`: x has 8 tokens, y is x shifted by one, and only words and `<eos>` are asked for."""
        words = NumberWords(DataConfig(task="number-words")).tokenizer
        prompt, answer = words.encode("4 2 7 ="), words.encode("four hundred twenty seven")
        batch = continuations([prompt], [answer], start=words.start_id, end=words.end_id)
        assert words.tokens(target(batch)[0]) == ["4", "2", "7", "=", "four", "hundred", "twenty", "seven"]
        assert batch.labels[0, :3].tolist() == [I, I, I]
        assert words.tokens(batch.labels[0, 3:].tolist()) == ["four", "hundred", "twenty", "seven", "<eos>"]
        assert (batch.n_labels, batch.n_tokens, batch.n_columns) == (5, 8, 8)


class TestLabelled:
    def test_one_label_a_text(self) -> None:
        batch = labelled([[5, 6, 7], [8]], [1, 0])
        assert batch.source is not None
        assert batch.source_is_real is not None
        assert batch.source.tolist() == [[5, 6, 7], [8, 0, 0]]
        assert batch.source_is_real.tolist() == [[True] * 3, [True, False, False]]
        assert batch.target is None
        assert batch.labels.tolist() == [1, 0]
        assert batch.labels.dtype == torch.int64
        assert (len(batch), batch.n_labels, batch.n_tokens, batch.n_columns) == (2, 2, 4, 3)


class TestTo:
    @pytest.mark.parametrize(
        "batch",
        [
            pairs([[5, 6], [7]], [[8], [9]], start=1, end=2),
            continuations([[5]], [[6]], start=1, end=2),
            labelled([[5], [6]], [0, 1]),
        ],
        ids=["pairs", "continuations", "labelled"],
    )
    def test_every_tensor_moves(self, batch: Batch) -> None:
        moved = batch.to(torch.device("meta"))
        for name, tensor in vars(batch).items():
            other = getattr(moved, name)
            assert (other is None) == (tensor is None)
            if tensor is not None:
                assert tensor.device.type == "cpu"  # the batch itself stays
                assert other.device.type == "meta"
                assert other.shape == tensor.shape
                assert other.dtype == tensor.dtype
