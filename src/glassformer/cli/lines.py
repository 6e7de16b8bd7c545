"""What the text verbs read: arguments, files, or standard input; and how they write one line for each."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from glassformer.cli.show import counted
from glassformer.errors import DataError
from glassformer.text.lines import decoded, file_lines


class Line(NamedTuple):
    """One line of input."""

    number: int  # counted from 1 over all of the input
    where: str  # for messages: "line 7", "corpus.en, line 7"
    text: str
    is_typed: bool  # by a person who waits for the answer


def lines_of(arguments: Sequence[str] | None, files: Sequence[Path] | None = None) -> Iterator[Line]:
    """Yield each argument as a line, or the lines of the files one after the other, or those of standard input."""
    if arguments and files:
        raise typer.BadParameter("give texts as arguments or files with --input, not both", param_hint="--input")
    for path in files or ():
        if not path.exists():
            raise DataError(f"cannot read {path}: No such file or directory")
    is_typed = not arguments and not files and sys.stdin is not None and sys.stdin.isatty()
    for number, (where, text) in enumerate(_read(arguments, files), start=1):
        yield Line(number, where or f"line {number}", text, is_typed)


class Tally:
    """The lines that could not be read or were cut: told when they come, and once more at the end."""

    def __init__(self) -> None:
        self.unreadable = self.cut = self.unknown = 0

    def add(self, line: Line, problem: str | None, *, n_cut: int = 0, n_unknown: int = 0) -> None:
        """Count a line, and say on standard error what is wrong with it."""
        if problem is not None:
            typer.echo(f"{line.where}: {problem}", err=True)
            self.unreadable += 1
        self.cut += n_cut > 0
        self.unknown += n_unknown > 0

    def close(self) -> None:
        """Say how many lines were cut, and how many hold what the vocabulary does not have.

        Raises:
            typer.Exit: With code 1, where a line could not be read.

        """
        if self.cut:
            typer.echo(f"{counted(self.cut, 'line')} longer than the model takes: cut", err=True)
        if self.unknown:
            typer.echo(f"{counted(self.unknown, 'line')} with tokens that the vocabulary does not know", err=True)
        if self.unreadable:
            raise typer.Exit(1)


def chunks(lines: Iterator[Line], batch_size: int) -> Iterator[list[Line]]:
    """Yield the lines in groups of many batches, to be sorted by length inside; send off what was printed for each.

    Line by line where a person types them, and where a batch is one line: then each is answered before the next.
    """
    group: list[Line] = []
    try:
        for line in lines:
            group.append(line)
            if line.is_typed or batch_size == 1 or len(group) == 16 * batch_size:
                yield group
                _flush()
                group = []
    except DataError:  # a file that ends in the middle: what came before is good
        if group:
            yield group
        raise
    if group:
        yield group
        _flush()


def _flush() -> None:
    if sys.stdout is not None:  # else closed by the caller
        sys.stdout.flush()


def _read(arguments: Sequence[str] | None, files: Sequence[Path] | None) -> Iterator[tuple[str, str]]:
    if arguments:
        yield from (("", argument.replace("\n", " ")) for argument in arguments)
    elif files:
        for path in files:
            yield from ((f"{path}, line {number}", text) for number, text in enumerate(file_lines(path), start=1))
    elif sys.stdin is not None:  # else closed by the caller
        yield from (("", text) for text in decoded(sys.stdin.buffer))
