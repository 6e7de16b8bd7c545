"""Lines in, lines out: a line ends at a newline and at nothing else."""

import sys
from collections.abc import Iterator, Sequence

from glassformer.errors import DataError


def lines_of(arguments: Sequence[str] | None) -> Iterator[str]:
    """Yield each argument as a line, or without arguments the lines of standard input.

    Raises:
        DataError: A line of standard input is not UTF-8; the message names it.

    """
    if arguments:
        yield from (argument.replace("\n", " ") for argument in arguments)
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark is no text
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"line {number} of standard input is not UTF-8 (byte {error.start + 1}); convert the text first"
            ) from None


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield the lines in groups of `size`, the last one as long as it is."""
    group: list[str] = []
    for line in lines:
        group.append(line)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
