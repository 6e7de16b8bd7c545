"""CTranslate2's model.bin: a header, variables by name, and names that stand for others."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import CheckpointError

KINDS = ("TransformerSpec", "TransformerDecoderSpec", "TransformerBase", "TransformerBig")
VERSIONS = range(2, 7)
TYPES = ("<f4", "<i1", "<i2", "<i4", "<f2", "bfloat16")  # by number, from version 4 on
SIZES = {1: "<i1", 2: "<i2", 4: "<f4"}  # by bytes, before


def read_variables(path: Path) -> dict[str, NDArray[Any]]:
    """Return every variable of a file by its names.

    Raises:
        CheckpointError: The file is damaged, or of another version or kind.

    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    try:
        reader = _Reader(raw)
        version = reader.number("I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}; we read {VERSIONS.start} to {VERSIONS.stop - 1}")
        kind, _ = reader.text(), reader.number("I")
        if kind not in KINDS:
            raise CheckpointError(f"{path} is of kind {kind!r}; we read {', '.join(KINDS)}")
        found = {}
        for _ in range(reader.number("I")):
            name, array = reader.variable(typed=version >= 4)
            found[name] = array
        for _ in range(reader.number("I") if version >= 3 else 0):
            alias, name = reader.text(), reader.text()
            found[alias] = found[name]
            if f"{name}_scale" in found:
                found[f"{alias}_scale"] = found[f"{name}_scale"]
        if reader.place != len(raw):
            raise ValueError(f"{len(raw) - reader.place} bytes are left at its end")
    except (ValueError, KeyError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is no CTranslate2 model, or damaged: {error}") from error
    if kind == "TransformerBig":
        found.setdefault("encoder/num_heads", np.array(16))
        found.setdefault("decoder/num_heads", np.array(16))
    return found


class _Reader:
    """Reads a file from its beginning; what stands past the end is a ValueError, however large its size says it is."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.place = raw, 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack(f"<{kind}", self._bytes(struct.calcsize(kind)))[0]
        return value

    def text(self) -> str:
        return self._bytes(self.number("H")).rstrip(b"\0").decode()

    def variable(self, *, typed: bool) -> tuple[str, NDArray[Any]]:
        name = self.text()
        shape = [self.number("I") for _ in range(self.number("B"))]
        kind, size = self.number("B"), self.number("I")
        if not typed:
            kind, size = TYPES.index(SIZES[kind]), size * kind
        raw = self._bytes(size)
        if TYPES[kind] == "bfloat16":
            whole = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
            return name, whole.view(np.float32).reshape(shape)
        return name, np.frombuffer(raw, TYPES[kind]).reshape(shape)

    def _bytes(self, n: int) -> bytes:
        if self.place + n > len(self._raw):
            raise ValueError(f"it ends after {len(self._raw):,} bytes, in the middle of something")
        self.place += n
        return self._raw[self.place - n : self.place]
