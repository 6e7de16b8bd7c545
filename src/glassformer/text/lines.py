"""Lines of text: a line ends at a newline and at nothing else, whatever Unicode it holds."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from glassformer.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SURROGATE = re.compile("[\ud800-\udfff]")


def decoded(raw_lines: Iterable[bytes]) -> Iterator[str]:
    """Yield lines without their newlines (or CRLF), the first without a byte order mark.

    Bytes that are not UTF-8 stay as lone surrogates, so that one bad line does not take its neighbours with it: the
    tokenizer refuses that line.
    """
    for number, raw in enumerate(raw_lines, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield line.decode("utf-8", errors="surrogateescape")


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """Open a file of bytes, packed with gzip if its name ends in .gz.

    Raises:
        DataError: The file cannot be read.

    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def file_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, packed with gzip if its name ends in .gz.

    Raises:
        DataError: The file cannot be read.

    """
    with opened(path) as file:
        yield from decoded(file)


def has_surrogate(text: str) -> bool:
    """Return whether a text holds half a character: a byte that was not UTF-8, or what JSON writes as \\ud800."""
    return not text.isascii() and SURROGATE.search(text) is not None


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that must be UTF-8 throughout.

    Raises:
        DataError: The file cannot be read; or a line is not UTF-8, and which.

    """
    for number, line in enumerate(file_lines(path), start=1):
        if has_surrogate(line):
            raise DataError(f"{path}, line {number} is not UTF-8; convert the file first")
        yield line


def whole_text(path: Path) -> Iterator[str]:
    """Yield a text line by line with its newlines: put together they are the file, without CR before them or a BOM.

    Raises:
        DataError: The file cannot be read; or a line is not UTF-8, and which.

    """
    ended = True  # whether the line before ended in a newline, as all but the last one must

    def noted(raw_lines: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal ended
        for raw in raw_lines:
            ended = raw.endswith(b"\n")
            yield raw

    with opened(path) as file:
        for number, line in enumerate(decoded(noted(file)), start=1):
            if has_surrogate(line):
                raise DataError(f"{path}, line {number} is not UTF-8; convert the file first")
            yield line + "\n" if ended else line


def read_lines(path: Path) -> list[str]:
    """Return all lines of a file.

    Raises:
        DataError: The file cannot be read; or a line is not UTF-8, and which.

    """
    return list(text_lines(path))


def uneven(path: Path, count: int, other: Path, other_count: int) -> DataError:
    """Return the error of two files that should have as many lines."""
    return DataError(
        f"{path} has {count} lines, but {other} has {other_count}: line i of the one must belong to line i of the other"
    )


def read_parallel(paths: Sequence[Path]) -> list[list[str]]:
    """Return the lines of files of which line i of each belongs to line i of the others.

    Raises:
        DataError: A file cannot be read or is not UTF-8; or they do not have as many lines, and how many each has.

    """
    files = [read_lines(path) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        if len(lines) != len(files[0]):
            raise uneven(paths[0], len(files[0]), path, len(lines))
    return files


def one_line(text: str) -> str:
    """Return the text with a blank for each newline and carriage return that the model wrote: one result, one line."""
    return text.replace("\n", " ").replace("\r", " ")
