"""The command line: its verbs, and how an error becomes one sentence and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage. The modules of the verbs import torch only when they are called.
"""

import os
import sys
import traceback
from typing import Annotated, TextIO

import typer

from glassformer.cli.check import check
from glassformer.cli.classify import classify
from glassformer.cli.compare import compare
from glassformer.cli.convert import convert
from glassformer.cli.count import count
from glassformer.cli.demo import demo
from glassformer.cli.evaluate import evaluate
from glassformer.cli.explore import explore
from glassformer.cli.generate import generate
from glassformer.cli.new import new
from glassformer.cli.positions import positions
from glassformer.cli.schedule import schedule
from glassformer.cli.score import score
from glassformer.cli.shapes import shapes
from glassformer.cli.steps import steps
from glassformer.cli.trace import trace
from glassformer.cli.train import train
from glassformer.cli.translate import translate
from glassformer.cli.verify import verify
from glassformer.errors import ConfigError, GlassformerError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
VERBS = (
    demo, new, check, train, translate, generate, classify, steps, score, evaluate, trace, count, shapes, positions,
    compare, schedule, verify, explore, convert,
)  # fmt: skip
for verb in VERBS:
    paragraphs = (verb.__doc__ or "").split("\n\n")
    app.command(help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(verb)


def _version(show: bool) -> None:
    if show:
        from glassformer import __version__

        typer.echo(f"glassformer {__version__}")
        raise typer.Exit


@app.callback()
def _glassformer(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """A Transformer you can train, run and see through."""


def main() -> None:
    """Run the command line."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        _run()
        return
    code = 0
    try:
        _run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # one of several processes: what PyTorch does when Python ends can wait for ever (the destructor of DDP for gloo's
    # thread, which waits for Python's lock), and then torchrun would not see that this one has failed
    os._exit(code)


def _run() -> None:
    for stream in (sys.stdout, sys.stderr):
        _use_utf8(stream)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here a full disk can still be told in a sentence
    except GlassformerError as error:
        typer.echo(f"glassformer: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer has nowhere to go
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"glassformer: cannot write the output: {error.strerror or error}", err=True)
        sys.exit(1)


def _use_utf8(stream: TextIO | None) -> None:
    """Write UTF-8 and plain newlines, whatever the locale says: a text comes out as it came in."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", newline="\n", errors="surrogateescape")
