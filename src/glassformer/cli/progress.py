"""How a training run looks while it goes on: a progress bar, and a table that grows below it."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glassformer.config import TrainConfig
from glassformer.learn.trainer import Averaged, Evaluated, Event, Stepped

HEADER = "   step        rate   smoothed loss   test loss   exact match"


class TrainingDisplay:
    """Takes a trainer's events and shows them; it keeps what it has seen in `evaluations` and `averaged`.

    The table goes to `out`; the bar goes to standard error, or to `out` where that is the same terminal, so that
    they do not write over each other.
    """

    def __init__(self, settings: TrainConfig, *, table_on_stdout: bool) -> None:
        out = Console(file=sys.stdout if table_on_stdout else sys.stderr, soft_wrap=True, highlight=False, markup=False)
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("loss {task.fields[loss]:.3f} · rate {task.fields[rate]:.2e}"),
            TextColumn("· exact match {task.fields[exact]} · {task.fields[speed]:.0f} steps/s ·"),
            TimeRemainingColumn(compact=True),
            console=out if out.is_terminal else Console(stderr=True),
            transient=True,
            refresh_per_second=4,
        )
        self._out = self._progress.console if out.is_terminal else out
        self._bar = self._progress.add_task("", total=settings.steps, loss=0.0, rate=0.0, exact="–", speed=0.0)
        # the steps of the 2017 page's table, in a run of its length
        self._marks = {1, settings.steps} | {settings.steps * part // 6 for part in (1, 2, 4)}
        self.evaluations: list[Evaluated] = []
        self.averaged: Averaged | None = None

    def __enter__(self) -> "TrainingDisplay":
        self._out.print(HEADER)
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
                if event.step in self._marks:
                    self._out.print(
                        f"{event.step:>7,}    {event.rate:.2e}   {event.loss:>13.3f}   {event.test_loss:>9.3f}   "
                        f"{event.exact_match:>11.1%}"
                    )
            case Averaged():
                self.averaged = event
                self._out.print(f"{'mean of the last ' + str(len(event.steps)):>23}   {'':>13}   {event.test_loss:>9.3f}   {event.exact_match:>11.1%}")


def summary(display: TrainingDisplay) -> dict[str, object]:
    """Return what `--json` prints of a training."""
    return {"evaluations": display.evaluations, "averaged": display.averaged}
