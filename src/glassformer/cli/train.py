"""`glassformer train`: a configuration in, a run directory out."""

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.options import JsonOption, SetOption
from glassformer.cli.show import print_json
from glassformer.config import load_config
from glassformer.errors import ConfigError


def train(
    config: Annotated[
        str, typer.Argument(metavar="PRESET-or-CONFIG", help="A preset or a TOML file.", show_default=False)
    ],
    run: Annotated[
        Path | None, typer.Option(help="Where to put the run. \\[default: runs/PRESET]", show_default=False)
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model and leave a run directory with its weights, configuration, vocabulary and metrics.

    A run is never written over. Its weights are the mean of the last snapshots (train.average).
    """
    loaded = load_config(config, set_ or ())
    directory = Path("runs") / Path(config).name.removesuffix(".toml") if run is None else run
    if loaded.train is None or loaded.data is None:
        missing = "train" if loaded.train is None else "data"
        raise ConfigError(
            f"there is nothing to train in {config}: it has no [{missing}] part; a preset with all: reversal"
        )
    from glassformer.cli.progress import train_and_show

    trained, report = train_and_show(loaded, directory, table_on_stdout=False)
    if json:
        print_json(report.as_json())
    else:
        typer.echo(f"The run is in {directory}. Its weights: {trained.notes['weights']}.")
