"""Lines of text: a line ends at a newline and at nothing else, whatever Unicode it holds."""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from glassformer.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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


def file_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, packed with gzip if its name ends in .gz.

    Raises:
        DataError: The file cannot be read.

    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decoded(file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_lines(path: Path) -> list[str]:
    """Return all lines of a file.

    Raises:
        DataError: The file cannot be read; or a line is not UTF-8, and which.

    """
    lines = list(file_lines(path))
    for number, line in enumerate(lines, start=1):
        if not line.isascii() and any("\udc80" <= character <= "\udcff" for character in line):
            raise DataError(f"{path}, line {number} is not UTF-8; convert the file first")
    return lines


def read_parallel(paths: Sequence[Path]) -> list[list[str]]:
    """Return the lines of files of which line i of each belongs to line i of the others.

    Raises:
        DataError: A file cannot be read or is not UTF-8; or they do not have as many lines, and how many each has.

    """
    files = [read_lines(path) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        if len(lines) != len(files[0]):
            raise DataError(
                f"{paths[0]} has {len(files[0])} lines, but {path} has {len(lines)}: "
                "line i of the one must belong to line i of the other"
            )
    return files


def one_line(text: str) -> str:
    """Return the text with a blank for each newline and carriage return that the model wrote: one result, one line."""
    return text.replace("\n", " ").replace("\r", " ")
