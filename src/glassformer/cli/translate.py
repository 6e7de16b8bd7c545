"""`glassformer translate`: lines in, translated lines out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.decoding import decoding
from glassformer.cli.lines import lines_of
from glassformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    EngineOption,
    EnsembleOption,
    InputOption,
    JsonOption,
    RunArgument,
    TextsArgument,
    TruncateOption,
)
from glassformer.cli.show import counted
from glassformer.cli.writing import Shown, open_writer, write_lines

if TYPE_CHECKING:
    from glassformer.writer import Writer


@decoding()
def translate(
    run: RunArgument,
    text: TextsArgument = None,
    input: InputOption = None,
    po: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Translate what this PO catalogue lacks, and print the catalogue; what lost a placeholder is fuzzy.",
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What every translation begins with.")] = "",
    scores: Annotated[
        bool, typer.Option("--scores", help="Print score and log-probability before the text, with tabs between.")
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Print where each target token looked, before the text: source-target, counted from 0 (Pharaoh).",
        ),
    ] = False,
    engine: EngineOption = None,
    ensemble: EnsembleOption = None,
    batch_size: BatchSizeOption = 64,
    truncate: TruncateOption = False,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
    decode: dict[str, Any] = {},  # noqa: B006  filled by `decoding`
) -> None:
    """Translate each line with a trained encoder–decoder; a blank line stays blank.

    A line that the vocabulary cannot read gives an empty line, a message on standard error, and exit code 1 at the
    end. With --n-best the number of the line and the rank stand before each result.
    """
    if alignments and engine is not None:
        raise typer.BadParameter("an engine gives texts and scores only", param_hint="--alignments")
    writer = open_writer("translate", run, engine, decode, ensemble=ensemble, device=device, batch_size=batch_size,
                         truncate=truncate)  # fmt: skip
    if po is not None:
        if text or input or prefix or scores or alignments or json or writer.config.n_best > 1:
            raise typer.BadParameter("a catalogue is read and printed as a whole: leave the other options out")
        _translate_catalogue(writer, po)
        return
    writer.prompt("", prefix=prefix)  # if the prefix is wrong, it is wrong for every line
    shown = Shown(scores=scores, alignments=alignments, n_best=writer.config.n_best > 1, json=json)
    write_lines(writer, lines_of(text, input), shown, prefix=prefix)


def _translate_catalogue(writer: "Writer", path: Path) -> None:
    from glassformer.messages import translate_catalogue

    text, tally = translate_catalogue(writer, path)
    typer.echo(text, nl=False)
    typer.echo(
        f"{counted(tally.translated, 'message')} translated, {tally.fuzzy:,} of them marked fuzzy (a placeholder is "
        f"missing, or a part of the text); {tally.empty:,} without a result, {tally.kept:,} left as they were",
        err=True,
    )
