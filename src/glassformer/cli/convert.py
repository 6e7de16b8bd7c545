"""`glassformer convert`: models from elsewhere become runs, and runs what others read."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def convert(
    source: Annotated[
        Path,
        typer.Argument(help="A run, a directory as Hugging Face writes it (Llama, Marian, BERT), or a GGUF file."),
    ],
    out: Annotated[Path, typer.Argument(help="A directory that is not there yet.")],
    to: Annotated[Literal["run", "hf"], typer.Option("--to", help="Ours, or Hugging Face's layout.")] = "run",
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        typer.Option("--precision", help="Of a run's weights, on disk and at work.", show_default="as they are"),
    ] = None,
) -> None:
    """Turn a model from elsewhere into a run, or a run into what others read.

    What our model does not have is refused by name. Nothing that a file holds is executed: no pickle is read, and a
    chat template works in a sandbox, when it is used.
    """
    from glassformer.interop.convert import convert as converted

    if to != "run" and precision is not None:
        raise typer.BadParameter("the precision is that of a run's weights: leave it out", param_hint="--precision")
    for line in converted(source, out, to=to, precision=precision):
        typer.echo(line)
    typer.echo(f"{out} is ready")
