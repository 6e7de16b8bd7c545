"""Text to token ids and back: one wrapper over Hugging Face's `tokenizers`, saved as tokenizer.json."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from glassformer.errors import CheckpointError, DataError, nearest
from glassformer.files import write_text

PAD, START = "<pad>", "<s>"
ENDS = ("</s>", "<eos>")


class Tokenizer:
    """A vocabulary, and the rule that cuts a text into its tokens.

    Special tokens are put in by programs; in a user's text the same characters are text.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        self._inner.encode_special_tokens = True  # "</s>" in a text is four characters, never the end
        self.start_id = inner.token_to_id(START)  # what a decoder reads first; None: nothing but its prompt
        end_ids = [i for i in map(inner.token_to_id, ENDS) if i is not None]
        if not end_ids:
            raise DataError(f"the vocabulary has no end token: one of {', '.join(ENDS)}")
        self.end_id: int = end_ids[0]

    @classmethod
    def bytes(cls) -> "Tokenizer":
        """Make each byte of the UTF-8 text a token: nothing is unknown, and nothing is changed.

        Ids: `<pad>` 0, `<s>` 1, `</s>` 2, then the 256 bytes.
        """
        specials = [PAD, START, ENDS[0]]
        names = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]  # a printable character for each byte
        inner = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(names)}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        inner.add_special_tokens([AddedToken(token, special=True) for token in specials])
        return cls(inner)

    @classmethod
    def letters(cls, letters: Iterable[str]) -> "Tokenizer":
        """Make each letter a token; blanks between letters are skipped.

        Ids: `<pad>` 0, `<s>` 1, `</s>` 2, then the letters in their order.
        """
        specials = [PAD, START, ENDS[0]]
        inner = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate([*specials, *letters])}))
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"\s+"), "removed"), pre_tokenizers.Split(Regex(r"\S"), "isolated")]
        )
        inner.add_special_tokens([AddedToken(token, special=True) for token in specials])
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json.

        Raises:
            CheckpointError: The file is missing or damaged.

        """
        try:
            return cls(tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")))
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
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens.

        Raises:
            DataError: The text holds something that the vocabulary has no token for.

        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"character {error.start + 1} is not UTF-8; convert the text first") from None
        try:
            return self._inner.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library's word for a vocabulary without an unknown token
            raise DataError(self._unreadable(text, str(error))) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""
        return self._inner.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id, special ones too."""
        return [self._inner.id_to_token(i) or f"<{i}>" for i in ids]

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

    def _unreadable(self, text: str, reason: str) -> str:
        """Say which piece of a text has no token."""
        pre_tokenizer = self._inner.pre_tokenizer
        pieces = pre_tokenizer.pre_tokenize_str(text) if pre_tokenizer is not None else []
        for piece, (start, _) in pieces:
            if self._inner.token_to_id(piece) is None:
                known = self.tokens(range(min(self.size, 40)))
                words = " ".join(token for token in known if token not in (PAD, START, *ENDS))
                return f"character {start + 1} is {piece!r}, which the vocabulary does not have. It has: {words}"
        return f"the text cannot be read: {reason}"
