"""SentencePiece's .model files, turned into a tokenizer that gives the same ids."""

import random
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

BLANK = "▁"  # stands for a blank in pieces
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # sentencepiece_model.proto, SentencePiece.Type
UNIGRAM, BPE = 1, 2  # TrainerSpec.ModelType
BYTE_CUT = r"(?<=<)(?=0x[0-9A-F]{2}>)"  # a text may hold "<0x41>", which is six characters and not that byte
N_TRIED = 50_000
LANGUAGE = re.compile(r">>\w+<<")  # what a text to a translator of many languages begins with


def read_sentencepiece(path: Path) -> Tokenizer:
    """Read a SentencePiece model: unigram or byte pairs, its normalisation too.

    Ids are SentencePiece's own, but where two ways to cut a text with a unigram model score the same: SentencePiece
    adds up in single precision, and its rounding then decides.

    Control pieces (`<s>`, `</s>`) become special tokens, user-defined symbols stay pieces of text. An unknown token is
    written as it is called, `<unk>`, where SentencePiece writes ⁇.

    Raises:
        DataError: The file cannot be read, is no such model, or asks for something that would give other ids here; or
            the package sentencepiece is not installed.

    """
    raw = _bytes_of(path)
    proto, processor = _parsed(path, raw)
    if reason := _unsupported(proto):
        raise DataError(f"the SentencePiece model {path} {reason}, which is not supported")
    inner = tokenizers.Tokenizer(_unigram(proto) if proto.trainer_spec.model_type == UNIGRAM else _pairs(proto))
    _set_rules(inner, proto)
    inner.add_special_tokens([AddedToken(one.piece, special=True) for one in proto.pieces if one.type == CONTROL])
    try:
        tokenizer = Tokenizer(inner)
    except DataError as error:
        raise DataError(f"the SentencePiece model {path} does not fit: {error}") from error
    _try(path, tokenizer, processor, proto)
    return tokenizer


def reordered(path: Path, names: Sequence[str], *, special: Sequence[int], is_read: bool) -> Tokenizer:
    """Read a unigram model whose pieces have the ids of another list, as Marian's translators have them.

    Args:
        path: The SentencePiece model.
        names: The tokens in the order of their ids; those that are no pieces of the model belong to the other side.
        special: Ids of tokens that programs put in.
        is_read: Whether texts are only cut with it. Then tokens of the other side can be in no text: a stretch that
            this side does not know is unknown, even if it happens to be such a token, as which Marian would take it.
            Of what is written they are spelt as they are.

    Raises:
        DataError: The file cannot be read, is no such model, or asks for something that would give other ids here; or
            the package sentencepiece is not installed.

    """
    proto, _ = _parsed(path, _bytes_of(path))
    reason = _unsupported(proto) or ("is no unigram model" if proto.trainer_spec.model_type != UNIGRAM else None)
    if reason:
        raise DataError(f"the SentencePiece model {path} {reason}, which is not supported")
    scores = {one.piece: 0.0 if one.type == USER else one.score for one in proto.pieces if one.type in (NORMAL, USER)}
    unknown = next(one.piece for one in proto.pieces if one.type == UNKNOWN)
    if unknown not in names:
        raise DataError(f"the SentencePiece model {path} calls what it does not know {unknown!r}, which has no id")
    worst = 10 * min(scores.values())
    codes = [name for name in names if LANGUAGE.fullmatch(name)]
    own = {*scores, unknown, *codes, *(names[i] for i in special)}
    spelt = [name if name in own or not is_read else f" \0{name}" for name in names]
    inner = tokenizers.Tokenizer(
        models.Unigram([(name, scores.get(name, worst)) for name in spelt], names.index(unknown), False)
    )
    _set_rules(inner, proto)
    inner.add_special_tokens([AddedToken(names[i], special=True, normalized=False) for i in special])
    inner.add_tokens([AddedToken(code, special=False, normalized=False) for code in codes])
    return Tokenizer(inner)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the SentencePiece model {path}: {error.strerror or error}") from error


def _parsed(path: Path, raw: bytes) -> tuple[Any, Any]:
    """Return the file's content, and SentencePiece's own reader of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of types that C extensions make: not ours to mend
            from google.protobuf.message import DecodeError
            from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
    except ImportError as error:
        raise DataError(
            f"reading {path} needs the package sentencepiece: pip install 'glassformer[sentencepiece]'"
        ) from error
    try:
        proto = sentencepiece_model_pb2.ModelProto.FromString(raw)  # type: ignore[attr-defined]
        if not proto.pieces:
            raise ValueError("it has no pieces")
        return proto, SentencePieceProcessor(model_proto=raw)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise DataError(f"{path} is no SentencePiece model, or damaged: {error}") from error


def _unsupported(proto: Any) -> str | None:
    """Say what in a model makes other ids here; None: nothing that is known."""
    trainer, rules, pieces = proto.trainer_spec, proto.normalizer_spec, proto.pieces
    of_text = {one.piece for one in pieces if one.type in (NORMAL, USER)}
    letters = {letter for one in pieces if one.type == NORMAL for letter in one.piece}
    scores = [one.score for one in pieces if one.type == NORMAL]
    is_bpe = trainer.model_type == BPE
    reasons = {
        "cuts into words or characters": trainer.model_type not in (UNIGRAM, BPE),
        "puts the blank after a word": trainer.treat_whitespace_as_suffix,
        "does not write blanks as ▁": not rules.escape_whitespaces,
        "changes the text that it writes": bool(proto.denormalizer_spec.precompiled_charsmap),
        "has a piece twice": len({one.piece for one in pieces}) < len(pieces),
        "has unused pieces": any(one.type == UNUSED for one in pieces),
        "has no unknown piece": not any(one.type == UNKNOWN for one in pieces),
        "has pieces with characters that are no pieces themselves": bool(letters - of_text),
        "has byte pairs of the same score": is_bpe and len(set(scores)) < len(scores),
        "has byte fallback and a piece with <0": trainer.byte_fallback and any("<0" in token for token in of_text),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _unigram(proto: Any) -> models.Unigram:
    # symbols cost nothing, whatever their score: that is what makes SentencePiece (0.2.3) choose them
    vocabulary = [(one.piece, 0.0 if one.type == USER else one.score) for one in proto.pieces]
    unknown = next(i for i, one in enumerate(proto.pieces) if one.type == UNKNOWN)
    return models.Unigram(vocabulary, unknown, proto.trainer_spec.byte_fallback)


def _pairs(proto: Any) -> models.BPE:
    """Rebuild the merges: every cut of a piece into two pieces, the piece with the highest score first."""
    scores = {one.piece: one.score for one in proto.pieces if one.type == NORMAL}
    ranked = [
        (-score, cut, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    return models.BPE(
        {one.piece: i for i, one in enumerate(proto.pieces)},
        [(left, right) for _, _, left, right in sorted(ranked)],
        unk_token=next(one.piece for one in proto.pieces if one.type == UNKNOWN),
        fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
        ignore_merges=any(one.type == USER for one in proto.pieces),  # a symbol is looked up, not put together
    )


def _set_rules(inner: tokenizers.Tokenizer, proto: Any) -> None:
    """Set what is done to a text before it is cut, and after it is put together, in SentencePiece's order."""
    rules = proto.normalizer_spec
    before: list[normalizers.Normalizer] = []
    if rules.precompiled_charsmap:
        before.append(normalizers.Precompiled(rules.precompiled_charsmap))
    if rules.remove_extra_whitespaces:  # blanks only: line feeds are kept
        before += [normalizers.Replace(Regex(r"\A +|[ ▁]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if rules.add_dummy_prefix:
        before.append(normalizers.Prepend(BLANK))
    before.append(normalizers.Replace(" ", BLANK))
    inner.normalizer = normalizers.Sequence(before)
    symbols = [one.piece for one in proto.pieces if one.type == USER]
    cuts = [BYTE_CUT] if proto.trainer_spec.byte_fallback else []
    if symbols and proto.trainer_spec.model_type == BPE:
        cuts.insert(0, "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True)))
    if cuts:
        inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(cut), "isolated") for cut in cuts])
    after: list[decoders.Decoder] = [decoders.Replace(BLANK, " ")]
    if proto.trainer_spec.byte_fallback:
        after.append(decoders.ByteFallback())
    after.append(decoders.Fuse())
    if rules.remove_extra_whitespaces:
        after.append(decoders.Strip(" ", 2**31, 0))
    elif rules.add_dummy_prefix:
        after.append(decoders.Strip(" ", 1, 0))
    inner.decoder = decoders.Sequence(after)


def _try(path: Path, tokenizer: Tokenizer, processor: Any, proto: Any) -> None:
    """Compare ids with SentencePiece's own, on pieces in a random order, so that nothing unforeseen goes unseen."""
    draw = random.Random(0)
    n = min(len(proto.pieces), N_TRIED)
    texts = [one.piece.replace(BLANK, " ") for one in draw.sample(list(proto.pieces), n)]
    scores, is_unigram = [one.score for one in proto.pieces], proto.trainer_spec.model_type == UNIGRAM
    symbols = [one.piece for one in proto.pieces if one.type == USER]
    texts += ["".join(draw.choices(texts, k=8)) for _ in range(n)]
    texts += [f"{draw.choice(symbols)}{text}{draw.choice(symbols)}" for text in texts[:n] if symbols]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        expected = processor.encode(text)
        is_tie = is_unigram and abs(sum(scores[i] for i in ids) - sum(scores[i] for i in expected)) < 1e-3
        if ids != expected and not is_tie:
            raise DataError(
                f"the SentencePiece model {path} reads {text!r} as {expected}, but here it would be {ids}: "
                "this kind of model is not supported; please report it"
            )
