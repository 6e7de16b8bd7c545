"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

LARGEST = 10**9  # of what is asked for in a number; more is a slip of the hand

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
ConfigArgument = Annotated[
    str, typer.Argument(metavar="X", help="A preset, a TOML file, or a run directory.", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field: --set model.d_model=128. Repeatable."),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=LARGEST,
        help="Write at most so many tokens, the end token included. [default: source length + decode.extra_length]",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def numbers(text: str, option: str, *, smallest: int) -> list[int]:
    """Read "1,100,1600" as whole numbers of at least `smallest`."""
    try:
        found = [int(part.strip().replace("_", "")) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: write whole numbers with commas between, such as 1,100,1600", param_hint=option
        ) from None
    for number in found:
        if not smallest <= number <= LARGEST:
            raise typer.BadParameter(f"{number} is not between {smallest} and {LARGEST:,}", param_hint=option)
    return found
