"""`glassformer explore`: every number of one's own model, in a browser."""

import webbrowser
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from glassformer.errors import DataError


def explore(
    runs: Annotated[list[Path], typer.Argument(help="Finished runs.", show_default=False)],
    text: Annotated[str, typer.Option(help="The text to begin with. \\[default: one of the run's task]")] = "",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to serve the page; 0: a free port.", show_default=False)
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only say the address, and open no browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="Write one file that works offline instead, of the first run.", show_default=False),
    ] = None,
) -> None:
    """Walk through a model: each tensor with its numbers, each number proved on the page.

    The page is served on this machine alone, until Ctrl-C. With --export it is one HTML file: the machine, the walk
    and the attention of one text.
    """
    from glassformer.explorer.shelf import open_run

    shelved = [open_run(run) for run in runs]
    shelved[0].example = text  # another run may not be able to read it
    if export is not None:
        if len(runs) > 1:
            raise DataError(f"a file holds one run, not {len(runs)}: export each by itself")
        from glassformer.explorer.export import write_page

        left_out = write_page(shelved[0], export)
        typer.echo(f"wrote {export} ({export.stat().st_size / 2**20:.1f} MB)")
        for line in left_out:
            typer.echo(f"left out: {line}", err=True)
        return
    from glassformer.explorer.server import HOST, application, listen, serve

    page, bound = application(shelved), listen(port)
    address = f"http://{HOST}:{bound.getsockname()[1]}/"
    typer.echo(f"The explorer is at {address} (Ctrl-C ends it).")
    if not no_open:
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # one in the terminal stays open
    serve(page, bound)
