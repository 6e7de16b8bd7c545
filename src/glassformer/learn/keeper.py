"""What a training leaves in its directory: copies of the weights, one line a look, and the state to go on from."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from torch import Tensor

from glassformer.checkpoint import read_weights, save_tensors, save_weights
from glassformer.config.files import dump
from glassformer.config.run import Config
from glassformer.config.train import TrainConfig
from glassformer.errors import CheckpointError
from glassformer.files import write_text
from glassformer.learn.learner import Counters
from glassformer.model.transformer import Transformer
from glassformer.run import RunFiles
from glassformer.text.vocabularies import Vocabularies


@dataclass
class Progress:
    """Where a training stands, in numbers."""

    step: int = 0
    epochs: int = 0  # that are finished
    step_of_epoch: int = 0  # steps since the last of them
    seconds: float = 0.0  # of all steps, without looks and writing
    loss: float = 0.0  # sum since the last look
    n_labels: float = 0.0  # that it is over
    looks: list[tuple[int, float]] = field(default_factory=list)  # (step, what the best are best in)
    best: int | None = None  # the step of the best look
    looks_since_best: int = 0
    copies: list[int] = field(default_factory=list)  # steps of the regular copies of the weights that are there
    chosen_copies: list[int] = field(default_factory=list)  # steps of those that were asked for by number
    metrics_size: int = 0  # bytes of metrics.jsonl
    data: str = ""  # a name of the training examples, which others would not have
    counters: Counters = field(default_factory=Counters)


class Keeper:
    """Writes the files of a run, each whole or not at all; of several processes the first one does."""

    def __init__(self, files: RunFiles, settings: TrainConfig, *, writes: bool = True) -> None:
        self.files, self._settings, self._writes = files, settings, writes

    def check_free(self) -> None:
        """Refuse a directory that a new run cannot have.

        Raises:
            CheckpointError: It is in use.

        """
        directory = self.files.directory
        if self.files.weights.exists():
            raise CheckpointError(
                f"{directory} holds a finished run, which is never written over; choose another --run"
            )
        if self.holds_unfinished():
            raise CheckpointError(f"{directory} holds an unfinished run: go on with --resume, or choose another --run")
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise CheckpointError(f"{directory} is in use, and not by a run; choose another --run")

    def holds_unfinished(self) -> bool:
        """Whether a run was begun in the directory."""
        return self.files.snapshots.is_dir() and not self.files.weights.exists()

    def begin(self, vocabularies: Vocabularies) -> None:
        """Write what a run begins with; nothing stays of one that never came to save its state.

        Raises:
            CheckpointError: The directory cannot be made.

        """
        if not self._writes:
            return
        try:
            self.files.snapshots.mkdir(parents=True, exist_ok=True)
            half = self.files.directory.rglob(".*.part")  # left by a process that was killed while it wrote
            for path in (*self.files.own(), *map(self.files.snapshot, self.files.snapshot_steps()), *half):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot make {self.files.directory}: {error.strerror}") from error
        vocabularies.save(self.files.directory)

    def write_config(self, config: Config) -> None:
        """Write the configuration, after all else that a run begins with."""
        if self._writes:
            write_text(self.files.config, dump(config))

    def look(self, values: Mapping[str, object], progress: Progress) -> None:
        """Add a line to metrics.jsonl."""
        if not self._writes:
            return
        path = self.files.metrics
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({name: _finite(value) for name, value in values.items()}) + "\n")
                file.flush()
                os.fsync(file.fileno())  # the state that is saved next counts on it
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {error.strerror}; free some space, and --resume") from error
        progress.metrics_size = path.stat().st_size

    def copy(self, model: Transformer, step: int) -> None:
        """Write the weights beside those of other steps."""
        if self._writes:
            save_weights(model, self.files.snapshot(step), {"weights": f"after step {step}"})

    def prune(self, progress: Progress, *, less_is_better: bool) -> None:
        """Remove the regular copies that are neither among the last nor needed in the end."""
        if self._settings.keep is None:
            return
        stay = {*progress.copies[-self._settings.keep :]}
        if self._settings.average_of == "best":
            stay |= {*self.best(progress, less_is_better=less_is_better)}
        for step in progress.copies:
            if self._writes and step not in stay and step not in progress.chosen_copies:
                self.files.snapshot(step).unlink(missing_ok=True)
        progress.copies = [step for step in progress.copies if step in stay]

    def best(self, progress: Progress, *, less_is_better: bool) -> list[int]:
        """Return the steps of the regular copies with the best looks, in order; of equal ones the earlier."""
        found = [(value, step) for step, value in progress.looks if step in progress.copies]
        found.sort(key=lambda pair: (pair[0] if less_is_better else -pair[0], pair[1]))
        return sorted(step for _, step in found[: self._settings.average])

    def last(self, progress: Progress) -> list[int]:
        """Return the steps of the last regular copies, none from the first half of training."""
        late = [step for step in progress.copies if 2 * step > progress.step]
        return late[-self._settings.average :]

    def finish(self, model: Transformer, notes: Mapping[str, str]) -> None:
        """Write the weights that the run has in the end."""
        if self._writes:
            save_weights(model, self.files.weights, notes)
            self.files.state.unlink(missing_ok=True)

    def save_state(self, tensors: Mapping[str, Tensor], progress: Progress) -> None:
        """Write all that is needed to go on."""
        if self._writes:
            save_tensors(tensors, self.files.state, {"progress": json.dumps(asdict(progress))})

    def load_state(self) -> tuple[dict[str, Tensor], Progress]:
        """Read it, and cut off what metrics.jsonl got since.

        Raises:
            CheckpointError: It is damaged.

        """
        tensors, notes = read_weights(self.files.state)
        try:
            values = json.loads(notes["progress"])
            counters = Counters(**values.pop("counters"))
            values["looks"] = [(step, value) for step, value in values["looks"]]
            progress = Progress(**values, counters=counters)
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{self.files.state} is damaged, or of another version ({error}): train again in another directory"
            ) from error
        if self._writes and self.files.metrics.exists():
            with self.files.metrics.open("r+b") as file:
                file.truncate(min(progress.metrics_size, self.files.metrics.stat().st_size))
        return tensors, progress


def _finite(value: object) -> object:
    """Return None for what JSON has no number for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
