"""The writer: where the decoder looks, what a pair is, and how texts are put in batches."""

import math

import pytest
import torch

from glassformer.config import DecodeConfig
from glassformer.errors import DataError, DecodingError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies
from glassformer.writer import Writer
from tests.decode.models import CHAIN, LETTERS, bigram, small


def looking(looks: dict[str, str]) -> Writer:
    """A writer whose decoder, having read a token, looks at a certain letter of the source, each at another one.

    The memory's rows are the letters' unit vectors (6 numbers). LayerNorm makes of the token that was read 2.236 at its
    own place and -0.447 elsewhere; w_q moves the large one to the place of the letter it looks at. Divided by √6, the
    score of that letter is c · 2.683 / 2.449 above the others', and c is chosen to make that ln 3: 3 times the weight.
    """
    model = bigram(CHAIN, "encoder-decoder")
    assert model.encoder is not None
    assert model.decoder is not None
    layer = model.decoder.layers[-1]
    n = len(LETTERS)
    difference = (math.sqrt(n - 1) + 1 / math.sqrt(n - 1)) / math.sqrt(n)  # of the scores, at c = 1
    with torch.no_grad():
        model.encoder.embedding.tokens.weight.copy_(torch.eye(n))
        layer.cross_attention_residual.norm.weight.fill_(1.0)  # type: ignore[union-attr, operator]
        layer.cross_attention.w_k.weight.copy_(torch.eye(n))  # type: ignore[union-attr, operator]
        for token, letter in looks.items():
            row, column = LETTERS.index(letter), LETTERS.index(token)
            layer.cross_attention.w_q.weight[row, column] = math.log(3) / difference  # type: ignore[index, union-attr]
    return Writer([model], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())


def test_attention_and_alignment_by_hand() -> None:
    """The text is "a b" after "c b a": at <s> it looks at a, at a it looks at b. 3/(3 + 1 + 1) and 1/5."""
    writer = looking({"<s>": "a", "a": "b", "b": "c"})
    prompts = [writer.prompt("c b a"), writer.prompt("b"), writer.prompt(""), writer.prompt("a b a c")]
    results = [row[0] for row in writer.write(prompts)]
    assert [found.text for found in results] == ["a b", "a b", "", "a b"]
    rows = writer.attention(prompts, [found.ids for found in results])
    # the epsilon of the norm takes a little: 1e-4 of the score
    assert rows[0].tolist() == [pytest.approx([0.2, 0.2, 0.6], abs=1e-3), pytest.approx([0.2, 0.6, 0.2], abs=1e-3)]
    assert rows[1].tolist() == [[1.0], [1.0]]
    assert rows[2].tolist() == []
    assert rows[3][0].tolist() == pytest.approx([3 / 8, 1 / 8, 3 / 8, 1 / 8], abs=1e-3)  # two letters a
    links = writer.alignments(prompts, [found.ids for found in results])
    assert links[:3] == [[(2, 0), (1, 1)], [(0, 0), (0, 1)], []]


def test_a_decoder_has_no_source_to_look_at() -> None:
    writer = Writer([small("decoder", 6)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())
    with pytest.raises(DecodingError, match="a decoder alone has no source"):
        writer.attention([writer.prompt("a")], [[3]])


def test_the_attention_of_an_ensemble_is_the_mean() -> None:
    one, other = looking({"<s>": "a", "a": "b", "b": "c"}), looking({"<s>": "b", "a": "a", "b": "c"})
    both = Writer([*one.models, *other.models], Vocabularies.one(one.tokenizer), DecodeConfig())
    prompts = [both.prompt("c b a")]
    (rows,) = both.attention(prompts, [[3, 4]])
    assert rows[0].tolist() == pytest.approx([0.2, 0.4, 0.4], abs=1e-3)


class TestPair:
    """What is scored, and after what."""

    def test_of_an_encoder_decoder(self) -> None:
        writer = Writer([small(vocabulary=6)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())
        prompt, ids = writer.pair("a b", "c")
        assert (prompt.source, prompt.read, ids) == ([3, 4], [1], [5, 2])
        assert writer.pair("a b", "c", ended=False)[1] == [5]
        assert writer.pair("", "c")[1] == []
        assert writer.pair("a b", " ")[1] == []

    def test_of_a_decoder(self) -> None:
        writer = Writer([small("decoder", 6)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())
        prompt, ids = writer.pair("a b", "c")
        assert (prompt.source, prompt.read, ids) == (None, [1, 3, 4], [5, 2])
        prompt, ids = writer.pair(None, "a c", ended=False)
        assert (prompt.read, ids) == ([1], [3, 5])
        assert writer.pair(" ", "a c")[1] == []

    def test_what_does_not_fit_the_positions(self) -> None:
        positions = {"kind": "learned", "size": 4}
        writer = Writer(
            [small("decoder", 6, positions=positions)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig()
        )
        assert len(writer.pair("a b", "c")[1]) == 2  # <s> a b c are read
        with pytest.raises(DataError, match="the text has 5 tokens, but the model's learned positions end after 4"):
            writer.pair("a b", "c c")
        assert writer.score(*map(list, zip(writer.pair("a b", "c"), strict=True)))[0].tokens == ["c", "</s>"]


def test_steps_go_one_way() -> None:
    writer = Writer([bigram(CHAIN)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig(beam_size=2))
    with pytest.raises(DecodingError, match="steps go one way: set beam_size=1, or look at the record"):
        writer.steps(writer.prompt("a"))
    greedy = Writer([bigram(CHAIN)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())
    with pytest.raises(DecodingError, match="a record is kept of a beam"):
        greedy.record(greedy.prompt("a"))


def test_only_sources_are_cut() -> None:
    with pytest.raises(DecodingError, match="truncate cuts sources, but a decoder alone has none"):
        Writer([bigram(CHAIN)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig(), truncate=True)


def test_an_ensemble_ends_where_the_first_table_does() -> None:
    models = [small(vocabulary=6, positions={"kind": "learned", "size": size}) for size in (8, 12)]
    writer = Writer(models, Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig())
    assert writer.prompt("a b c").limit == 8
    with pytest.raises(DataError, match="the text has 9 tokens, but the model's learned positions end after 8"):
        writer.prompt("abcabcabc")


def test_perplexity() -> None:
    """Of a, b and the end: (0.5 · 0.4 · 0.45)^(-1/3)."""
    writer = Writer([bigram(CHAIN)], Vocabularies.one(Tokenizer.letters("abc")), DecodeConfig(length_penalty="average"))
    (found,) = writer.score(*map(list, zip(writer.pair(None, "a b"), strict=True)))
    assert found.perplexity == pytest.approx(0.09 ** (-1 / 3))
    assert found.score == pytest.approx(math.log(0.09) / 3)
    assert found.log_probability == pytest.approx(math.log(0.09))
