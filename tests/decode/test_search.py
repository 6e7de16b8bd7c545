"""Greedy decoding: stop rules, limits, batches."""

import pytest
import torch

from glassformer.config import preset
from glassformer.data.tasks import Reversal
from glassformer.decode.search import greedy
from glassformer.errors import DecodingError
from glassformer.model.transformer import Transformer
from glassformer.run import Run

START, END = 1, 2


def plain_greedy(model: Transformer, source: list[int], limit: int) -> tuple[list[int], float]:
    """The tutorial's loop: one sequence, no cache, no batch."""
    ids, score = [START], 0.0
    with torch.inference_mode():
        for _ in range(limit):
            log_probabilities = model(torch.tensor([source]), torch.tensor([ids]))[0, -1].log_softmax(-1)
            ids.append(int(log_probabilities.argmax()))
            score += float(log_probabilities.max())
            if ids[-1] == END:
                break
    return ids[1:], score


def test_batches_equal_the_plain_loop(run: Run) -> None:
    assert run.config.data is not None
    batch = Reversal(run.config.data).training_batch(20, seed=9, step=1)
    sources = [row[row > 0].tolist() for row in batch.source]
    limits = [3, 4, 20] * 6 + [1, 9]
    found = greedy(run.model, sources, start_id=START, end_id=END, limits=limits)
    stops = set()
    for source, limit, hypothesis in zip(sources, limits, found, strict=True):
        ids, score = plain_greedy(run.model, source, limit)
        ended = ids[-1] == END
        assert hypothesis.ids == (ids[:-1] if ended else ids)
        assert hypothesis.stopped == ("end" if ended else "limit")
        assert hypothesis.log_probability == pytest.approx(score, abs=1e-4)
        stops.add(hypothesis.stopped)
    assert stops == {"end", "limit"}


def test_an_untrained_model_runs_to_its_limit() -> None:
    torch.manual_seed(0)
    model = Transformer(preset("reversal")).eval()
    hypothesis = greedy(model, [[3, 4]], start_id=START, end_id=999, limits=[70])[0]
    assert len(hypothesis.ids) == 70
    assert hypothesis.stopped == "limit"


def test_the_end_token_counts_as_one_of_the_limit(run: Run) -> None:
    source = run.tokenizer.encode("c a b")
    stops = [greedy(run.model, [source], start_id=START, end_id=END, limits=[limit])[0].stopped for limit in (3, 4)]
    assert stops == ["limit", "end"]


def test_empty_sources_stay_empty_and_change_nothing(run: Run) -> None:
    source = run.tokenizer.encode("c a b e d")
    found = greedy(run.model, [[], source, []], start_id=START, end_id=END, limits=[9, 9, 9])
    alone = greedy(run.model, [source], start_id=START, end_id=END, limits=[9])[0]
    assert [hypothesis.stopped for hypothesis in found] == ["empty", "end", "empty"]
    assert found[1].ids == alone.ids
    assert greedy(run.model, [[]], start_id=START, end_id=END, limits=[9])[0].ids == []
    assert greedy(run.model, [], start_id=START, end_id=END, limits=[]) == []


@pytest.mark.parametrize("limits", [[0, 9], [-1, 9]])
def test_a_limit_below_one(run: Run, limits: list[int]) -> None:
    with pytest.raises(DecodingError, match="leaves no room for a token: the smallest is 1"):
        greedy(run.model, [[3, 4], [5]], start_id=START, end_id=END, limits=limits)
    with pytest.raises(DecodingError, match="leaves no room"):
        run.steps("a b", max_length=0)


def test_the_end_of_a_learned_table_is_a_limit() -> None:
    model = Transformer(preset("reversal", ["model.positions.kind=learned", "model.positions.size=12"])).eval()
    found = greedy(model, [[3, 4], [5] * 12], start_id=START, end_id=999, limits=[100, 5])
    assert [len(hypothesis.ids) for hypothesis in found] == [12, 5]
    assert [hypothesis.stopped for hypothesis in found] == ["limit", "limit"]


def test_models_without_both_halves_do_not_translate() -> None:
    with pytest.raises(DecodingError, match="a model of kind 'decoder' does not translate"):
        greedy(Transformer(preset("microscope")), [[3]], start_id=START, end_id=END, limits=[9])
