"""SentencePiece models: the ids and the text are those of SentencePiece itself."""

import builtins
import io
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer, sentencepiece_model_pb2

from glassformer.errors import DataError
from glassformer.text.sentencepiece import read_sentencepiece
from glassformer.text.tokenizer import Tokenizer

DRAW = random.Random(0)
WORDS = ["".join(DRAW.choices("abcdefghijklmnopéüß", k=DRAW.randint(1, 7))) for _ in range(200)]
TEXTS = [" ".join(DRAW.choices([*WORDS, "aaaa", "naïve", "日本", "東京", "x<sep>"], k=8)) for _ in range(800)]
PARTS = [
    *"abcdefgéüß 日本東京<", *WORDS[:40], "  ", "   ", "\t", "\n", "\r\n", "\x01", "\x01\x02", "\x00", "😀", "👩‍👧", "ａｂ", "①", "ｶﾞ",
    "e\u0301", "e\u0323\u0302", "u\u0308\u0304", "ü\u0304", "²\u0301", "q\u0302\u0323", "각", "가", "\u3000", "\xa0", "\u2028", "\u200b",
    "\xad", "aaaa", "aa", "▁", "▁▁", "</s>", "<s>", "<unk>", "<pad>", "<0x41>", "<sep>", "<cls>", "\ufdd0", "\u0344", "ﾟ", "ж",
]  # fmt: skip
LINES = ["".join(DRAW.choices(PARTS, k=DRAW.randint(0, 14))) for _ in range(1000)]

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "identity": {"normalization_rule_name": "identity"},
    "nfkc-folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "symbols": {"user_defined_symbols": ["<sep>", "<cls>"]},
    "overlapping": {"user_defined_symbols": ["<sep>", "<sep>a", "ab", "bcd", "a", "é日"]},
    "blanks-kept": {"add_dummy_prefix": False, "remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    "no-prefix": {"add_dummy_prefix": False},
    "rare-unknown": {"character_coverage": 0.98, "pad_id": 3, "control_symbols": ["<x>"]},
    "other-ids": {"unk_id": 3, "bos_id": -1, "eos_id": 0, "pad_id": 1},
}  # fmt: skip


@cache
def trained(kind: str, byte_fallback: bool, form: str) -> bytes:
    out = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, vocab_size=300 + 256 * byte_fallback, model_type=kind,
        byte_fallback=byte_fallback, num_threads=1, minloglevel=2, hard_vocab_limit=kind != "unigram", **FORMS[form],
    )  # fmt: skip
    return out.getvalue()


def changed(raw: bytes, change: Any) -> bytes:
    proto = sentencepiece_model_pb2.ModelProto.FromString(raw)  # type: ignore[attr-defined]
    change(proto)
    done: bytes = proto.SerializeToString()
    return done


def read(path: Path, raw: bytes) -> Tokenizer:
    file = path / "spm.model"
    file.write_bytes(raw)
    return read_sentencepiece(file)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_as_sentencepiece_itself(tmp_path: Path, kind: str, byte_fallback: bool, form: str) -> None:
    raw = trained(kind, byte_fallback, form)
    oracle, tokens = SentencePieceProcessor(model_proto=raw), read(tmp_path, raw)
    assert tokens.size == oracle.get_piece_size()
    assert tokens.end_id == oracle.eos_id()
    assert tokens.start_id == (None if oracle.bos_id() < 0 else oracle.bos_id())
    assert tokens.unknown_id == oracle.unk_id()
    assert tokens.tokens(range(tokens.size)) == [oracle.id_to_piece(i) for i in range(tokens.size)]
    tokens.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded == tokens
    for line, ids in zip(LINES, loaded.encode_batch(LINES), strict=True):
        expected = oracle.encode(line)
        assert ids == expected, line
        assert tokens.decode(ids) == oracle.decode(expected).replace(" ⁇ ", "<unk>"), line
    if not byte_fallback:
        assert any(tokens.unknown_id in oracle.encode(line) for line in LINES)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_pieces_in_another_order(tmp_path: Path, kind: str) -> None:
    def shuffle(proto: Any) -> None:
        rest = list(proto.pieces[3:])
        del proto.pieces[3:]
        proto.pieces.extend(random.Random(1).sample(rest, len(rest)))

    raw = changed(trained(kind, False, "plain"), shuffle)
    assert read(tmp_path, raw).encode_batch(LINES) == SentencePieceProcessor(model_proto=raw).encode(LINES)


def test_what_is_normalised(tmp_path: Path) -> None:
    words = {
        form: read(tmp_path, trained("bpe", False, form)).normalised for form in ("plain", "identity", "blanks-kept")
    }
    assert words == {
        "plain": "SentencePiece's character map, blanks to single blanks",
        "identity": "blanks to single blanks",
        "blanks-kept": "nothing",
    }


def test_special_tokens_are_left_out(tmp_path: Path) -> None:
    tokens = read(tmp_path, trained("unigram", True, "plain"))
    assert tokens.decode([1, *tokens.encode("abc"), 2]) == "abc"
    assert not {0, 1, 2} & set(tokens.encode("<s></s><unk>"))


def unused(proto: Any) -> None:
    proto.pieces[50].type = 5


def twice(proto: Any) -> None:
    proto.pieces[50].piece = proto.pieces[51].piece


def without_end(proto: Any) -> None:
    proto.pieces[2].piece = "<stop>"


def suffix(proto: Any) -> None:
    proto.trainer_spec.treat_whitespace_as_suffix = True


def same_score(proto: Any) -> None:
    proto.pieces[300].score = proto.pieces[301].score


def plain_blanks(proto: Any) -> None:
    proto.normalizer_spec.escape_whitespaces = False


def denormaliser(proto: Any) -> None:
    proto.denormalizer_spec.precompiled_charsmap = proto.normalizer_spec.precompiled_charsmap


def without_letter(proto: Any) -> None:
    next(one for one in proto.pieces if one.piece == "a").piece = "ж"


def byte_spelling(proto: Any) -> None:
    proto.pieces[300].piece = "<0"


def characters(proto: Any) -> None:
    proto.trainer_spec.model_type = 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unused, "has unused pieces, which is not supported"),
        (twice, "has a piece twice, which is not supported"),
        (without_end, "does not fit: the vocabulary has no end token: one of </s>"),
        (suffix, "puts the blank after a word"),
        (same_score, "has byte pairs of the same score"),
        (plain_blanks, "does not write blanks as ▁"),
        (denormaliser, "changes the text that it writes"),
        (without_letter, "has pieces with characters that are no pieces themselves"),
        (byte_spelling, "has (byte fallback and a piece with <0|pieces with characters that are no)"),
        (characters, "cuts into words or characters"),
    ],
)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, message: str) -> None:
    raw = changed(trained("bpe", True, "plain"), change)
    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", lambda **_: None)  # it may refuse it itself
    with pytest.raises(DataError, match=rf"the SentencePiece model .*spm\.model {message}"):
        read(tmp_path, raw)


def test_what_nobody_foresaw_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = SentencePieceProcessor(model_proto=trained("bpe", False, "plain"))
    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", lambda **_: other)
    with pytest.raises(
        DataError, match=r"but here it would be \[.*\]: this kind of model is not supported; please report"
    ):
        read(tmp_path, trained("unigram", False, "plain"))


@pytest.mark.parametrize(("kind", "refused"), [("unigram", False), ("bpe", True)])
def test_a_tie_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool) -> None:
    """As if rounding had decided otherwise: the same pieces, so the same score, the other way round."""
    raw = trained(kind, False, "plain")
    oracle = SentencePieceProcessor(model_proto=raw)

    class Turned:
        def encode(self, text: str) -> list[int]:
            ids: list[int] = oracle.encode(text)
            return ids[::-1]

    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", lambda **_: Turned())
    if refused:
        with pytest.raises(DataError, match="is not supported"):
            read(tmp_path, raw)
    else:
        assert read(tmp_path, raw).size == oracle.get_piece_size()


@pytest.mark.parametrize("raw", [b"", b"\x00", b"no model at all", b'{"version": "1.0"}'])
def test_malformed(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(DataError, match=r"spm\.model is no SentencePiece model, or damaged: "):
        read(tmp_path, raw)


def test_cut_off(tmp_path: Path) -> None:
    whole = trained("bpe", False, "plain")
    with pytest.raises(DataError, match=r"spm\.model is no SentencePiece model, or damaged: "):
        read(tmp_path, whole[: len(whole) // 2])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the SentencePiece model .*: No such file or directory"):
        read_sentencepiece(tmp_path / "none.model")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "sentencepiece":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        DataError, match=r"spm\.model needs the package sentencepiece: pip install 'glassformer\[sentencepiece\]'"
    ):
        read(tmp_path, b"")
