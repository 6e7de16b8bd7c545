"""How a training run looks while it goes on: what it begins with, a progress bar, and a table that grows below it."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glassformer.cli.show import counted, metric_value
from glassformer.config import TrainConfig
from glassformer.learn.events import Averaged, Evaluated, Event, Started, Stepped
from glassformer.learn.trainer import Trainer
from glassformer.run import Run

Handler = Callable[[int, FrameType | None], Any] | int | None
ROWS = 20  # of the table, about: of a long run only some looks are printed
PATIENCE = 20  # seconds; torchrun itself has 30
SHARES = [n / ROWS for n in range(1, ROWS)]


class TrainingDisplay:
    """Takes a trainer's events and shows them; it keeps what it has seen in `evaluations` and `averaged`.

    The table goes to `out`; the bar goes to standard error, or to `out` where that is the same terminal, so that
    they do not write over each other.
    """

    def __init__(
        self,
        settings: TrainConfig,
        *,
        table_on_stdout: bool,
        tells_start: bool = True,
        shares: Sequence[float] = SHARES,
    ) -> None:
        """Make a display of one training.

        Args:
            settings: Of the training.
            table_on_stdout: Whether the table is the result, or goes to standard error.
            tells_start: Whether to say what the training begins with.
            shares: Where in the whole training a look becomes a row of the table, beside the first and the last.

        """
        out = Console(file=sys.stdout if table_on_stdout else sys.stderr, soft_wrap=True, highlight=False, markup=False)
        console = out if out.is_terminal else Console(stderr=True)
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("loss {task.fields[loss]:.3f} · rate {task.fields[rate]:.2e}"),
            TextColumn("· {task.fields[speed]} ·"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=4,
        )
        self._out, self._metric, self._tells_start, self._shares = out, settings.metric, tells_start, shares
        self._bar = self._progress.add_task("", total=None, loss=0.0, rate=0.0, speed="")
        self._marks: list[int] = []
        self._tokens, self._seconds = 0, 0.0  # of the steps of this process
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
            case Started():
                self._start(event)
            case Stepped():
                self._step(event)
            case Evaluated():
                self._evaluated(event)
            case Averaged():
                self.averaged = event
                name = f"mean of {len(event.steps)} snapshots" if len(event.steps) > 1 else "the run's weights"
                self._out.print(f"{name:>34}" + self._measured(event))

    def _start(self, event: Started) -> None:
        self._progress.update(self._bar, total=event.last_step, completed=event.step)
        self._marks = sorted({1, event.last_step, *(max(1, int(event.last_step * share)) for share in self._shares)})
        self._marks = [mark for mark in self._marks if mark > event.step]
        self._seconds = event.seconds
        if self._tells_start:
            for line in told(event):
                self._out.print(line)
        metric = "" if self._metric == "loss" else f"   {self._metric.replace('_', ' '):>16}"
        self._out.print(f"   step       rate   training loss   validation loss{metric}")

    def _step(self, event: Stepped) -> None:
        self._tokens += event.n_tokens
        speed = f"{self._tokens / max(event.seconds - self._seconds, 1e-9):,.0f} tokens/s"
        if event.skipped:
            speed += f" · {counted(event.skipped, 'step')} skipped"
        self._progress.update(self._bar, completed=event.step, loss=event.loss, rate=event.rate, speed=speed)

    def _evaluated(self, event: Evaluated) -> None:
        self.evaluations.append(event)
        if not self._marks or event.step >= self._marks[0]:
            self._marks = [mark for mark in self._marks if mark > event.step]
            self._out.print(f"{event.step:>7,}   {event.rate:.2e}   {_shown(event.loss):>13}" + self._measured(event))

    def _measured(self, event: Evaluated | Averaged) -> str:
        """Return the columns of what was measured."""
        loss = _shown(event.validation_loss)
        if self._metric == "loss":
            return f"   {loss:>15}"
        metric = "–" if event.metric is None else metric_value(self._metric, event.metric)
        return f"   {loss:>15}   {metric:>16}"


def _shown(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.3f}"


def told(event: Started) -> list[str]:
    """Say in sentences what a training begins with."""
    lines = [] if event.n_examples is None else [f"{counted(event.n_examples, 'example')} to learn from"]
    lines += [f"{finding.severity}: {finding.text}" for finding in event.findings]
    rows, columns = event.heaviest
    lines.append(
        f"the heaviest batch, {counted(rows, 'row')} of {counted(columns, 'token')}: {event.heaviest_seconds:.2f} s"
    )
    lines.append(f"the learning rate has its peak of {event.peak_rate:.3g} at step {event.peak_step:,}")
    if event.step:
        lines.append(f"going on after step {event.step:,}")
    return lines


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


def train_and_show(trainer: Trainer, display: TrainingDisplay, *others: Callable[[Event], None]) -> tuple[Run, Report]:
    """Train and show it; return the run, and what came of the training.

    Ctrl-C and a request to end (SIGTERM) let the step finish and save the state; a second Ctrl-C does not wait.

    Raises:
        TrainingStopped: It was ended so.

    """

    def on_event(event: Event) -> None:
        for consumer in (display.show, *others):
            consumer(event)

    trainer.on_event = on_event
    with display, stopped_by_signals(trainer):
        run = trainer.train()
    assert display.averaged is not None  # the last event of a training
    return run, Report(trainer.files.directory, run.notes["weights"], display.evaluations, display.averaged)


@contextmanager
def stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a training after its step; the second one does not wait.

    Where several processes train, that step may never end, if it was another one that has gone wrong: then an alarm
    ends this one.
    """

    def ask(number: int, _: FrameType | None) -> None:
        trainer.request_stop()
        signal.signal(number, before[number])
        if trainer.processes.count > 1:
            signal.alarm(PATIENCE)

    before: dict[int, Handler] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        if trainer.processes.count > 1:
            signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
