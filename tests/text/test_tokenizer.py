"""The tokenizer of letters: ids, round trips, and what it cannot read."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from glassformer.config.data import TextConfig
from glassformer.errors import CheckpointError, DataError
from glassformer.text.learn import learn
from glassformer.text.tokenizer import TextError, Tokenizer

LETTERS = Tokenizer.letters("abcdefghij")


def test_ids_are_the_tutorials() -> None:
    assert (LETTERS.id_of("<pad>"), LETTERS.start_id, LETTERS.end_id, LETTERS.size) == (0, 1, 2, 13)
    assert LETTERS.encode("c a b e d") == [5, 3, 4, 7, 6]
    assert LETTERS.tokens(range(13)) == ["<pad>", "<s>", "</s>", *"abcdefghij"]


@pytest.mark.parametrize("text", ["cabed", " c  a\tb e d ", "c\u2028a\u0085b\x0be\x0cd", "c\rabed"])
def test_blanks_between_letters_are_skipped(text: str) -> None:
    assert LETTERS.encode(text) == LETTERS.encode("c a b e d")


@pytest.mark.parametrize("text", ["", " ", "\t \u2003"])
def test_blank_text_has_no_ids(text: str) -> None:
    assert LETTERS.encode(text) == []


@given(st.lists(st.sampled_from("abcdefghij"), max_size=30))
def test_round_trip(letters: list[str]) -> None:
    text = " ".join(letters)
    assert LETTERS.decode(LETTERS.encode(text)) == text


def test_special_tokens_in_a_text_are_text() -> None:
    with pytest.raises(DataError, match="character 2 is '<', which the vocabulary does not have"):
        LETTERS.encode("a</s>")


def test_special_ids_are_left_out_of_the_text() -> None:
    assert LETTERS.decode([1, 6, 7, 2, 0]) == "d e"


@pytest.mark.parametrize(
    ("text", "place", "character"), [("a b z", 5, "z"), ("😀a", 1, "😀"), ("aé", 2, "é"), ("A", 1, "A")]
)
def test_unreadable_text_names_place_and_letter(text: str, place: int, character: str) -> None:
    with pytest.raises(DataError) as caught:
        LETTERS.encode(text)
    assert str(caught.value) == (
        f"character {place} is {character!r}, which the vocabulary does not have. It has: a b c d e f g h i j"
    )


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(DataError, match="character 2 is not UTF-8; convert the text first"):
        LETTERS.encode("a\udcff")


BYTES = Tokenizer.bytes()


@given(st.text(max_size=40))
def test_bytes_change_nothing(text: str) -> None:
    ids = BYTES.encode(text)
    assert len(ids) == len(text.encode())
    assert BYTES.decode(ids) == text
    assert all(3 <= i < 259 for i in ids)


def test_bytes_that_are_half_of_a_character() -> None:
    ids = BYTES.encode("ä€")
    assert BYTES.decode(ids[:1]) == "\ufffd"
    assert BYTES.decode([*ids[:2], 2, 0, 1]) == "ä"
    assert (BYTES.start_id, BYTES.end_id, BYTES.size) == (1, 2, 259)


def test_tokenizers_are_equal_if_they_cut_alike(tmp_path: Path) -> None:
    BYTES.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json") == BYTES
    assert BYTES != LETTERS
    assert BYTES != "bytes"


def test_an_id_by_its_token() -> None:
    assert LETTERS.id_of("c") == 5
    with pytest.raises(DataError, match=r"the vocabulary has no token '</S>'; did you mean '</s>'\?"):
        LETTERS.id_of("</S>")


def test_save_and_load_are_inverse(tmp_path: Path) -> None:
    LETTERS.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.tokens(range(13)) == LETTERS.tokens(range(13))
    assert loaded.encode("cabed") == LETTERS.encode("cabed")
    with pytest.raises(DataError):
        loaded.encode("a</s>")  # that special tokens in a text are text holds after loading too


@pytest.mark.parametrize("content", ["", "{", '{"version": "1.0"}', '{"a": 1}'])
def test_damaged_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        Tokenizer.load(path)


def test_file_without_special_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    LETTERS.save(path)
    path.write_text(path.read_text().replace("</s>", "<end>"))
    with pytest.raises(CheckpointError, match="does not fit: the vocabulary has no end token: one of </s>, <eos>"):
        Tokenizer.load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read the tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_together_as_alone() -> None:
    texts = ["ab" * (i % 5) for i in range(25_000)]  # more than are cut at once
    assert LETTERS.encode_batch(texts) == [LETTERS.encode(text) for text in texts]
    assert LETTERS.encode_batch([]) == []


@pytest.mark.parametrize("bad", ["a z", "a\udcff"])
def test_together_the_bad_one_is_named(bad: str) -> None:
    texts = ["ab"] * 12_000
    texts[11_000] = bad
    with pytest.raises(TextError, match=r"text 11001: character \d is ") as caught:
        LETTERS.encode_batch(texts)
    assert caught.value.index == 11_000


def test_bytes_without_a_start_token() -> None:
    tokens = Tokenizer.bytes(start=False)
    assert (tokens.start_id, tokens.end_id, tokens.size) == (None, 1, 258)
    assert tokens.decode(tokens.encode("aé")) == "aé"
    assert (BYTES.normalised, LETTERS.normalised) == ("nothing", "white space to single blanks")


def others(path: Path, words: list[str], special: list[str], **model: str) -> Tokenizer:
    """A word-level file as somebody else may write it: padded, cut, and with special tokens listed twice."""
    inner = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, **model))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(special)
    inner.enable_truncation(3)
    inner.enable_padding(length=9)
    inner.save(str(path / "others.json"))
    return Tokenizer.load(path / "others.json")


@pytest.mark.parametrize(
    ("names", "start", "end"),
    [
        (["<eos>", "</s>", "<s>"], "<s>", "</s>"),
        (["[SEP]", "<|im_end|>", "[CLS]"], "[CLS]", "<|im_end|>"),
        (["[SEP]", "[CLS]", "<bos>"], "<bos>", "[SEP]"),
        (["<|im_end|>", "<|endoftext|>"], None, "<|endoftext|>"),
        (["<|endoftext|>", "<eos>"], None, "<eos>"),
    ],
)
def test_names_in_others_files(tmp_path: Path, names: list[str], start: str | None, end: str) -> None:
    tokens = others(tmp_path, [*names, "[UNK]", "a", "b"], [*names, "[UNK]"], unk_token="[UNK]")
    assert tokens.tokens([tokens.end_id]) == [end]
    assert (None if tokens.start_id is None else tokens.tokens([tokens.start_id])[0]) == start
    assert tokens.unknown_id == len(names)
    assert tokens.size == len(names) + 3  # listed twice, but there once
    assert tokens.encode("a b a b a") == [tokens.id_of(word) for word in "ababa"]  # neither cut nor padded
    assert tokens.decode([0, *tokens.encode("a z b"), tokens.end_id]) == "a [UNK] b"
    assert tokens.encode(" ".join([*names, "[UNK]"])) == [tokens.unknown_id] * (len(names) + 1)
    tokens.save(tmp_path / "again.json")
    assert Tokenizer.load(tmp_path / "again.json") == tokens


def test_ids_with_holes(tmp_path: Path) -> None:
    """Of others' files: a model has weights for the ids between as well, as long as there are not too many."""
    names = ["</s>", "<unk>", *"abcd"]

    def numbered(ids: list[int]) -> Tokenizer:
        inner = tokenizers.Tokenizer(models.WordLevel(dict(zip(names, ids, strict=True)), unk_token="<unk>"))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        inner.save(str(tmp_path / "holes.json"))
        return Tokenizer.load(tmp_path / "holes.json")

    tokens = numbered([0, 1, 2, 3, 8, 11])
    assert tokens.size == 12
    assert tokens.encode("d c") == [11, 8]
    assert tokens.tokens(range(7, 12)) == ["<7>", "c", "<9>", "<10>", "d"]
    assert tokens.decode([11, 9, 8]) == "d c"
    assert (tokens.id_of("d"), tokens.end_id) == (11, 0)
    with pytest.raises(CheckpointError) as caught:
        numbered([0, 1, 2, 3, 70_000, 12])
    assert str(caught.value) == (
        f"the tokenizer {tmp_path / 'holes.json'} does not fit: its 6 tokens have ids up to 70,000, but a model has "
        "weights for every id: at most half of the ids may have no token; number them anew"
    )
    with pytest.raises(CheckpointError, match="ids up to 12, "):
        numbered([0, 1, 2, 3, 4, 12])


@pytest.mark.parametrize("kind", ["letters", "words", "bytes", "bpe"])
def test_pieces_of_a_text_as_the_whole_of_it(kind: str) -> None:
    """Where a piece ends between white space and something else that is so, whichever comes first."""
    pieces = ["a cat.\n", "The cat", "\n\n  sat", "\non a mat;\n", "it\n", "did\n"]
    size = {"size": 300} if kind == "bpe" else {}
    tokens = learn(pieces * 5, TextConfig.model_validate({"kind": kind, **size}))
    whole = tokens.encode("".join(pieces))
    assert [i for row in tokens.encode_pieces(pieces, "") for i in row] == whole
    rows = [tokens.encode_pieces([piece], before)[0] for before, piece in zip(["", *pieces], pieces, strict=False)]
    assert [i for row in rows for i in row] == whole


def test_a_token_across_the_border_of_two_pieces() -> None:
    """Both are cut as if they stood alone: no character is lost, or there twice."""
    inner = tokenizers.Tokenizer(models.BPE({"</s>": 0, "a": 1, "b": 2, "ab": 3}, [("a", "b")]))
    tokens = Tokenizer(inner)
    assert tokens.encode("abab") == [3, 3]
    assert tokens.encode_pieces(["aba", "b", "ab"], "") == [[3, 1], [2], [3]]


def test_a_special_token_that_merges_would_make(tmp_path: Path) -> None:
    vocabulary = ["</s>", "<", "/", "s", ">", "</", "s>", "<unk>"]
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    inner = tokenizers.Tokenizer(
        models.BPE({token: i for i, token in enumerate(vocabulary)}, merges, unk_token="<unk>")
    )
    inner.add_special_tokens(["</s>"])
    tokens = Tokenizer(inner)
    assert tokens.encode("</s>") == [5, 6]
    assert tokens.encode("x</s>") == [7, 5, 6]


def test_no_unknown_token() -> None:
    assert LETTERS.unknown_id is None
    assert BYTES.unknown_id is None
