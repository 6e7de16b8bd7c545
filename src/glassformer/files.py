"""Files that are either whole or not there."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.errors import CheckpointError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; on success it takes the place of `path` in one step.

    Whatever goes wrong (a full disk, Ctrl-C), the temporary file is removed and what stood at `path`
    stays as it was.

    Raises:
        CheckpointError: The system refused to write.

    """
    path = path.resolve()  # through a link, so that the link stays one
    if path.exists() and not path.is_file():
        raise CheckpointError(f"cannot write {path}: it is there and is not a file; choose another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # before the rename, or a power cut can leave an empty file under the name
        temporary.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free some space, or choose another place" if full else "choose another place"
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed there: {advice}"
        ) from error
    finally:
        with suppress(OSError):  # where there is no such directory, for one
            temporary.unlink()


@contextmanager
def directory_written_whole(path: Path) -> Iterator[Path]:
    """Give a directory to write into; on success it takes the place of `path`, which is not there yet, or empty.

    Whatever goes wrong, nothing of it is left.

    Raises:
        CheckpointError: The system refused to write.

    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}; nothing was changed there") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
