"""`glassformer train`: a configuration in, a run directory out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.options import DeviceOption, JsonOption, SetOption
from glassformer.cli.show import print_json
from glassformer.config import load_config
from glassformer.errors import ConfigError


def train(
    config: Annotated[
        str,
        typer.Argument(metavar="PRESET-or-CONFIG", help="A preset, a TOML file, or a run.", show_default=False),
    ],
    run: Annotated[
        Path | None, typer.Option(help="Where to put the run. \\[default: runs/PRESET]", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the run was stopped; begin where there is none yet.")
    ] = False,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Begin with the weights and the vocabulary of this run."),
    ] = None,
    set_: SetOption = None,
    device: DeviceOption = "cpu",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard too, into RUN/tensorboard.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a model and leave a run directory with its weights, configuration, vocabulary and metrics.

    A run is never written over. Ctrl-C saves where it stands: --resume goes on from there, to the same weights as if
    it had never been stopped. The run's weights are the mean of its last snapshots, or its best (train.average).
    """
    loaded = load_config(config, set_ or ())
    path = Path(config)
    directory = (
        (path if resume and path.is_dir() else Path("runs") / path.name.removesuffix(".toml")) if run is None else run
    )
    if loaded.train is None or loaded.data is None:
        missing = "train" if loaded.train is None else "data"
        raise ConfigError(
            f"there is nothing to train in {config}: it has no [{missing}] part; "
            "presets with all: reversal, number-words, microscope"
        )
    if resume and (directory / "model.safetensors").exists():
        typer.echo(f"The run in {directory} is finished.", err=True)
        return
    from glassformer.cli.progress import TrainingDisplay, train_and_show
    from glassformer.learn.tensorboard import TensorBoard
    from glassformer.learn.trainer import Trainer
    from glassformer.run import load

    start_from = None if from_ is None else load(from_)
    trainer = Trainer(loaded, directory, lambda _: None, device=device, start_from=start_from, resume=resume)
    display = TrainingDisplay(trainer.settings, table_on_stdout=False)
    with ExitStack() as opened:
        others = [opened.enter_context(TensorBoard(directory / "tensorboard")).show] if tensorboard else []
        trained, report = train_and_show(trainer, display, *others)
    if json:
        print_json(report.as_json())
    else:
        typer.echo(f"The run is in {directory}. Its weights: {trained.notes['weights']}.")
