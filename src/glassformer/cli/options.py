"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
ConfigArgument = Annotated[
    str, typer.Argument(metavar="X", help="A preset, a TOML file, or a run directory.", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field: --set model.d_model=128. Repeatable."),
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
    if min(found) < smallest:
        raise typer.BadParameter(f"{min(found)} is too small: the smallest is {smallest}", param_hint=option)
    return found
