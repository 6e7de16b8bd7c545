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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import CheckpointError, DataError
from glassformer.files import write_text

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


def cache_directory() -> Path:
    """Return where token ids are kept: GLASSFORMER_CACHE, or glassformer/ in the user's folder for caches."""
    own = os.environ.get("GLASSFORMER_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


class Sources:
    """Files that the content of the cache is made from: each is read for its name once, and may not change then."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, int] | None, bytes]] = {}

    def name(self, paths: Iterable[Path], *others: str) -> str:
        """Return a name that changes with the content of the files and with all else that makes the ids.

        Raises:
            DataError: A file cannot be read.

        """
        digest = hashlib.sha256(repr((VERSION, others)).encode())
        for path in paths:
            if path not in self._seen:
                self._seen[path] = _state(path), _digest(path)  # in this order: a change while it is read is one too
            digest.update(self._seen[path][1])
        return digest.hexdigest()[:32]

    def check(self, paths: Iterable[Path]) -> None:
        """Refuse what was made from files that are no longer those that were named: the name would lie for ever.

        Raises:
            DataError: A file has changed, and which.

        """
        for path in paths:
            if _state(path) != self._seen[path][0]:
                raise DataError(f"{path} changed while it was read; run the same command again")


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


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
    if not about.is_file():
        _write(place, sides, dtype, make)
    with _keeping(place):
        counts = Counter(json.loads(about.read_text(encoding="utf-8")))
        lengths = {side: np.fromfile(place / f"{side}.lengths", np.uint32) for side in sides}
        rows = {side: Rows(lengths[side], place / f"{side}.ids", dtype.name) for side in sides}
        for side in sides:
            if (place / f"{side}.ids").stat().st_size != rows[side].size * dtype.itemsize:
                raise ValueError(f"{side}.ids is damaged")
    return rows, counts


def kept(name: str, make: Callable[[], str]) -> Path:
    """Return a file of the cache, with the text that `make` gives if it is not there.

    Raises:
        DataError: The cache cannot be written.

    """
    path = cache_directory() / name
    if not path.is_file():
        text = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except (OSError, CheckpointError) as error:
            raise DataError(
                f"cannot keep a vocabulary: {error}; name another place in the environment variable GLASSFORMER_CACHE"
            ) from error
    return path


@contextmanager
def _keeping(place: Path) -> Iterator[None]:
    """Say what the cache did not do: only its own files are touched here, none that ids are made from."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(
            f"cannot keep token ids in {place}: {reason}; remove that folder, or name another place in the "
            "environment variable GLASSFORMER_CACHE"
        ) from error


def _write(place: Path, sides: Sequence[str], dtype: Unsigned, make: Make) -> None:
    """Make the rows in a folder of their own, and give it its name when it is whole."""
    with _keeping(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    new, counts = own / "new", Counter[str]()
    try:
        with _keeping(place):
            new.mkdir(mode=0o700)
            _append(new, dict.fromkeys(sides, ()), dtype)  # the files, even if there are no rows
        for some in make(counts):
            with _keeping(place):
                _append(new, dict(zip(sides, some, strict=True)), dtype)
        with _keeping(place):
            (new / "about.json").write_text(json.dumps(counts), encoding="utf-8")
            _rename(new, place)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _append(folder: Path, rows: Mapping[str, Sequence[Sequence[int]]], dtype: Unsigned) -> None:
    for side, some in rows.items():
        with (folder / f"{side}.ids").open("ab") as ids:
            ids.writelines(np.array(row, dtype).tobytes() for row in some)
        with (folder / f"{side}.lengths").open("ab") as lengths:
            lengths.write(np.array([len(row) for row in some], np.uint32).tobytes())


def _rename(new: Path, place: Path) -> None:
    """Give a folder its name; one that stands there and is whole stays, as another process may be reading it."""
    try:
        new.rename(place)
    except OSError:  # something stands there
        if not (place / "about.json").is_file():
            place.rename(new.with_name("old"))  # moved aside first: nobody sees half of a folder
            new.rename(place)
