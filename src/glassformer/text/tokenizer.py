"""Text to token ids and back: one wrapper over Hugging Face's `tokenizers`, saved as tokenizer.json."""

import json
from base64 import b64decode
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.errors import CheckpointError, DataError, nearest
from glassformer.files import write_text
from glassformer.text.charsmap import Charsmap

PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
STARTS = (START, "<bos>", "[CLS]")  # of others' files; the first that is there
ENDS = (END, "<eos>", "<|endoftext|>", "<|im_end|>", "[SEP]")
CONTEXT = 100  # characters before a piece of a text, by which its first token may go
N_TOGETHER = 10_000  # texts that are cut at once: enough for all threads, and few enough for the memory
NORMALISED = {
    "Lowercase": "lower case",
    "StripAccents": "accents stripped",
    "Precompiled": "SentencePiece's character map",
    "BertNormalizer": "BERT's clean-up",
    "Nmt": "control characters and blanks",
}
BLANKS_LOST = ("WhitespaceSplit", "Whitespace", "BertPreTokenizer")


class TextError(DataError):
    """One of several texts cannot be read; `index` says which, counted from 0."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"text {index + 1}: {reason}")
        self.index, self.reason = index, reason


def special_tokens(*, start: bool) -> list[str]:
    """Return the special tokens of a vocabulary of our own, in the order of their ids."""
    return [PAD, START, END] if start else [PAD, END]


class Tokenizer:
    """A vocabulary, and the rule that cuts a text into its tokens.

    Special tokens are put in by programs; in a user's text the same characters are text.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        inner.no_truncation()  # a file may ask for both; lengths are the business of who makes the batch
        inner.no_padding()
        # what programs put before and after a text, where the file has a template that says so
        self.before, self.after, has_template = _template(inner)
        # what a decoder reads first; None: nothing but its prompt
        self.start_id = (self.before[0] if self.before else None) if has_template else _first(inner, STARTS)
        end_id = self.after[0] if self.after else _first(inner, ENDS)
        if end_id is None:
            raise DataError(f"the vocabulary has no end token: one of {', '.join(ENDS)}")
        self.end_id = end_id
        self.size = _size(inner)  # rows of an embedding: ids are below it, and a few of them may be no token's
        self.unknown_id = _unknown_id(inner)  # what stands for text without a token; None: nothing does
        marked = {i for i, token in inner.get_added_tokens_decoder().items() if token.special}
        self._special = frozenset(marked | {self.end_id, self.start_id} - {None}) - {self.unknown_id}

    @classmethod
    def bytes(cls, *, start: bool = True, normalizer: normalizers.Normalizer | None = None) -> "Tokenizer":
        """Make each byte of the UTF-8 text a token: nothing is unknown, and nothing else is changed.

        Ids: `<pad>` 0, `<s>` 1 (if `start`), `</s>`, then the 256 bytes.
        """
        specials = special_tokens(start=start)
        names = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]  # a printable character for each byte
        inner = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(names)}, []))
        inner.normalizer = normalizer
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        inner.add_special_tokens([AddedToken(token, special=True) for token in specials])
        return cls(inner)

    @classmethod
    def letters(cls, letters: Iterable[str]) -> "Tokenizer":
        """Make each letter a token; blanks between letters are skipped.

        Ids: `<pad>` 0, `<s>` 1, `</s>` 2, then the letters in their order.
        """
        specials = special_tokens(start=True)
        inner = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate([*specials, *letters])}))
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\s+"), "removed"), pre_tokenizers.Split(Regex(r"\S"), "isolated")]
        )
        inner.add_special_tokens([AddedToken(token, special=True) for token in specials])
        return cls(inner)

    @classmethod
    def of_words(cls, words: Iterable[str], specials: Iterable[str]) -> "Tokenizer":
        """Make each word, between white space, a token; the special tokens come after them."""
        marks = list(specials)
        inner = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate([*words, *marks])}))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        inner.add_special_tokens([AddedToken(token, special=True) for token in marks])
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json.

        Raises:
            CheckpointError: The file is missing or damaged, or has no end token.

        """
        try:
            return cls(_parsed(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error.strerror}") from error
        except DataError as error:
            raise CheckpointError(f"the tokenizer {path} does not fit: {error}") from error
        except Exception as error:  # the library raises plain Exception for a malformed file
            raise CheckpointError(f"the tokenizer {path} is damaged: {error}") from error

    def save(self, path: Path) -> None:
        """Write a tokenizer.json."""
        write_text(path, self._inner.to_str(pretty=True))

    @property
    def json(self) -> str:
        """What stands in its tokenizer.json."""
        text: str = self._inner.to_str()
        return text

    @cached_property
    def normalised(self) -> str:
        """What is lost of a text that is cut and put together again, unknown tokens aside: "nothing", or in words."""
        steps = [*_steps(self._inner.normalizer), *_steps(self._inner.pre_tokenizer)]
        kinds = [step["type"] for step in steps]
        words: list[str] = []
        for i, step in enumerate(steps):
            kind = step["type"]
            if kind in NORMALISED or kind in ("NFC", "NFD", "NFKC", "NFKD"):
                around_accents = "StripAccents" in (kinds[i - 1 : i] + kinds[i + 1 : i + 2])
                words += [] if around_accents and kind in ("NFD", "NFC") else [NORMALISED.get(kind, kind)]
            squeezes = kind == "Replace" and step["pattern"].get("Regex") == " {2,}"
            if kind in BLANKS_LOST or step.get("behavior") == "Removed" or squeezes:
                words.append("white space to single blanks" if not squeezes else "blanks to single blanks")
        return ", ".join(dict.fromkeys(words)) or "nothing"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens.

        Raises:
            DataError: The text holds something that the vocabulary has no token for.

        """
        mapped = self._mapped(text)
        try:
            return self._reader.encode(mapped, add_special_tokens=False).ids
        except Exception as error:  # the library's word for a vocabulary without an unknown token
            raise DataError(self._unreadable(text, str(error))) from error

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as `encode` does, but many at a time.

        Raises:
            TextError: The vocabulary cannot read a text, and which (the first).

        """
        ids: list[list[int]] = []
        for first in range(0, len(texts), N_TOGETHER):
            some = texts[first : first + N_TOGETHER]
            try:
                mapped = [self._mapped(text) for text in some]
                ids += [one.ids for one in self._reader.encode_batch_fast(mapped, add_special_tokens=False)]
            except Exception:  # the library does not say which text it was
                for index, text in enumerate(some, start=first):
                    try:
                        ids.append(self.encode(text))
                    except DataError as error:
                        raise TextError(index, str(error)) from error
        return ids

    def encode_pieces(self, pieces: Sequence[str], before: str) -> list[list[int]]:
        """Return the ids that pieces have in a whole text, of which `before` is the piece before them, or nothing.

        At the beginning of a text SentencePiece puts a blank, and nowhere else: so each piece is cut together with the
        end of the one before it, whose ids are then left out. That is exact unless a token reaches across the border:
        then the piece is cut as if it stood alone, and has that blank.

        Raises:
            TextError: The vocabulary cannot read a piece, and which (the first).

        """
        contexts = [piece[-CONTEXT:] for piece in (before, *pieces[:-1])]
        rows = self.encode_batch([context + piece for context, piece in zip(contexts, pieces, strict=True)])
        return [
            row[len(known) :] if row[: len(known)] == known else self.encode(piece)
            for row, known, piece in zip(rows, self.encode_batch(contexts), pieces, strict=True)
        ]

    def framed(self, ids: Sequence[int]) -> list[int]:
        """Return a source as an encoder reads it: between the tokens of the vocabulary's template, if it has one."""
        return [*self.before, *ids, *self.after]

    def with_frame(self, before: Sequence[int], after: Sequence[int]) -> "Tokenizer":
        """Return the same vocabulary with another template: these tokens around a text."""
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        names = {i: self._inner.id_to_token(i) for i in (*before, *after)}
        inner.post_processor = processors.TemplateProcessing(
            single=[*(names[i] for i in before), "$A", *(names[i] for i in after)],
            special_tokens=[(name, i) for i, name in names.items()],
        )
        inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names.values()])
        return Tokenizer(inner)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out; an unknown token stays to be seen."""
        return self._inner.decode([i for i in ids if i not in self._special], skip_special_tokens=False)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id, special ones too."""
        return [self._inner.id_to_token(i) or f"<{i}>" for i in ids]

    def is_special(self, i: int) -> bool:
        """Whether an id is that of a token that programs put in, such as the end token."""
        return i in self._special

    @property
    def special_names(self) -> list[str]:
        """The tokens that programs put in."""
        return self.tokens(i for i in range(self.size) if i in self._special)

    def id_of(self, token: str) -> int:
        """Return the id of a token, a special one too.

        Raises:
            DataError: The vocabulary does not have it.

        """
        found: int | None = self._inner.token_to_id(token)
        if found is None:
            raise DataError(f"the vocabulary has no token {token!r}{nearest(token, self._inner.get_vocab())}")
        return found

    def __eq__(self, other: object) -> bool:
        """Whether both cut every text into the same ids."""
        return isinstance(other, Tokenizer) and self._inner.to_str() == other._inner.to_str()

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _reader(self) -> tokenizers.Tokenizer:
        """What cuts texts: the tokenizer with its special tokens spelt as no piece of a text can be.

        The library looks pieces up by their spelling: to it the word "</s>" would be the end token.
        """
        spelt = {self._inner.id_to_token(i): i for i in (*self._special, self.unknown_id) if i is not None}

        def spell(token: str) -> str:
            return f" \0{token}" if token in spelt else token

        everything = json.loads(self._inner.to_str())
        model = everything["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {spell(token): i for token, i in model["vocab"].items()}
        else:
            model["vocab"] = [[spell(token), score] for token, score in model["vocab"]]
        if model.get("unk_token") is not None:
            model["unk_token"] = spell(model["unk_token"])
        if "merges" in model:
            model["merges"] = [pair for pair in model["merges"] if not spelt.keys() & {*pair, "".join(pair)}]
        for token in everything["added_tokens"]:
            token["content"] = spell(token["content"])
        everything["post_processor"] = None  # it names special tokens, and none are put in here
        if self._charsmap is not None:
            rest = _steps(self._inner.normalizer)[1:]
            everything["normalizer"] = {"type": "Sequence", "normalizers": rest} if rest else None
        reader = _parsed(json.dumps(everything))
        reader.encode_special_tokens = True  # they would be looked for in texts otherwise
        return reader

    @cached_property
    def _charsmap(self) -> Charsmap | None:
        for step in _steps(self._inner.normalizer)[:1]:
            if step["type"] == "Precompiled":
                return Charsmap(b64decode(step["precompiled_charsmap"]))
        return None

    @cached_property
    def _missing(self) -> frozenset[int]:
        """Bytes without a token, which the library would leave out of a text without a word."""
        steps = [step["type"] for step in _steps(self._inner.pre_tokenizer)]
        if not isinstance(self._inner.model, models.BPE) or "ByteLevel" not in steps or self.unknown_id is not None:
            return frozenset()
        vocabulary = self._inner.get_vocab()
        return frozenset(byte for byte, name in _bytes_as_characters().items() if name not in vocabulary)

    def _mapped(self, text: str) -> str:
        """Return the text as the library takes it."""
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"character {error.start + 1} is not UTF-8; convert the text first") from None
        if not self._missing.isdisjoint(raw):
            place = next(i for i, one in enumerate(text) if not self._missing.isdisjoint(one.encode()))
            raise DataError(f"character {place + 1} is {text[place]!r}, which the vocabulary does not have")
        return text if self._charsmap is None else self._charsmap(text)

    def _unreadable(self, text: str, reason: str) -> str:
        """Say which piece of a text has no token."""
        pre_tokenizer = self._inner.pre_tokenizer
        pieces = pre_tokenizer.pre_tokenize_str(text) if pre_tokenizer is not None else []
        for piece, (start, _) in pieces:
            if self._inner.token_to_id(piece) is None:
                known = self.tokens(i for i in range(min(self.size, 40)) if i not in self._special)
                words = " ".join(token for token in known if token != PAD)
                return f"character {start + 1} is {piece!r}, which the vocabulary does not have. It has: {words}"
        return f"the text cannot be read: {reason}"


def _parsed(text: str) -> tokenizers.Tokenizer:
    """Read a tokenizer.json, with its scores to the last bit: the library's are off, and settle ties another way."""
    inner = tokenizers.Tokenizer.from_str(text)
    if isinstance(inner.model, models.Unigram):
        model = json.loads(text)["model"]
        vocabulary = [(token, score) for token, score in model["vocab"]]
        inner.model = models.Unigram(vocabulary, model["unk_id"], model.get("byte_fallback", False))
    return inner


def _size(inner: tokenizers.Tokenizer) -> int:
    ids = inner.get_vocab().values()
    size = max(ids) + 1
    if size > 2 * len(ids):
        raise DataError(
            f"its {len(ids):,} tokens have ids up to {size - 1:,}, but a model has weights for every id: at most half "
            "of the ids may have no token; number them anew"
        )
    return size


def _bytes_as_characters() -> dict[int, str]:
    """Return the printable character that stands for each byte in GPT-2's vocabularies."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _template(inner: tokenizers.Tokenizer) -> tuple[list[int], list[int], bool]:
    """Return the ids that a template puts before and after a text, and whether there is one."""
    everything = json.loads(inner.to_str())["post_processor"] or {}
    steps = everything.get("processors", [everything])
    template = next((step for step in steps if step.get("type") == "TemplateProcessing"), None)
    if template is None:
        return [], [], False
    place = next(i for i, piece in enumerate(template["single"]) if "Sequence" in piece)
    ids = [
        [i for piece in part for i in template["special_tokens"][piece["SpecialToken"]["id"]]["ids"]]
        for part in (template["single"][:place], template["single"][place + 1 :])
    ]
    return ids[0], ids[1], True


def _first(inner: tokenizers.Tokenizer, names: Iterable[str]) -> int | None:
    return next((i for i in map(inner.token_to_id, names) if i is not None), None)


def _unknown_id(inner: tokenizers.Tokenizer) -> int | None:
    model = inner.model
    if isinstance(model, models.Unigram):
        found: int | None = json.loads(model.__getstate__())["unk_id"]
        return found
    return _first(inner, [model.unk_token or UNKNOWN])


def _steps(component: normalizers.Normalizer | pre_tokenizers.PreTokenizer | None) -> list[dict[str, Any]]:
    """Return what a normalizer or a pre-tokenizer does, one thing after the other, as tokenizer.json has it."""

    def flat(state: dict[str, Any]) -> list[dict[str, Any]]:
        inside = state.get("normalizers", state.get("pretokenizers"))
        return [state] if inside is None else [step for one in inside for step in flat(one)]

    return [] if component is None else flat(json.loads(component.__getstate__()))
