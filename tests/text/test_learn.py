"""Vocabularies that are learnt: their order and limits, round trips, and what is spelt like a special token."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config.data import TextConfig
from glassformer.errors import CheckpointError, DataError
from glassformer.text.learn import learn, tokenizer_for
from glassformer.text.tokenizer import Tokenizer

ALL = {"letters": {}, "words": {}, "bytes": {}, "bpe": {"size": 300}}
STRANGE = "aé😀\u2028\u0085\u00a0\u3000\t\n\r\x1c</s>ＡＢ"
TEXTS = ["the cat sat on the mat", "the rat </s> <pad> <s> <unk> sat", "", STRANGE * 2]


def of(kind: str, texts: list[str] = TEXTS, *, start: bool = True, **fields: Any) -> Tokenizer:
    return learn(texts, TextConfig(kind=kind, **(ALL[kind] | fields)), start=start)


def saved(tokenizer: Tokenizer, path: Path) -> Tokenizer:
    tokenizer.save(path / "tokenizer.json")
    return Tokenizer.load(path / "tokenizer.json")


class TestOrder:
    def test_letters_by_frequency_then_code_point(self) -> None:
        tokens = of("letters", ["bba a", "c\nc"])
        assert tokens.tokens(range(tokens.size)) == ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c", "\n", " "]

    def test_words_by_frequency_then_code_point(self) -> None:
        tokens = of("words", ["b b a", "c\u2028a <s> </s> <pad> <unk>"])
        assert tokens.tokens(range(tokens.size)) == ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c"]

    @pytest.mark.parametrize("kind", ALL)
    def test_special_tokens_stand_first(self, kind: str) -> None:
        unknown = ["<unk>"] if kind in ("letters", "words") else []
        with_start, without = of(kind), of(kind, start=False)
        assert with_start.tokens(range(3 + len(unknown))) == ["<pad>", "<s>", "</s>", *unknown]
        assert without.tokens(range(2 + len(unknown))) == ["<pad>", "</s>", *unknown]
        assert (with_start.start_id, with_start.end_id) == (1, 2)
        assert (without.start_id, without.end_id) == (None, 1)
        assert with_start.unknown_id == (3 if unknown else None)
        assert with_start.size == without.size + (kind != "bpe")  # of byte pairs there are as many as were asked for


class TestLimits:
    @pytest.mark.parametrize("kind", ["letters", "words"])
    def test_size_counts_special_tokens(self, kind: str) -> None:
        tokens = of(kind, ["a a a b b c d e f g h i"], size=8)
        assert tokens.size == 8
        assert tokens.tokens([4, 5]) == (["a", "b"] if kind == "words" else [" ", "a"])
        assert tokens.encode("h" if kind == "letters" else "i") == [3]

    @pytest.mark.parametrize("kind", ["letters", "words"])
    def test_rare_ones_are_unknown(self, kind: str) -> None:
        tokens = of(kind, ["a b a", "b c"], min_count=2)
        assert tokens.encode("c") == [3]
        assert 3 not in tokens.encode("a b")

    def test_byte_pairs(self) -> None:
        assert of("bpe", ["the the the then they"], size=264).size == 264
        small = of("bpe", ["ab"], size=5000)
        assert small.size == 3 + 256 + 1  # a text that gives fewer
        assert small.tokens([small.size - 1]) == ["ab"]
        assert of("bpe", ["ab ab ab cd"], min_count=3, size=500).encode("cd") != [of("bpe", ["cd"]).size]
        assert len(of("bpe", ["ab ab ab cd"], min_count=3, size=500).encode("cdab")) == 3

    def test_learning_is_deterministic(self) -> None:
        texts = [f"{'abc' * (i % 7)} {i} {'xyz' * (i % 5)}" for i in range(500)]
        assert of("bpe", texts, size=600) == of("bpe", texts, size=600)

    @pytest.mark.parametrize("kind", ["letters", "words", "bpe"])
    @pytest.mark.parametrize("texts", [[], ["", " \t", "\u3000"]])
    def test_no_text(self, kind: str, texts: list[str]) -> None:
        with pytest.raises(
            DataError, match="there is no text to learn a vocabulary from: all training texts are empty"
        ):
            of(kind, texts)

    @pytest.mark.parametrize("kind", ["letters", "words", "bpe"])
    def test_bytes_that_are_no_text(self, kind: str) -> None:
        with pytest.raises(DataError, match="text 2, character 3 is not UTF-8; convert the text first"):
            of(kind, ["a", "bc\udcff"])

    def test_texts_are_not_held(self) -> None:
        seen = 0

        def many() -> Iterator[str]:
            nonlocal seen
            for _ in range(20_000):
                seen += 1
                yield "a b"

        assert learn(many(), TextConfig(kind="words")).size == 6
        assert seen == 20_000


LEARNT = {kind: of(kind) for kind in ALL}


class TestRoundTrip:
    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        for kind in ("bytes", "bpe"):
            assert LEARNT[kind].decode(LEARNT[kind].encode(text)) == text

    @given(st.text(st.sampled_from(sorted(set("".join(TEXTS)))), max_size=40))
    def test_known_letters(self, text: str) -> None:
        ids = LEARNT["letters"].encode(text)
        assert len(ids) == len(text)
        assert LEARNT["letters"].decode(ids) == text

    @given(
        st.lists(st.sampled_from(["the", "cat", "sat", "mat"]), max_size=8),
        st.sampled_from(["  ", "\u2028", "\x1d", "\n "]),
    )
    def test_words_lose_white_space(self, words: list[str], blank: str) -> None:
        ids = LEARNT["words"].encode(blank + blank.join(words) + blank)
        assert LEARNT["words"].decode(ids) == " ".join(words)

    @given(st.lists(st.text(max_size=12), max_size=6))
    def test_together_as_alone(self, texts: list[str]) -> None:
        for tokens in LEARNT.values():
            assert tokens.encode_batch(texts) == [tokens.encode(text) for text in texts]


def test_white_space_is_pythons() -> None:
    words = of("words", ["a b"])
    for code in [*range(0xD800), *range(0xE000, 0x11000)]:
        assert len(words.encode(f"a{chr(code)}b")) == len(f"a{chr(code)}b".split()), hex(code)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("spelling", ["</s>", "<pad>", "<s>", "<unk>", "the </s> cat", "</s></s>"])
@pytest.mark.parametrize("start", [True, False])
def test_spelt_like_a_special_token(tmp_path: Path, kind: str, spelling: str, start: bool) -> None:
    tokens = of(kind, start=start)
    ids = tokens.encode(spelling)
    assert saved(tokens, tmp_path).encode(spelling) == ids
    n_special = 2 + start
    if kind == "words":
        assert tokens.decode(ids) == " ".join(word if word in ("the", "cat") else "<unk>" for word in spelling.split())
        assert all(i >= n_special for i in ids)
    else:
        assert tokens.decode(ids) == spelling
        assert all(i > n_special - (kind in ("bytes", "bpe")) for i in ids)


def test_byte_pairs_learn_special_spellings_as_text() -> None:
    tokens = of("bpe", ["</s> </s> </s>"] * 50, size=400)
    assert len(set(tokens.tokens(range(tokens.size)))) == tokens.size
    assert "</" in tokens.tokens(range(tokens.size))
    assert len(tokens.encode("</s>")) == 3


@pytest.mark.parametrize("kind", ["letters", "words"])
def test_unknown_is_to_be_seen(kind: str) -> None:
    tokens = of(kind, ["a b"])
    assert tokens.encode("z") == [3]
    assert tokens.decode([1, *tokens.encode("a z b"), 2, 0]) == "a <unk> b"


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("normalise", [(), ("nfkc", "lowercase"), ("strip-accents",)])
def test_saved_and_loaded(tmp_path: Path, kind: str, normalise: tuple[str, ...]) -> None:
    tokens = of(kind, normalise=normalise)
    loaded = saved(tokens, tmp_path)
    assert loaded == tokens
    assert loaded.normalised == tokens.normalised
    assert (loaded.start_id, loaded.end_id, loaded.unknown_id) == (tokens.start_id, tokens.end_id, tokens.unknown_id)
    for text in [*TEXTS, "unseen: ж"]:
        assert loaded.encode(text) == tokens.encode(text)
        assert loaded.decode(loaded.encode(text)) == tokens.decode(tokens.encode(text))


NORMAL = [
    (("nfc",), "e\u0301Ａ", "éＡ", "NFC"),
    (("nfkc",), "e\u0301Ａ", "éA", "NFKC"),
    (("lowercase",), "ÉA", "éa", "lower case"),
    (("strip-accents",), "éA\u0327각", "eA각", "accents stripped"),
    (("nfkc", "lowercase"), "Ａ", "a", "NFKC, lower case"),
    (("lowercase", "nfkc", "strip-accents"), "Åé", "ae", "lower case, NFKC, accents stripped"),
    ((), "É", "É", "nothing"),
]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("normalise", "text", "expected", "words"), NORMAL)
def test_normalisation(
    tmp_path: Path, kind: str, normalise: tuple[str, ...], text: str, expected: str, words: str
) -> None:
    tokens = of(kind, [text], normalise=normalise)
    assert tokens.decode(tokens.encode(text)) == expected
    assert tokens.encode(text) == tokens.encode(expected)
    if kind == "words":
        words = "white space to single blanks" if words == "nothing" else f"{words}, white space to single blanks"
    assert saved(tokens, tmp_path).normalised == words


def test_normalised_into_a_special_token() -> None:
    assert of("words", ["a"], normalise=("nfkc", "lowercase")).encode("＜/S＞") == [3]


class TestFiles:
    def none(self) -> Iterator[str]:
        raise AssertionError("no text is read")

    def of(self, path: Path) -> Tokenizer:
        return tokenizer_for(TextConfig(file=str(path)), self.none, start=True)

    def test_learnt_without_a_file(self) -> None:
        config = TextConfig(kind="words")
        assert tokenizer_for(config, lambda: ["a b"], start=False) == learn(["a b"], config, start=False)

    def test_tokenizer_json(self, tmp_path: Path) -> None:
        LEARNT["bpe"].save(tmp_path / "any.json")
        assert self.of(tmp_path / "any.json") == LEARNT["bpe"]

    @pytest.mark.parametrize("name", ["vocab.txt", "spm.vocab"])
    def test_word_list(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("the\ncat\n")
        with pytest.raises(
            DataError, match=r"a list of words alone does not say how to cut a text: give a tokenizer\.json"
        ):
            self.of(tmp_path / name)

    def test_another_ending(self, tmp_path: Path) -> None:
        with pytest.raises(
            DataError, match=r"vocab\.bin is not of a kind that is read: give a tokenizer\.json, or a Sent"
        ):
            self.of(tmp_path / "vocab.bin")

    def test_not_there_or_no_tokenizer(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"cannot read the tokenizer .*a\.json: No such file"):
            self.of(tmp_path / "a.json")
        with pytest.raises(DataError, match=r"cannot read the SentencePiece model .*a\.model: No such file"):
            self.of(tmp_path / "a.model")
        (tmp_path / "vocab.json").write_text('{"the": 0, "cat": 1}')
        with pytest.raises(CheckpointError, match="is damaged"):
            self.of(tmp_path / "vocab.json")
