"""Every decoding option, on a model whose probabilities stand in a table: what it writes with it and without.

The models are the chains of tests/decode/models.py; the numbers in the comments are products of their entries.
"""

import math

import pytest
import torch

from glassformer.config import Config, DecodeConfig, ModelConfig, with_decode
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules, top
from glassformer.decode.sample import Sampler
from glassformer.errors import ConfigError, DataError, DecodingError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies
from glassformer.writer import Writer
from tests.decode.models import BOUND, CHAIN, END, HASTY, LETTERS, ROUND, START, bigram, find, small, whole, written_by

GREEDY = "a b </s>: 0.0900"  # 0.5 · 0.4 · 0.45
A, B, C = 3, 4, 5


class TestEachOptionChangesTheText:
    """Fault 18: none is accepted and ignored."""

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [GREEDY]),
            # 0.4 · 0.45: the likelier sentence begins with the less likely token
            ({"beam_size": 2, "alpha": 0.0}, ["b </s>: 0.1800"]),
            ({"beam_size": 3, "n_best": 3, "alpha": 0.0}, ["b </s>: 0.1800", "a </s>: 0.1000", "a b </s>: 0.0900"]),
            # -1.7148 / 2 = -0.857 against -2.4079 / 3 = -0.803
            ({"beam_size": 2, "length_penalty": "average"}, ["a b </s>: 0.0900"]),
            ({"beam_size": 2, "length_penalty": "power", "alpha": 1.0}, ["a b </s>: 0.0900"]),
            ({"beam_size": 2, "length_penalty": "power", "alpha": 0.5}, ["b </s>: 0.1800"]),  # -1.213 against -1.390
            ({"beam_size": 2, "length_penalty": "none"}, ["b </s>: 0.1800"]),
            # -1.7148 / (7/6)^α against -2.4079 / (8/6)^α: even at α = 2.54
            ({"beam_size": 3, "max_length": 3, "alpha": 2.4}, ["b </s>: 0.1800"]),
            ({"beam_size": 3, "max_length": 3, "alpha": 2.7}, ["a b </s>: 0.0900"]),
            ({"max_length": 2}, ["a b: 0.2000"]),
            ({"extra_length": 0}, ["a: 0.5000"]),  # the source has one token
            ({"extra_length": 1}, ["a b: 0.2000"]),
            # the end is masked before the softmax: 0.5 · 0.4/0.8 · 0.3/0.55 · 0.4 · 0.45
            ({"min_length": 4}, ["a b a b </s>: 0.0245"]),
            ({"min_length": 3}, ["a b </s>: 0.1125"]),  # 0.5 · 0.4/0.8 · 0.45
            # 0.4 / 0.5 · 0.45 / 0.7
            ({"forbidden": ["a"]}, ["b </s>: 0.5143"]),
            ({"forbidden": ["a", "b"]}, ["c </s>: 1.0000"]),
            ({"prefix": "b"}, ["b </s>: 0.1800"]),
            ({"prefix": "c a"}, ["c a b </s>: 0.0108"]),  # 0.1 · 0.6 · 0.4 · 0.45
            ({"sample": True, "top_k": 1}, [GREEDY]),
            ({"sample": True, "top_p": 0.01}, [GREEDY]),
            ({"sample": True, "temperature": 0.01}, [GREEDY]),
        ],
    )
    def test_on_the_chain(self, settings: dict[str, object], expected: list[str]) -> None:
        assert written_by([CHAIN], **settings) == expected

    @pytest.mark.parametrize(
        ("n", "expected"),
        [
            (0, "a b a b a b: 0.1111"),  # 0.9 · 0.7 · 0.6 · 0.7 · 0.6 · 0.7, cut at six
            (3, "a b a b b a: 0.1191"),  # after a b a b no a: 0.9 · 0.7 · 0.6 · 0.7 · 0.3/0.4 · 0.6
            (2, "a b a c c a: 0.1134"),  # after a b a no b, after c c no c: 0.9 · 0.7 · 0.6 · 0.2/0.3 · 0.6 · 0.3/0.4
            (1, "a b </s>: 0.6300"),  # after a b only the end is new: 0.9 · 0.7 · 1
        ],
    )
    def test_no_repeat_ngram(self, n: int, expected: str) -> None:
        (found,) = written_by([ROUND], no_repeat_ngram=n, max_length=6)
        tokens = found.partition(":")[0].split()
        assert len({tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}) == len(tokens) - n + 1 or n == 0
        assert found == expected

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            # ln 0.6 / (6/6)² = -0.511 against ln 0.4 / (9/6)² = -0.407, which the search can only know at the end
            ({"beam_size": 2, "alpha": 2.0}, "a b c </s>: 0.4000"),
            ({"beam_size": 2, "alpha": 0.0}, "</s>: 0.6000"),
            ({"beam_size": 2, "alpha": -1.0}, "</s>: 0.6000"),
        ],
    )
    def test_the_search_waits_as_long_as_something_better_can_come(
        self, settings: dict[str, object], expected: str
    ) -> None:
        assert written_by([BOUND], **settings) == [expected]

    def test_with_a_penalty_that_falls_with_the_length(self) -> None:
        """ln 0.46 · 6/6 = -0.777 against ln 0.54 · 7/6 = -0.719; one token later it would be ln 0.54 · 8/6 = -0.822."""
        assert written_by([HASTY], beam_size=2, alpha=-1.0) == ["a </s>: 0.5400"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"prefix": "a b"}, "a b </s>: 0.0900"),
            # 0.5 · 0.4/0.8 · 0.45, as the end could not come after a either
            ({"prefix": "a b", "min_length": 3}, "a b </s>: 0.1125"),
            # 0.5 · 0.4/0.9 · 0.45/0.65: after a no a, after a b neither of them
            ({"prefix": "a b", "no_repeat_ngram": 1}, "a b </s>: 0.1538"),
        ],
    )
    def test_a_prefix_is_scored_by_the_rules(self, settings: dict[str, object], expected: str) -> None:
        assert written_by([CHAIN], **settings) == [expected]

    def test_ngrams_and_a_minimum_that_leave_nothing(self) -> None:
        """Each token may come once and the end not before the ninth: after four it has to."""
        (found,) = written_by([ROUND], no_repeat_ngram=1, min_length=9, max_length=12)
        tokens, probability = found.split(": ")
        assert len(tokens.split()) <= 7
        assert tokens.endswith("</s>")
        assert 0 < float(probability) <= 1

    def test_what_sampling_draws_depends_on_the_seed(self) -> None:
        drawn = [written_by([CHAIN], sample=True, seed=seed)[0] for seed in range(30)]
        assert len(set(drawn)) > 8
        assert drawn == [written_by([CHAIN], sample=True, seed=seed)[0] for seed in range(30)]

    def test_several_samples(self) -> None:
        found = written_by([CHAIN], sample=True, n_best=5, seed=1)
        assert len(found) == 5
        shares = [
            float(one.split(": ")[1]) for one in written_by([CHAIN], sample=True, n_best=5, length_penalty="none")
        ]
        assert shares == sorted(shares, reverse=True)
        assert len(set(shares)) > 1
        assert len(set(found)) > 2

    def test_every_field_of_the_configuration_is_tested_here(self) -> None:
        tested = {"beam_size", "n_best", "length_penalty", "alpha", "max_length", "extra_length", "min_length"}
        tested |= {"forbidden", "no_repeat_ngram", "sample", "temperature", "top_k", "top_p", "seed"}
        assert set(DecodeConfig.model_fields) == tested


class TestRefused:
    """What makes no sense together is said before anything is written."""

    CONFIG = Config(model=ModelConfig(source_vocabulary=9, target_vocabulary=9, n_encoder_layers=1, n_decoder_layers=1))

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"temperature": 0.5}, "decode: temperature belongs to sampling: set sample too"),
            ({"top_k": 5}, "decode: top_k belongs to sampling: set sample too"),
            ({"top_p": 0.5}, "decode: top_p belongs to sampling"),
            ({"seed": 5}, "decode: seed belongs to sampling"),
            (
                {"sample": True, "beam_size": 4},
                "decode: sample draws its tokens, which has no beam: set beam_size=1, not",
            ),
            ({"max_length": 4, "extra_length": 4}, "decode: max_length stands for a limit by extra_length: set one"),
            ({"n_best": 3}, "decode: n_best=3 results need a beam as wide, but beam_size=1: set both"),
            ({"length_penalty": "average", "alpha": 1.0}, "alpha belongs to the length penalties wu and power, not to"),
            ({"min_length": 9, "max_length": 8}, "decode: min_length=9 is more than max_length=8"),
            ({"beam_size": 0}, "decode.beam_size=0 is not right"),
            ({"top_p": 1.5, "sample": True}, "decode.top_p=1.5 is not right"),
            ({"temperature": 0.0, "sample": True}, "decode.temperature=0.0 is not right"),
            ({"length_penalty": "wo"}, "decode.length_penalty='wo' is not known; did you mean 'wu'?"),
            ({"beem_size": 2}, r"\[decode\] has no field 'beem_size'; did you mean 'beam_size'?"),
        ],
    )
    def test_settings(self, changes: dict[str, object], sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
            with_decode(self.CONFIG, changes)

    def test_what_cannot_go_on_beside_a_change_falls_away(self) -> None:
        beam = with_decode(self.CONFIG, {"beam_size": 4, "n_best": 3, "alpha": 1.0, "max_length": 9})
        drawn = with_decode(beam, {"sample": True, "top_k": 5, "temperature": 2.0})
        assert (drawn.decode.beam_size, drawn.decode.n_best, drawn.decode.top_k) == (1, 3, 5)
        assert with_decode(drawn, {"beam_size": 3}).decode == with_decode(beam, {"beam_size": 3}).decode
        assert with_decode(drawn, {"sample": False, "n_best": 1}).decode.top_k is None
        assert with_decode(beam, {"beam_size": 2}).decode.n_best == 1
        for unchanged in ({"beam_size": 4}, {"length_penalty": "wu"}, {"max_length": 9}):
            assert with_decode(beam, unchanged).decode == beam.decode
        assert with_decode(drawn, {"sample": True}).decode == drawn.decode
        assert with_decode(beam, {"length_penalty": "average"}).decode.alpha is None
        assert with_decode(beam, {"extra_length": 3}).decode.max_length is None
        assert with_decode(beam, {"n_best": 2, "seed": None}).decode == beam.decode.model_copy(update={"n_best": 2})

    def test_a_forbidden_token_that_does_not_exist(self) -> None:
        with pytest.raises(
            DataError, match=r"a forbidden token \(--forbid\): the vocabulary has no token '<pda>'; did you"
        ):
            written_by([CHAIN], forbidden=["<pda>"])

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"prefix": "a b", "forbidden": ["b"]}, "token 2 of the prefix, 'b', is one that may not be written"),
            ({"prefix": "a b a b", "no_repeat_ngram": 2}, "token 4 of the prefix, 'b'"),
            ({"prefix": "a b", "max_length": 2}, "a length limit of 2 leaves no room for a token after the 2 of the"),
        ],
    )
    def test_prefixes(self, settings: dict[str, object], sentence: str) -> None:
        with pytest.raises(DecodingError, match=sentence):
            written_by([CHAIN], **settings)


class TestRules:
    def test_what_is_left_sums_to_one(self) -> None:
        """Fault 19: masked before the softmax."""
        logits = torch.randn(4, 9)
        rules = Rules(END, forbidden=[5, 3], min_length=3, no_repeat_ngram=1)
        found = rules.log_probabilities(logits.clone(), [[], [4], [4, 6, 7], [0, 1, 4, 6, 7, 8]])
        assert found.exp().sum(-1) == pytest.approx(torch.ones(4))
        allowed = [{0, 1, 4, 6, 7, 8}, {0, 1, 6, 7, 8}, {0, 1, 2, 8}, {2}]
        for row, ids in enumerate(allowed):
            assert {i for i in range(9) if found[row, i] > -math.inf} == ids
            expected = logits[row, sorted(ids)].log_softmax(-1)
            assert torch.allclose(found[row, sorted(ids)], expected, atol=1e-6)

    def test_where_nothing_is_left_the_end_comes(self) -> None:
        """Even where the end is forbidden too: a search always has somewhere to go."""
        rules = Rules(END, forbidden=range(9))
        assert rules.log_probabilities(torch.randn(1, 9), [[]])[0, END] == 0
        assert written_by([CHAIN], forbidden=LETTERS) == ["</s>: 1.0000"]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_numbers_of_every_size(self, dtype: torch.dtype) -> None:
        found = Rules(END, forbidden=[3]).log_probabilities(torch.tensor([[6e4, 1.0, -6e4, 9.0]], dtype=dtype), [[]])
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert found[0, 0] == 0
        assert found[0, 3] == -math.inf

    def test_the_model_is_watched_undisturbed(self) -> None:
        """Logits are masked in place, but not those that somebody looks at."""
        from glassformer.inspect.trace import watch

        model = small("decoder", 9)
        with watch(model, "logits") as seen:
            find(model, Prompt(None, [START, 4], 1), rules=Rules(END, forbidden=[3]))
        assert torch.isfinite(seen["logits"].values).all()

    @pytest.mark.parametrize("n", [1, 5, 99, 100, 101, 250, 1234])
    def test_top_is_topk(self, n: int) -> None:
        values = torch.randn(7, n)
        for k in (1, 3, 8):
            if k <= n:
                found, places = top(values, k)
                expected = values.topk(k)
                assert torch.equal(found, expected.values)
                assert torch.equal(places, expected.indices)

    def test_top_of_what_is_forbidden(self) -> None:
        values = torch.full((2, 250), -math.inf)
        values[0, 249], values[1, 7] = 1.0, 2.0
        assert top(values, 1)[1].tolist() == [[249], [7]]
        assert sorted(set(top(values, 3)[1][0].tolist())) == sorted(top(values, 3)[1][0].tolist())


class TestSampler:
    ROW = torch.tensor([[0.05, 0.4, 0.3, 0.2, 0.05]]).log()

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [0.05, 0.4, 0.3, 0.2, 0.05]),
            ({"top_k": 2}, [0, 4 / 7, 3 / 7, 0, 0]),
            ({"top_p": 0.7}, [0, 4 / 7, 3 / 7, 0, 0]),  # the second token reaches 0.7 and is the last
            ({"top_p": 0.71}, [0, 4 / 9, 3 / 9, 2 / 9, 0]),  # the third one is needed
            ({"top_p": 0.4}, [0, 1, 0, 0, 0]),
            ({"top_k": 3, "top_p": 0.75}, [0, 4 / 7, 3 / 7, 0, 0]),  # 0.7 of the 0.9 that top_k leaves is 7/9
            ({"temperature": 0.5}, [0.25 / 29.5, 16 / 29.5, 9 / 29.5, 4 / 29.5, 0.25 / 29.5]),  # squares
            ({"temperature": 1e9}, [0.2] * 5),
        ],
    )
    def test_distribution(self, settings: dict[str, object], expected: list[float]) -> None:
        probabilities, tokens = Sampler(DecodeConfig(sample=True, **settings), [(0, 0)]).distribution(self.ROW)
        found = torch.zeros(5, dtype=torch.double).scatter(0, tokens[0], probabilities[0] / probabilities.sum())
        assert found.tolist() == pytest.approx(expected, abs=1e-7)

    def test_it_draws_by_it(self) -> None:
        n = 20_000
        config = DecodeConfig(sample=True, top_k=3)
        drawn = Sampler(config, [(i, 0) for i in range(n)])(self.ROW.expand(n, 5), range(n))
        shares = torch.bincount(drawn, minlength=5) / n
        assert shares.tolist() == pytest.approx([0, 4 / 9, 3 / 9, 2 / 9, 0], abs=0.015)

    def test_rows_are_drawn_by_their_own_numbers(self) -> None:
        """The same line gives the same text in whatever batch; two equal lines give two texts."""
        model = small("decoder", 9)
        prompts = [Prompt(None, [START, 4], 12, number=number) for number in (3, 8, 9, 4)]
        settings = {"sample": True, "seed": 5, "n_best": 2}
        together = find(model, prompts, **settings)
        assert [list(map(whole, find(model, prompt, **settings)[0])) for prompt in prompts] == [
            list(map(whole, row)) for row in together
        ]
        assert len({whole(hypothesis) for row in together for hypothesis in row}) >= 6


def test_an_ensemble_is_the_mean_of_probabilities() -> None:
    """By hand: the first token a has (0.5 + 0.1)/2, b (0.4 + 0.9)/2; after b the end has (0.45 + 0.25)/2, a (0.3 + 0.75)/2."""
    other = {
        "<s>": {"a": 0.1, "b": 0.9},
        "a": {"</s>": 1.0},
        "b": {"</s>": 0.25, "a": 0.75},
        "c": {"</s>": 1.0},
    }
    assert written_by([CHAIN]) == [GREEDY]
    assert written_by([other]) == ["b a </s>: 0.6750"]
    # b 0.65, a 0.525, end (0.2 + 1)/2
    assert written_by([CHAIN, other]) == ["b a </s>: 0.2047"]
    # a beam of 3: b </s> 0.65 · 0.35 = 0.2275; b a </s> 0.20475; a </s> 0.3 · 0.6 = 0.18
    expected = ["b </s>: 0.2275", "b a </s>: 0.2047", "a </s>: 0.1800"]
    assert written_by([CHAIN, other], beam_size=3, n_best=3, alpha=0.0) == expected


def test_streaming_is_for_what_is_settled_at_once() -> None:
    model, tokenizer = bigram(CHAIN), Tokenizer.letters("abc")
    writer = Writer([model], Vocabularies.one(tokenizer), DecodeConfig())
    assert list(writer.stream(writer.prompt("c"))) == ["a", " b"]
    beam = Writer([model], Vocabularies.one(tokenizer), DecodeConfig(beam_size=2))
    with pytest.raises(DecodingError, match="settle their text only at the end"):
        list(beam.stream(beam.prompt("c")))
