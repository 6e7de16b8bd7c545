"""How a training run looks while it goes on: a progress bar, and a table that grows below it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glassformer.config import Config, TrainConfig
from glassformer.errors import ConfigError, TrainingError
from glassformer.learn.trainer import Averaged, Evaluated, Event, Stepped, Trainer
from glassformer.run import Run

HEADER = "   step        rate   smoothed loss   test loss   exact match"


class TrainingDisplay:
    """Takes a trainer's events and shows them; it keeps what it has seen in `evaluations` and `averaged`.

    The table goes to `out`; the bar goes to standard error, or to `out` where that is the same terminal, so that
    they do not write over each other.
    """

    def __init__(self, settings: TrainConfig, *, table_on_stdout: bool) -> None:
        out = Console(file=sys.stdout if table_on_stdout else sys.stderr, soft_wrap=True, highlight=False, markup=False)
        console = out if out.is_terminal else Console(stderr=True)
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("loss {task.fields[loss]:.3f} · rate {task.fields[rate]:.2e}"),
            TextColumn("· exact match {task.fields[exact]} · {task.fields[speed]:.0f} steps/s ·"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=4,
        )
        self._out = out
        self._bar = self._progress.add_task("", total=settings.steps, loss=0.0, rate=0.0, exact="–", speed=0.0)
        # rows at the steps of the 2017 page's table, in a run of its length: 1, 500, 1000, 2000, 3000
        self._marks = sorted({1, settings.steps, *(max(1, settings.steps * sixths // 6) for sixths in (1, 2, 4))})
        self.evaluations: list[Evaluated] = []
        self.averaged: Averaged | None = None

    def __enter__(self) -> "TrainingDisplay":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, event: Event) -> None:
        """Take one event of the trainer."""
        match event:
            case Stepped():
                self._progress.update(
                    self._bar,
                    completed=event.step,
                    loss=event.loss,
                    rate=event.rate,
                    speed=event.step / event.seconds,
                )
            case Evaluated():
                self.evaluations.append(event)
                self._progress.update(self._bar, exact=f"{event.exact_match:.1%}")
                if not self.evaluations[1:]:
                    self._out.print(HEADER)
                if self._marks and event.step >= self._marks[0]:
                    self._marks = [mark for mark in self._marks if mark > event.step]
                    self._out.print(
                        f"{event.step:>7,}    {event.rate:.2e}   {event.loss:>13.3f}   {event.test_loss:>9.3f}   "
                        f"{event.exact_match:>11.1%}"
                    )
            case Averaged():
                self.averaged = event
                name = f"mean of the last {len(event.steps)}" if len(event.steps) > 1 else "the run's weights"
                self._out.print(f"{name:>22}   {'':>13}   {event.test_loss:>9.3f}   {event.exact_match:>11.1%}")


@dataclass(frozen=True)
class Report:
    """What a training left."""

    directory: Path
    weights: str
    evaluations: list[Evaluated]
    averaged: Averaged

    def as_json(self) -> dict[str, object]:
        """Return what `--json` prints of it."""
        return {
            "run": str(self.directory),
            "weights": self.weights,
            "evaluations": self.evaluations,
            "averaged": self.averaged,
        }


def train_and_show(config: Config, directory: Path, *, table_on_stdout: bool) -> tuple[Run, Report]:
    """Train into a directory and show it; return the run, and what came of the training."""
    settings = config.train
    if settings is None:
        raise ConfigError("there is nothing to train: the configuration has no [train] part")
    with TrainingDisplay(settings, table_on_stdout=table_on_stdout) as display:
        try:
            run = Trainer(config, directory, display.show).train()
        except KeyboardInterrupt:
            step = display.evaluations[-1].step if display.evaluations else 0
            raise TrainingError(
                f"stopped after step {step} or a little later; {directory} holds the snapshots so far, "
                "but no finished run"
            ) from None
    assert display.averaged is not None  # the last event of a training
    return run, Report(directory, run.notes["weights"], display.evaluations, display.averaged)
