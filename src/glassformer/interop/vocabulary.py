"""The vocabularies that come with others' weights."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from glassformer.config.run import DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.interop.foreign import Settings
from glassformer.text.sentencepiece import reordered
from glassformer.text.tokenizer import START, Tokenizer
from glassformer.text.vocabularies import TARGET, Vocabularies

NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4  # token types of a GGUF file
# how texts are cut before pairs are merged, by the name that a GGUF file has for it; and whether digits stand alone
CUTS = {"gpt-2": False, "smollm": True, "smaug-bpe": False}


def read_tokenizer(path: Path, settings: Settings) -> Tokenizer:
    """Read the tokenizer.json of a directory; for a decoder with the end token that its config.json names.

    Raises:
        CheckpointError: It is missing, damaged, or lacks these tokens.

    """
    if not (path / TARGET).is_file():
        raise CheckpointError(
            f"{path} has no {TARGET}: open it with transformers and save_pretrained, which writes one"
        )
    tokenizer = Tokenizer.load(path / TARGET)
    end = settings.get("eos_token_id") if settings.get("model_type") == "llama" else None
    if isinstance(end, list):
        end = end[0] if end else None
    if tokenizer.after or end is None:
        return tokenizer
    return with_frame(tokenizer, tokenizer.before, [end], str(path))


def with_frame(tokenizer: Tokenizer, before: list[int], after: list[int], where: str) -> Tokenizer:
    """Return a vocabulary with these tokens around a text.

    Raises:
        CheckpointError: It does not have them.

    """
    for i in (*before, *after):
        if not isinstance(i, int) or not 0 <= i < tokenizer.size:
            raise CheckpointError(f"{where} names token {i!r}, but its vocabulary has {tokenizer.size:,}")
    return tokenizer.with_frame(before, after)


def from_gguf(fields: dict[str, Any], where: str) -> Tokenizer:
    """Build the byte-level BPE vocabulary that a GGUF file holds.

    Raises:
        CheckpointError: It is of another kind, or its parts do not fit together.

    """
    kind, cut = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2":
        raise CheckpointError(f"{where} has a vocabulary of kind {kind!r}; we read 'gpt2', byte-level byte pairs")
    if cut not in CUTS:
        raise CheckpointError(f"{where} cuts texts as {cut!r} does, which we do not have; we have {', '.join(CUTS)}")
    names, merges = fields.get("tokenizer.ggml.tokens", []), fields.get("tokenizer.ggml.merges", [])
    types = fields.get("tokenizer.ggml.token_type", [NORMAL] * len(names))
    if not names or len(types) != len(names) or len(set(names)) != len(names):
        raise CheckpointError(f"{where} has a damaged vocabulary: {len(names)} tokens, {len(types)} types")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        inner = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, pairs))
    except Exception as error:  # the library raises plain Exception for pairs without tokens
        raise CheckpointError(f"{where} has a damaged vocabulary: {error}") from error
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=bool(fields.get("tokenizer.ggml.add_space_prefix", False)))
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, bytewise]) if CUTS[cut] else bytewise
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False)
            for name, one in zip(names, types, strict=True)
            if one == CONTROL
        ]
    )
    end = fields.get("tokenizer.ggml.eos_token_id")
    if not isinstance(end, int) or not 0 <= end < len(names):
        raise CheckpointError(f"{where} has no end token: tokenizer.ggml.eos_token_id is {end!r}")
    start = fields.get("tokenizer.ggml.bos_token_id") if fields.get("tokenizer.ggml.add_bos_token") else None
    inner.add_special_tokens([AddedToken(names[end], special=True, normalized=False)])
    return with_frame(Tokenizer(inner), [] if start is None else [start], [end], where)


def marian_vocabularies(path: Path, settings: Settings) -> tuple[Vocabularies, DecodeConfig]:
    """Read source.spm, target.spm and vocab.json, and return with them what a Marian model may not write.

    The ids are those of vocab.json, the cuts those of SentencePiece. Its padding token, which the decoder starts with,
    is called <s> here. A source ends with the end token.

    Raises:
        CheckpointError: A file is missing or damaged.
        DataError: SentencePiece's models cannot be used here, or the package is not installed.

    """
    if (path / TARGET).is_file() and not (path / "source.spm").is_file():  # as we write them
        return Vocabularies.load(path, n_classes=None), DecodeConfig()
    names = {"source.spm", "target.spm", "vocab.json"}
    missing = sorted(name for name in names if not (path / name).is_file())
    if missing:
        raise CheckpointError(f"{path} has no {missing[0]}, which a Marian model's vocabulary stands in")
    try:
        ids: dict[str, int] = json.loads((path / "vocab.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path / 'vocab.json'}: {error}") from error
    n, pad, end = settings.count("vocab_size"), settings.get("pad_token_id"), settings.get("eos_token_id", 0)
    if sorted(ids.values()) != list(range(len(ids))) or len(ids) > n:
        raise CheckpointError(
            f"{path / 'vocab.json'} does not number its {len(ids)} tokens from 0, or has more than {n}"
        )
    ordered = sorted(ids, key=lambda name: ids[name])
    if not isinstance(pad, int) or not 0 <= pad < len(ordered):
        raise CheckpointError(f"{path / 'config.json'} has pad_token_id={pad!r}, which is no token")
    ordered[pad] = START
    source, target = (
        reordered(path / f"{side}.spm", ordered, special=[pad, end], is_read=side == "source")
        for side in ("source", "target")
    )
    where = str(path)
    vocabularies = Vocabularies(with_frame(source, [], [end], where), with_frame(target, [pad], [end], where))
    return vocabularies, DecodeConfig(forbidden=(START,))
