"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

LARGEST = 10**9  # of what is asked for in a number; more is a slip of the hand

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
ConfigArgument = Annotated[
    str, typer.Argument(metavar="X", help="A preset, a TOML file, or a run directory.", show_default=False)
]
TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts, one an argument; without any, the lines of standard input."),
]
InputOption = Annotated[
    list[Path] | None,
    typer.Option("--input", metavar="FILE", help="Read the lines of this file instead, .gz too. Repeatable."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field: --set model.d_model=128, or take it out: --set train.epochs= . Repeatable.",
    ),
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        metavar="RUN",
        help="Another run of the same vocabulary; the mean of their probabilities counts. Repeatable.",
    ),
]
BatchSizeOption = Annotated[
    int, typer.Option(metavar="N", min=1, max=LARGEST, help="Lines that are worked on together.")
]
TruncateOption = Annotated[
    bool, typer.Option("--truncate", help="Cut texts that are longer than learned positions instead of refusing them.")
]
DeviceOption = Annotated[str, typer.Option(metavar="DEVICE", help="Where the model works: cpu, cuda, cuda:1, mps.")]
EngineOption = Annotated[
    Literal["ctranslate2", "onnx"] | None,
    typer.Option("--engine", help="Write with this one, from a directory that `convert --to` has made."),
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
