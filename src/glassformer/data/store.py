"""Token ids on disk: written once, named by what they were made from, read an example at a time.

A corpus may be larger than memory. What stays in memory is the length of each example, four bytes a side.
"""

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import CheckpointError, DataError

VERSION = 1  # of the layout on disk
Unsigned = np.dtype[np.uint16] | np.dtype[np.uint32]
BLOCK = 256  # examples between two offsets that are kept


class Rows:
    """Rows of ids, in memory or in a file."""

    def __init__(self, lengths: NDArray[np.uint32], ids: NDArray[np.integer] | Path, dtype: str = "int64") -> None:
        self.lengths, self._dtype = lengths, np.dtype(dtype)
        self._ids = None if isinstance(ids, Path) else ids
        self._file = ids.open("rb", buffering=0) if isinstance(ids, Path) else None
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        self._starts = np.zeros(len(range(0, len(lengths), BLOCK)) + 1, np.int64)  # of every block, and the end
        if len(lengths):
            sums = np.add.reduceat(lengths, np.arange(0, len(lengths), BLOCK), dtype=np.int64)
            self._starts[1:] = np.cumsum(sums)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Keep rows in memory."""
        ids = np.concatenate([np.asarray(row, np.int64) for row in rows]) if rows else np.zeros(0, np.int64)
        return cls(np.array([len(row) for row in rows], np.uint32), ids)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)

    def __getitem__(self, i: int) -> NDArray[np.integer]:
        """Return the ids of a row."""
        block = i // BLOCK
        start = int(self._starts[block]) + int(self.lengths[block * BLOCK : i].sum(dtype=np.int64))
        return self.flat(start, start + int(self.lengths[i]))

    def flat(self, start: int, end: int) -> NDArray[np.integer]:
        """Return ids by their places in all rows, one after the other."""
        if self._ids is not None:
            return self._ids[start:end]
        assert self._file is not None
        self._file.seek(start * self._dtype.itemsize)
        return np.frombuffer(self._file.read((end - start) * self._dtype.itemsize), self._dtype)

    @property
    def size(self) -> int:
        """Number of ids in all rows."""
        return int(self._starts[-1])


class _Writing:
    """A file of rows while it is written."""

    def __init__(self, directory: Path, name: str, dtype: Unsigned) -> None:
        self._dtype = dtype
        self._ids: BinaryIO = (directory / f"{name}.ids").open("wb")
        self._lengths: BinaryIO = (directory / f"{name}.lengths").open("wb")

    def __enter__(self) -> "_Writing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids.close()
        self._lengths.close()

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        self._lengths.write(np.array([len(row) for row in rows], np.uint32).tobytes())
        for row in rows:
            self._ids.write(np.array(row, self._dtype).tobytes())


def cache_directory() -> Path:
    """Return where token ids are kept: GLASSFORMER_CACHE, or glassformer/ in the user's folder for caches."""
    own = os.environ.get("GLASSFORMER_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def name_of(paths: Iterable[Path], *others: str) -> str:
    """Return a name that changes with the content of the files and with all else that makes the ids.

    Raises:
        DataError: A file cannot be read.

    """
    digest = hashlib.sha256(repr((VERSION, others)).encode())
    for path in paths:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()[:32]


Make = Callable[[Counter[str]], Iterator[Sequence[Sequence[Sequence[int]]]]]


def stored(name: str, sides: Sequence[str], largest_id: int, make: Make) -> tuple[dict[str, Rows], Counter[str]]:
    """Return the rows of each side, from the cache or made now; and what was counted when they were made.

    Args:
        name: In the cache.
        sides: Such as ("source", "target").
        largest_id: No id is larger: two bytes an id, or four.
        make: Takes a counter to fill, and yields some rows of every side at a time.

    Raises:
        DataError: The cache cannot be written.

    """
    place = cache_directory() / name
    dtype: Unsigned = np.dtype(np.uint16) if largest_id < 2**16 else np.dtype(np.uint32)
    about = place / "about.json"
    try:
        if not about.is_file():
            _write(place, sides, dtype, make)
        counts = Counter(json.loads(about.read_text(encoding="utf-8")))
        lengths = {side: np.fromfile(place / f"{side}.lengths", np.uint32) for side in sides}
        rows = {side: Rows(lengths[side], place / f"{side}.ids", dtype.name) for side in sides}
        for side in sides:
            if (place / f"{side}.ids").stat().st_size != rows[side].size * dtype.itemsize:
                raise ValueError(f"{side}.ids is damaged")
        return rows, counts
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(
            f"cannot keep token ids in {place}: {reason}; remove that folder, or name another place in the "
            "environment variable GLASSFORMER_CACHE"
        ) from error


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file of the cache; `make` writes it, whole, if it is not there.

    Raises:
        DataError: The cache cannot be written.

    """
    path = cache_directory() / name
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)
        except (OSError, CheckpointError) as error:
            raise DataError(
                f"cannot keep a vocabulary: {error}; name another place in the environment variable GLASSFORMER_CACHE"
            ) from error
    return path


def _write(place: Path, sides: Sequence[str], dtype: Unsigned, make: Make) -> None:
    """Make the rows in a folder of their own, and give it its name when it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        with ExitStack() as opened:
            files = [opened.enter_context(_Writing(temporary, side, dtype)) for side in sides]
            for some in make(counts):
                for file, rows in zip(files, some, strict=True):
                    file.add(rows)
        (temporary / "about.json").write_text(json.dumps(counts), encoding="utf-8")
        try:
            temporary.rename(place)
        except OSError:  # something stands there
            if (place / "about.json").is_file():  # another process was faster, and reads what it made
                return
            remains = temporary.with_suffix(".old")  # moved aside first: nobody sees half of a folder
            place.rename(remains)
            temporary.rename(place)
            shutil.rmtree(remains, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
