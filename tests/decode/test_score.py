"""Scoring given text: token by token, with the rules of a search, in batches that fit the memory."""

import math

import pytest
import torch

from glassformer.decode import score as scoring
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.score import perplexity, score
from glassformer.errors import DataError
from tests.decode.models import CHAIN, END, LETTERS, START, bigram, find, small, whole

KINDS = ("encoder-decoder", "decoder")


def prompts_of(kind: str) -> list[Prompt]:
    texts = [[3, 4, 0], [4], [0, 0, 3, 4, 4, 3], [3, 3]]
    if kind == "decoder":
        return [Prompt(None, [START, *text], 9) for text in texts]
    return [Prompt(text, [START], 9) for text in texts]


def test_by_hand() -> None:
    """a, b and the end after <s>: 0.5 · 0.4 · 0.45; without a and c, b alone can come first and after b."""
    ids = [LETTERS.index(token) for token in ("a", "b", "</s>")]
    prompt = Prompt(None, [START], 9)
    (found,) = score([bigram(CHAIN)], [prompt], [ids], Rules(END))
    assert found == pytest.approx([math.log(p) for p in (0.5, 0.4, 0.45)])
    (found,) = score([bigram(CHAIN)], [prompt], [[4, END]], Rules(END, forbidden=[3, 5]))
    assert found == pytest.approx([math.log(p) for p in (1.0, 0.45 / 0.5)], abs=1e-9)
    (found,) = score([bigram(CHAIN)], [prompt], [ids], Rules(END, forbidden=[3]))
    assert found[0] == -math.inf


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [1, 60, 10**9])
def test_it_is_what_the_search_added_up(kind: str, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of its batches, for one model and for two, with rules."""
    monkeypatch.setattr(scoring, "LARGEST", largest)
    models = [small(kind, 7), small(kind, 7, n_kv_heads=1)]
    rules = Rules(END, forbidden=[5], min_length=3, no_repeat_ngram=2)
    for some in (models[:1], models):
        found = [row for prompt in prompts_of(kind) for row in _found(some, prompt, rules)]
        prompts = [prompt for prompt in prompts_of(kind) for _ in range(3)]
        scores = score(some, prompts, [ids for ids, _ in found], rules)
        assert [sum(values) for values in scores] == pytest.approx([total for _, total in found], abs=1e-9)
        assert [len(values) for values in scores] == [len(ids) for ids, _ in found]


def _found(models: list[torch.nn.Module], prompt: Prompt, rules: Rules) -> list[tuple[tuple[int, ...], float]]:
    from glassformer.config import DecodeConfig
    from glassformer.decode.search import search

    (row,) = search(models, [prompt], rules, DecodeConfig(beam_size=3, n_best=3))  # type: ignore[arg-type]
    return [(whole(hypothesis), hypothesis.log_probability) for hypothesis in row]


def test_many_rows_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is lost between two batches, of which logits or rows decide the size."""
    monkeypatch.setattr(scoring, "LARGEST", 40)
    model = bigram(CHAIN)
    prompts, targets = [Prompt(None, [START], 9)] * 7, [[3, 4, END][: 1 + i % 3] for i in range(7)]
    expected = [[math.log(p) for p in (0.5, 0.4, 0.45)[: 1 + i % 3]] for i in range(7)]
    for batch_size in (1, 2, 64):
        found = score([model], prompts, targets, Rules(END), batch_size=batch_size)
        assert found == [pytest.approx(values) for values in expected]


def test_after_a_blank() -> None:
    for prompts in ([Prompt([], [START], 9)], [Prompt([3, 4], [START], 9), Prompt([], [START], 9)]):
        with pytest.raises(DataError, match="there is nothing before the text that is to be scored"):
            score([small()], prompts, [[3]] * len(prompts), Rules(END))


def test_perplexity_past_the_largest_number() -> None:
    assert perplexity(math.log(0.25) * 2, 2) == pytest.approx(4)
    assert perplexity(-1e6, 2) == perplexity(-math.inf, 2) == math.inf


def test_nothing_has_no_tokens() -> None:
    assert score([small("decoder")], [Prompt(None, [START], 9)] * 2, [[], [3]], Rules(END))[0] == []
    assert find(small(), []) == []
