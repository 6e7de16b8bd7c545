"""Lines in, lines out: a line ends at a newline and at nothing else."""

import sys
from collections.abc import Iterator, Sequence


def lines_of(arguments: Sequence[str] | None) -> Iterator[str]:
    """Yield each argument as a line, or without arguments the lines of standard input.

    Bytes that are not UTF-8 stay in their line as lone surrogates, for the tokenizer to refuse: one bad line does not
    take its neighbours with it.
    """
    if arguments:
        yield from (argument.replace("\n", " ") for argument in arguments)
        return
    if sys.stdin is None:  # closed by the caller
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark is no text
        yield line.decode("utf-8", errors="surrogateescape")


def chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines in groups of 64, the last one as long as it is; line by line where a person types them."""
    size = 1 if sys.stdin is not None and sys.stdin.isatty() else 64
    group: list[str] = []
    for line in lines:
        group.append(line)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
