"""`glassformer compare`: two architectures, part by part."""

import shutil
import textwrap
from typing import Annotated

import typer

from glassformer.cli.options import JsonOption
from glassformer.cli.show import print_json
from glassformer.config import load_config

NARROWEST = 60


def compare(
    a: Annotated[str, typer.Argument(help="A preset, a file, or a run.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Another.", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Set two architectures side by side, part by part, with what speaks for each change.

    The 2017 base model and one of 2024: glassformer compare paper-base smollm2-135m
    """
    first, second = load_config(a), load_config(b)
    from glassformer.inspect.compare import compare as compared

    rows = compared(first, second)
    if json:
        print_json({"first": a, "second": b, "parts": rows})
        return
    width = max(NARROWEST, min(110, shutil.get_terminal_size((100, 24)).columns))
    margin = max(len(row.part) for row in rows) + 2
    names = max(len(a), len(b)) + 2
    for row in rows:
        values = [(a, row.first), (b, row.second)] if row.first != row.second else [("both", row.first)]
        for i, (name, value) in enumerate(values):
            head = (row.part if i == 0 else "").ljust(margin) + name.ljust(names)
            typer.echo(textwrap.fill(value, width, initial_indent=head, subsequent_indent=" " * (margin + names)))
        if row.first != row.second:
            typer.echo(textwrap.fill(row.why, width, initial_indent=" " * margin, subsequent_indent=" " * margin))
        typer.echo()
