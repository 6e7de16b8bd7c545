"""A vocabulary for a configuration: learnt from texts, or read from a file."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.config.data import TextConfig
from glassformer.errors import DataError
from glassformer.text.sentencepiece import read_sentencepiece
from glassformer.text.tokenizer import END, PAD, START, UNKNOWN, Tokenizer, special_tokens

RESERVED = {PAD, START, END, UNKNOWN}  # words that are spelt so are unknown, whether or not the model has such a token
WHITE = r"[\s\x1c-\x1f]+"  # what str.split() splits at: Unicode's white space and four separators of ASCII


def tokenizer_for(config: TextConfig, texts: Callable[[], Iterable[str]], *, start: bool) -> Tokenizer:
    """Return the vocabulary that a configuration asks for; `texts` is called only if one is to be learnt.

    Raises:
        DataError: The file is of a kind that is not read, or is no such file; or the texts cannot be learnt from.
        CheckpointError: A tokenizer.json is missing or damaged.

    """
    if config.file is None:
        return learn(texts(), config, start=start)
    path = Path(config.file)
    if path.suffix == ".json":
        return Tokenizer.load(path)
    if path.suffix == ".model":
        return read_sentencepiece(path)
    advice = "a list of words alone does not say how to cut a text: " if path.suffix in (".txt", ".vocab") else ""
    raise DataError(
        f"the vocabulary {path} is not of a kind that is read: {advice}give a tokenizer.json, or a SentencePiece model "
        "(.model), or leave text.file out to learn one"
    )


def learn(texts: Iterable[str], config: TextConfig, *, start: bool = True) -> Tokenizer:
    """Learn a vocabulary. What is spelt like a special token in a text is text.

    letters, bytes and bpe give back every text that holds no unknown character as it was, normalisation aside; words
    give back one blank for any white space, and nothing for that at both ends.

    Args:
        texts: Read once, and not held: there may be millions. Bytes are always the same and read none.
        config: `size` is the most tokens in all; where the texts give fewer there are fewer.
        start: Whether there is a start token; a model of plain text in windows has none.

    Raises:
        DataError: There is no text, or one is not UTF-8.

    """
    normalizer = _normalizer(config)
    if config.kind == "bytes":
        return Tokenizer.bytes(start=start, normalizer=normalizer)
    specials, checked = special_tokens(start=start), _checked(texts)
    inner = (
        _pairs(checked, config, specials, normalizer)
        if config.kind == "bpe"
        else (_counted(checked, config, specials, normalizer))
    )
    inner.normalizer = normalizer
    inner.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return Tokenizer(inner)


def _checked(texts: Iterable[str]) -> Iterator[str]:
    blank = True
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            place = f"text {number}, character {error.start + 1}"
            raise DataError(f"{place} is not UTF-8; convert the text first") from None
        blank = blank and not text.strip()
        yield text
    if blank:
        raise DataError("there is no text to learn a vocabulary from: all training texts are empty or blank")


def _normalizer(config: TextConfig) -> normalizers.Normalizer | None:
    parts: dict[str, list[normalizers.Normalizer]] = {
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
        "lowercase": [normalizers.Lowercase()],
        "strip-accents": [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()],
    }
    chosen = [part for name in config.normalise for part in parts[name]]
    return normalizers.Sequence(chosen) if chosen else None


def _counted(
    texts: Iterable[str], config: TextConfig, specials: list[str], normalizer: normalizers.Normalizer | None
) -> tokenizers.Tokenizer:
    """Learn letters or words: the most frequent ones, and of equals those whose code points come first."""
    counts: Counter[str] = Counter()
    words = config.kind == "words"
    for text in texts:
        plain = text if normalizer is None else normalizer.normalize_str(text)
        counts.update(plain.split() if words else plain)
    names = [*specials, UNKNOWN]
    room = None if config.size is None else config.size - len(names)
    learnt = sorted((-n, token) for token, n in counts.items() if n >= config.min_count and token not in RESERVED)
    names += [token for _, token in learnt[:room]]
    inner = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate(names)}, unk_token=UNKNOWN))
    if words:  # and no decoder: tokens are joined with a blank
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(WHITE), "removed")
    else:
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        inner.decoder = decoders.Fuse()
    return inner


def _pairs(
    texts: Iterable[str], config: TextConfig, specials: list[str], normalizer: normalizers.Normalizer | None
) -> tokenizers.Tokenizer:
    """Learn byte pairs, without the special tokens: the trainer would cut them out of the texts."""
    assert config.size is not None  # the configuration sees to it
    inner = tokenizers.Tokenizer(models.BPE())
    inner.normalizer = normalizer
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.size - len(specials),
        min_frequency=config.min_count,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    learnt = json.loads(inner.model.__getstate__())
    names = [*specials, *sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)]
    inner.model = models.BPE({token: i for i, token in enumerate(names)}, [tuple(pair) for pair in learnt["merges"]])
    return inner
