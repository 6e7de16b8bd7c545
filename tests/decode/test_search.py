"""Greedy decoding: stop rules, limits, batches."""

import pytest
import torch

from glassformer.config import DecodeConfig, preset
from glassformer.data.tasks import Reversal
from glassformer.decode.hypothesis import Hypothesis, Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.search import search
from glassformer.errors import ConfigError, DecodingError
from glassformer.model.transformer import Transformer
from glassformer.run import Run
from tests.router import router

START, END = 1, 2


def greedy(model: Transformer, sources: list[list[int]], limits: list[int], end_id: int = END) -> list[Hypothesis]:
    prompts = [Prompt(source, [START], limit) for source, limit in zip(sources, limits, strict=True)]
    return [row[0] for row in search([model], prompts, Rules(end_id), DecodeConfig(beam_size=1))]


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
    found = greedy(run.model, sources, limits)
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
    hypothesis = greedy(model, [[3, 4]], [70], end_id=12)[0]
    assert len(hypothesis.ids) == 70
    assert hypothesis.stopped == "limit"


def test_the_end_token_counts_as_one_of_the_limit(run: Run) -> None:
    source = run.tokenizer.encode("c a b")
    stops = [greedy(run.model, [source], [limit])[0].stopped for limit in (3, 4)]
    assert stops == ["limit", "end"]


def test_empty_sources_stay_empty_and_change_nothing(run: Run) -> None:
    source = run.tokenizer.encode("c a b e d")
    found = greedy(run.model, [[], source, []], [9, 9, 9])
    alone = greedy(run.model, [source], [9])[0]
    assert [hypothesis.stopped for hypothesis in found] == ["empty", "end", "empty"]
    assert found[1].ids == alone.ids
    assert greedy(run.model, [[]], [9])[0].ids == []
    assert greedy(run.model, [], []) == []


@pytest.mark.parametrize("limits", [[0, 9], [-1, 9]])
def test_a_limit_below_one(run: Run, limits: list[int]) -> None:
    with pytest.raises(DecodingError, match="leaves no room for a token: set a larger one"):
        greedy(run.model, [[3, 4], [5]], limits)
    with pytest.raises(ConfigError, match=r"decode.max_length=0 is not right"):
        run.steps("a b", decode={"max_length": 0})


def test_an_encoder_does_not_write() -> None:
    with pytest.raises(DecodingError, match="an encoder-only model does not write"):
        greedy(Transformer(router()), [[3]], [9])
