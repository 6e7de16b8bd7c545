"""A training's events as TensorBoard shows them."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from glassformer.errors import ConfigError
from glassformer.learn.events import Evaluated, Event, Stepped

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Takes a trainer's events and writes them where TensorBoard finds them."""

    def __init__(self, directory: Path) -> None:
        """Open the log.

        Raises:
            ConfigError: The package tensorboard is missing.

        """
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise ConfigError(
                "TensorBoard's package is missing; install it with: pip install 'glassformer[tensorboard]'"
            ) from None
        self._directory = directory
        self._writer: SummaryWriter | None = None  # opened with the first event: before it the run has no directory

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def show(self, event: Event) -> None:
        """Take one event of the trainer."""
        match event:
            case Stepped():
                values = {"loss": event.loss, "rate": event.rate, "gradient_norm": event.gradient_norm}
                self._add("step", values, event.step)
            case Evaluated():
                names = {"training_loss": event.loss, "validation_loss": event.validation_loss, "metric": event.metric}
                self._add("look", {name: value for name, value in names.items() if value is not None}, event.step)

    def _add(self, group: str, values: dict[str, float], step: int) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._directory), purge_step=step)  # of a run that goes on: no step twice
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
