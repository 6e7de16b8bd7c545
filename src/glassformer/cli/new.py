"""`glassformer new`: a configuration to begin with, every field explained."""

from pathlib import Path
from typing import Annotated

import typer

from glassformer.config import preset
from glassformer.config.comments import commented
from glassformer.errors import ConfigError
from glassformer.files import write_text


def new(
    name: Annotated[str, typer.Argument(metavar="PRESET", help="The preset to begin with.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Where it goes.", show_default=False)],
) -> None:
    """Write a preset as a TOML file of your own, in which every field stands with what it means."""
    config = preset(name)
    if file.suffix != ".toml":
        raise ConfigError(f"{file}: the name of a configuration must end in .toml, such as {file.stem or 'my'}.toml")
    if not file.parent.is_dir():
        raise ConfigError(f"there is no folder {file.parent}: make it first, or choose another place for {file.name}")
    if file.exists():
        raise ConfigError(f"{file} is there already and is never written over: choose another name, or remove it")
    write_text(file, commented(config, str(file)))
    missing = [f"[{table}]" for table in ("data", "train") if getattr(config, table) is None]
    before = f" Fill in {' and '.join(missing)} first." if missing else ""
    typer.echo(f"The configuration is in {file}. Train it: glassformer train {file}{before and '.'}{before}")
