"""What a model's texts are cut into, both sides and the classes, in the files of a run."""

import json
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.files import write_text
from glassformer.text.chat import FILE as CHAT
from glassformer.text.tokenizer import Tokenizer

TARGET, SOURCE, CLASSES = "tokenizer.json", "source_tokenizer.json", "classes.json"


@dataclass(frozen=True)
class Vocabularies:
    """The tokens of each side, and a classifier's classes in the order of its output."""

    source: Tokenizer  # of what is read
    target: Tokenizer  # of what is written; the same where one vocabulary serves both, or there is one side
    classes: tuple[str, ...] = ()
    chat_template: str | None = None  # how messages become a text, for a model that answers them

    @classmethod
    def one(cls, tokenizer: Tokenizer, classes: tuple[str, ...] = ()) -> "Vocabularies":
        """Take one vocabulary for everything."""
        return cls(tokenizer, tokenizer, classes)

    @classmethod
    def load(cls, directory: Path, *, n_classes: int | None) -> "Vocabularies":
        """Read the vocabularies of a run.

        Raises:
            CheckpointError: A file is missing or damaged, or it does not have `n_classes` classes.

        """
        target = Tokenizer.load(directory / TARGET)
        source = Tokenizer.load(directory / SOURCE) if (directory / SOURCE).exists() else target
        classes = () if n_classes is None else _read_classes(directory / CLASSES, n_classes)
        return cls(source, target, classes, _read_text(directory / CHAT))

    def save(self, directory: Path) -> None:
        """Write the files of a run: tokenizer.json, and those that the model needs beside it."""
        self.target.save(directory / TARGET)
        if self.source is not self.target:
            self.source.save(directory / SOURCE)
        if self.classes:
            write_text(directory / CLASSES, json.dumps(self.classes, ensure_ascii=False, indent=2) + "\n")
        if self.chat_template is not None:
            write_text(directory / CHAT, self.chat_template)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _read_classes(path: Path, n: int) -> tuple[str, ...]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the names of the classes, {path}: {error}") from error
    # printable: no surrogate, no newline
    is_list = isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names)
    if not is_list or len(set(names)) != n or len(names) != n:
        raise CheckpointError(f"{path} must hold a list of {n} different names, as many as the model's classes")
    return tuple(names)
