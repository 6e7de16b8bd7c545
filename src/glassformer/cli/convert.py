"""`glassformer convert`: models from elsewhere become runs, and runs what others read."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def convert(
    source: Annotated[
        Path,
        typer.Argument(help="A run, a directory of Hugging Face (Llama, Marian, BERT) or CTranslate2, or a GGUF file."),
    ],
    out: Annotated[Path, typer.Argument(help="A directory that is not there yet.")],
    to: Annotated[Literal["run", "hf", "ctranslate2", "onnx"], typer.Option("--to", help="The format.")] = "run",
    precision: Annotated[
        Literal["float32", "bfloat16", "int8"] | None,
        typer.Option(
            "--precision",
            help="Of a run: float32 or bfloat16; of CTranslate2: float32 or int8; ONNX is float32.",
            show_default="as they are",
        ),
    ] = None,
) -> None:
    """Turn a model from elsewhere into a run, or a run into what others read.

    What our model does not have is refused by name. Nothing that a file holds is executed: no pickle is read, and a
    chat template works in a sandbox, when it is used.
    """
    from glassformer.interop.convert import PRECISIONS
    from glassformer.interop.convert import convert as converted

    if precision not in (None, *PRECISIONS[to]):
        allowed = " or ".join(PRECISIONS[to]) or "only that of the weights, so leave it out"
        raise typer.BadParameter(f"the format {to} has no {precision}; it has {allowed}", param_hint="--precision")
    for line in converted(source, out, to=to, precision=precision):
        typer.echo(line)
    typer.echo(f"{out} is ready")
