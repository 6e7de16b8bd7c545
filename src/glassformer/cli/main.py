"""The command line: finds the verb, and turns errors into one sentence and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import sys
from importlib import import_module
from typing import TextIO

import click
import typer
from typer.core import TyperGroup

from glassformer.errors import ConfigError, GlassformerError, nearest

VERBS = ("demo", "train", "translate", "steps", "trace", "count", "shapes", "positions", "schedule")


class Verbs(TyperGroup):
    """Imports the module of a verb when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb; each module `cli/VERB.py` holds a function of that name."""
        if cmd_name not in VERBS:
            return None
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(cmd_name)(getattr(import_module(f"glassformer.cli.{cmd_name}"), cmd_name))
        return typer.main.get_command(app)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer an unknown verb with the nearest right one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"there is no verb {args[0]!r}{nearest(args[0], VERBS)} Verbs: {', '.join(VERBS)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=Verbs, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(show: bool) -> None:
    if show:
        from glassformer import __version__

        typer.echo(f"glassformer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def _glassformer(
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """A Transformer you can train, run and see through."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        _use_utf8(stream)
    try:
        app()
    except GlassformerError as error:
        typer.echo(f"glassformer: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        typer.echo("glassformer: stopped", err=True)
        sys.exit(130)


def _use_utf8(stream: TextIO) -> None:
    """Write UTF-8 and plain newlines, whatever the locale says: a text comes out as it came in."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", newline="\n", errors="surrogateescape")
