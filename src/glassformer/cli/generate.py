"""`glassformer generate`: texts in, what comes after them out."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.decoding import decoding
from glassformer.cli.lines import Line, Tally, lines_of
from glassformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    EngineOption,
    EnsembleOption,
    InputOption,
    JsonOption,
    RunArgument,
    TextsArgument,
)
from glassformer.cli.show import counted
from glassformer.cli.writing import Shown, open_writer, write_lines
from glassformer.errors import DataError, DecodingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glassformer.writer import Writer


@decoding()
def generate(
    run: RunArgument,
    text: TextsArgument = None,
    input: InputOption = None,
    with_prompt: Annotated[bool, typer.Option("--with-prompt", help="Print the text that was read, too.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each token as soon as it is chosen, newlines as they are.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Each line is a message to a model that answers, by its chat template.")
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print score and log-probability before the text, with tabs between.")
    ] = False,
    engine: EngineOption = None,
    ensemble: EnsembleOption = None,
    batch_size: BatchSizeOption = 64,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
    decode: dict[str, Any] = {},  # noqa: B006  filled by `decoding`
) -> None:
    """Go on from each line with a trained decoder-only model; a blank line stays blank.

    Newlines that the model writes are printed as blanks, so that each line of input has one of output; --stream and
    --json keep them. A line that cannot be read gives an empty line, a message on standard error, and exit code 1.
    """
    if stream and (json or scores):
        raise typer.BadParameter("a stream is text alone: leave --json and --scores out", param_hint="--stream")
    if json and with_prompt:
        raise typer.BadParameter("JSON holds the prompt anyway", param_hint="--with-prompt")
    writer = open_writer("generate", run, engine, decode, ensemble=ensemble, device=device, batch_size=batch_size,
                         chat=chat)  # fmt: skip
    if stream:
        _stream(writer, lines_of(text, input), with_prompt=with_prompt)
        return
    shown = Shown(
        source="prompt",
        target="continuation",
        scores=scores,
        with_prompt=with_prompt,
        n_best=writer.config.n_best > 1,
        json=json,
    )
    write_lines(writer, lines_of(text, input), shown)


def _stream(writer: "Writer", lines: "Iterator[Line]", *, with_prompt: bool) -> None:
    tally = Tally()
    for line in lines:
        try:
            prompt = writer.prompt(line.text, number=line.number)
        except (DataError, DecodingError) as error:
            tally.add(line, str(error))
        else:
            tally.add(line, None, n_unknown=prompt.n_unknown)
            pieces = writer.stream(prompt, with_prompt=with_prompt)
            for piece in pieces:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
            if pieces.stopped == "limit":
                typer.echo(f"{line.where}: cut at the length limit of {counted(prompt.limit, 'token')}", err=True)
        typer.echo()
    tally.close()
