"""What was read from elsewhere, and the settings of a file that says what its model is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glassformer.config.run import Config
from glassformer.errors import CheckpointError
from glassformer.text.vocabularies import Vocabularies


@dataclass(frozen=True)
class Foreign:
    """A model from elsewhere, as a run of ours has it."""

    config: Config
    tensors: Mapping[str, Tensor]  # by our names
    vocabularies: Vocabularies
    left_out: Sequence[str] = field(default=())  # of the file, which our model does not need: in words
    chat_template: str | None = None


class Settings:
    """The fields of a config.json, each read by name; one that nobody reads, and that says something, is refused."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        if not isinstance(values, Mapping):
            raise CheckpointError(f"{where} holds a {type(values).__name__}, where a table of settings belongs")
        self.values, self.where = values, where
        self._read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or what it means that it is not there."""
        self._read.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def text(self, name: str, default: str) -> str:
        """Return a field that must be a text.

        Raises:
            CheckpointError: It is something else.

        """
        value = self.get(name, default)
        if not isinstance(value, str):
            raise CheckpointError(f"{self.where} has {name}={value!r}, where a text belongs")
        return value

    def count(self, name: str) -> int:
        """Return a field that must be a whole number above 0.

        Raises:
            CheckpointError: It is missing, or something else.

        """
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"{self.where} has {name}={value!r}, where a whole number above 0 belongs")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a field that must be a number.

        Raises:
            CheckpointError: It is something else.

        """
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CheckpointError(f"{self.where} has {name}={value!r}, where a number belongs")
        return float(value)

    def choice(self, name: str, choices: Mapping[Any, Any], default: Any) -> Any:
        """Return what a field's value is called here.

        Raises:
            CheckpointError: We have nothing of this kind.

        """
        value = self.get(name, default)
        if not isinstance(value, str | int | float | bool) or value not in choices:
            known = ", ".join(map(repr, choices))
            raise CheckpointError(f"{self.where} has {name}={value!r}, which we do not have; we have {known}")
        return choices[value]

    def only(self, name: str, allowed: Any) -> None:
        """Refuse a field with another value than this one.

        Raises:
            CheckpointError: It has.

        """
        value = self.get(name, allowed)
        if value != allowed:
            raise CheckpointError(f"{self.where} has {name}={value!r}, which we do not have; only {allowed!r} is read")

    def ignore(self, *names: str) -> None:
        """Pass over fields that change nothing of what a trained model computes."""
        self._read |= set(names)

    def check(self) -> None:
        """Refuse fields that nobody has read, unless they say nothing.

        Raises:
            CheckpointError: There is one.

        """
        for name, value in self.values.items():
            if name not in self._read and value not in (None, False, 0, "", [], {}):
                raise CheckpointError(
                    f"{self.where} has {name}={value!r}, which we do not know: it may change what the model computes"
                )
