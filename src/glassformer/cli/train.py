"""`glassformer train`: a configuration in, a run directory out."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.options import DeviceOption, JsonOption, SetOption
from glassformer.cli.show import print_json
from glassformer.config import Config, load_config
from glassformer.errors import ConfigError, TrainingStopped

if TYPE_CHECKING:
    from glassformer.cli.progress import Report


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

    Many processes: torchrun --nproc-per-node 2 -m -- glassformer train CONFIG --set train.accumulate=2. They share the
    batches of each step (train.accumulate), so that the result does not depend on how many they are.
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
    report = _train(loaded, directory, device, from_, resume=resume, tensorboard=tensorboard)
    if report is not None and json:
        print_json(report.as_json())
    elif report is not None:
        typer.echo(f"The run is in {directory}. Its weights: {report.weights}.")


def _train(
    config: Config, directory: Path, device: str, from_: Path | None, *, resume: bool, tensorboard: bool
) -> "Report | None":
    """Train, alone or with other processes; return what the first of them has to report."""
    from glassformer.cli.progress import TrainingDisplay, stopped_by_signals, train_and_show
    from glassformer.learn.distributed import processes
    from glassformer.learn.tensorboard import TensorBoard
    from glassformer.learn.trainer import Trainer
    from glassformer.run import load

    start_from = None if from_ is None else load(from_)
    with processes(device) as all_of_them, ExitStack() as opened:
        trainer = Trainer(
            config, directory, lambda _: None,
            device=device, start_from=start_from, resume=resume, processes=all_of_them,
        )  # fmt: skip
        if not all_of_them.is_first:
            with stopped_by_signals(trainer), suppress(TrainingStopped):  # the first one says it
                trainer.train()
            return None
        display = TrainingDisplay(trainer.settings, table_on_stdout=False)
        others = [opened.enter_context(TensorBoard(directory / "tensorboard")).show] if tensorboard else []
        return train_and_show(trainer, display, *others)[1]
