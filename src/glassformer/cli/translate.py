"""`glassformer translate`: lines in, translated lines out."""

import sys
from typing import Annotated

import typer

from glassformer.cli.lines import chunks, lines_of
from glassformer.cli.options import JsonOption, MaxLengthOption, RunArgument
from glassformer.cli.show import print_json
from glassformer.errors import DataError


def translate(
    run: RunArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, one an argument; without any, the lines of standard input."),
    ] = None,
    max_length: MaxLengthOption = None,
    json: JsonOption = False,
) -> None:
    """Translate each line with a trained encoder–decoder; a blank line stays blank.

    A line that the vocabulary cannot read gives an empty line, a message on standard error, and exit code 1 at the end.
    """
    from glassformer.run import load

    loaded = load(run)
    unreadable = n_lines = 0
    for group in chunks(lines_of(text)):
        sources: list[list[int]] = []
        problems: dict[int, str] = {}
        for i, line in enumerate(group):
            try:
                sources.append(loaded.read(line))
            except DataError as error:
                problems[i] = str(error)
                sources.append([])
        for i, found in enumerate(loaded.translate_ids(sources, max_length=max_length)):
            n_lines += 1
            if i in problems:
                typer.echo(f"line {n_lines}: {problems[i]}", err=True)
            if found.stopped == "limit":
                typer.echo(f"line {n_lines}: cut at the length limit of {len(found.tokens)} tokens", err=True)
            if json:
                result: dict[str, object] = {"source": group[i], "target": found.text, "tokens": found.tokens}
                result |= {"log_probability": found.log_probability, "stopped": found.stopped}
                print_json(result | ({"stopped": "unreadable", "error": problems[i]} if i in problems else {}))
            else:
                typer.echo(found.text)
        unreadable += len(problems)
        if sys.stdout is not None:
            sys.stdout.flush()
    if unreadable:
        raise typer.Exit(1)
