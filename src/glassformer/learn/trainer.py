"""The training loop. It emits events and prints nothing; all that it makes stands in a run directory."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from glassformer.checkpoint import average_weights, fill, save_weights
from glassformer.config.files import differences, load_config
from glassformer.config.run import Config
from glassformer.data.batch import Batch
from glassformer.data.corpus import Corpus
from glassformer.data.findings import fast_findings
from glassformer.errors import ConfigError, TrainingError, TrainingStopped
from glassformer.learn.events import Averaged, Evaluated, Event, Started, Stepped
from glassformer.learn.keeper import Keeper, Progress
from glassformer.learn.learner import Learner
from glassformer.learn.loss import Objective
from glassformer.learn.schedule import STEPS, learning_rate, peak
from glassformer.learn.validation import LESS_IS_BETTER, Validation
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, check_device, load_vocabularies

LOOK_EVERY = 100  # steps, where there is neither a setting nor an epoch
SAVE_SECONDS = 600.0  # the state is saved at each look, and after so long without one


class Trainer:
    """Trains a model and leaves a run directory."""

    def __init__(
        self,
        config: Config,
        directory: str | Path,
        on_event: Callable[[Event], None],
        *,
        device: str = "cpu",
        start_from: Run | None = None,
        resume: bool = False,
    ) -> None:
        """Read the data.

        Args:
            config: What to train, and how.
            directory: Of the run.
            on_event: Is told what happens.
            device: Where the model works.
            start_from: A run whose weights and vocabularies are the beginning; its model must be the configuration's.
            resume: Go on where the run in the directory was stopped; where there is none, begin.

        Raises:
            ConfigError: The configuration makes no sense, or is not that of the run.
            CheckpointError: The directory holds a finished run, or its files are damaged.
            DataError: The data cannot be read.
            DecodingError: There is no such device.

        """
        if config.train is None:
            raise ConfigError("there is nothing to train on: the configuration has no [train] part")
        check_device(device)
        self.files, self.settings, self.on_event, self._device = RunFiles(directory), config.train, on_event, device
        self._resumes = resume and self.files.state.exists()
        self._begins_again = (
            resume and not self._resumes and self.files.config.exists() and not self.files.weights.exists()
        )
        self._keeper, self._progress = Keeper(self.files, self.settings), Progress()
        if not resume:
            self._keeper.check_free()  # before the data are read, which can take long
        self._start_from, self._stop = start_from, False
        begun = load_config(self.files.config) if self._resumes else None
        vocabularies = None if start_from is None else start_from.vocabularies
        self.corpus = Corpus(config, vocabularies if begun is None else load_vocabularies(self.files, begun))
        self.config = self.corpus.config
        if begun is not None and (found := differences(self.config, begun)):
            raise ConfigError(
                f"{directory} goes on as it was begun, but this configuration differs: {'; '.join(found)}"
            )
        if start_from is not None:
            self._check_model(start_from.config)
        self.feed = self.corpus.feed(self.settings)
        self.validation = Validation(self.corpus, self.settings) if self.corpus.has("validation") else None
        self._check_validation()
        self._check_loss()
        self._last_step = self.settings.steps or STEPS
        if self.settings.epochs is not None:
            self._last_step = sum(self.feed.n_steps(epoch) for epoch in range(1, self.settings.epochs + 1))

    def request_stop(self) -> None:
        """Ask the training to save its state and end after the step that it is at; safe in a signal handler."""
        self._stop = True

    def train(self) -> Run:
        """Take all steps, average the last or the best snapshots, write the run; return it ready to use.

        Raises:
            CheckpointError: The directory is in use, or cannot be written.
            TrainingStopped: Somebody asked for it; the state is saved.
            TrainingError: The gradients are no numbers, or a batch does not fit into memory.

        """
        if not self._resumes:
            if not self._begins_again:
                self._keeper.check_free()
            self._keeper.begin(self.config, self.corpus.vocabularies)
        with _own_random_numbers(self._device):
            torch.manual_seed(self.settings.seed)
            learner = self._learner()
            tensors: dict[str, torch.Tensor] = {}
            if self._resumes:
                tensors, self._progress = self._keeper.load_state()
                learner.counters = self._progress.counters
                if self._progress.data != self.corpus.fingerprint:
                    raise ConfigError(
                        f"the training examples are not those that {self.files.directory} was begun with: a file has "
                        "changed; put it back, or train anew in another directory"
                    )
            else:
                self._progress.counters, self._progress.data = learner.counters, self.corpus.fingerprint
                self._keeper.copy(learner.model, 0)
            self.on_event(self._tried(learner))
            if self._resumes:
                learner.restore(tensors)
            self._loop(learner)
            return self._finish(learner)

    def _learner(self) -> Learner:
        """Make the model, or take another run's weights, and what changes it."""
        settings, words = self.settings, self.corpus.vocabularies
        model = Transformer(self.config)
        if self._start_from is not None:
            fill(model, dict(self._start_from.model.named_parameters()))
        model = model.to(self._device)
        weights = None
        if settings.class_weights == "balanced":
            counts = self.corpus.class_counts()
            weights = torch.tensor(counts.sum() / (len(counts) * counts.clip(min=1)), dtype=torch.float32)
            weights = weights.to(self._device)
        pad_id = words.target.id_of("<pad>") if settings.smoothing == "others-but-pad" else 0
        objective = Objective(settings.label_smoothing, settings.smoothing, pad_id, weights)
        return Learner(model, settings, objective)

    def try_heaviest(self) -> Started:
        """Go through the batch that needs the most memory as before the first step; write nothing.

        Raises:
            TrainingError: It does not fit into memory.

        """
        with _own_random_numbers(self._device):
            return self._tried(self._learner())

    def _tried(self, learner: Learner) -> Started:
        """Try the batch that needs the most memory, and say what is about to happen."""
        batch, started = self.feed.heaviest(), time.perf_counter()
        try:
            with _own_random_numbers(self._device):
                learner.try_gradients(batch)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise TrainingError(
                f"the heaviest batch, {len(batch)} rows of {batch.n_columns} tokens, does not fit into memory: "
                "lower train.batch_tokens (or batch_size) and raise train.accumulate, or leave long examples out with "
                "data.max_length"
            ) from error
        schedule, d_model = self.settings.schedule, self.config.model.d_model
        peak_step, peak_rate = peak(schedule, d_model=d_model, last_step=self._last_step)
        lengths = self.feed.lengths
        return Started(
            step=self._progress.step,
            last_step=self._last_step,
            n_examples=None if lengths is None else len(lengths),
            findings=[] if lengths is None else fast_findings(self.feed.counts, lengths),
            peak_step=peak_step,
            peak_rate=peak_rate,
            heaviest=(len(batch), batch.n_columns),
            heaviest_seconds=time.perf_counter() - started,
            seconds=self._progress.seconds,
        )

    def _loop(self, learner: Learner) -> None:
        progress, saved = self._progress, time.monotonic()
        for batches in self._steps():
            rate = self._step(learner, batches)
            is_due = self._is_due(self.settings.evaluate_every)
            if is_due or progress.step == 1 or self._is_last():
                self._look(learner, rate)
            self._copy(learner, is_regular=is_due if self.settings.snapshot_every is None else False)
            if is_due or self._stop or time.monotonic() - saved > SAVE_SECONDS:
                self._keeper.save_state(learner.tensors(), progress)
                saved = time.monotonic()
            if self._stop and not self._is_last():
                raise TrainingStopped(
                    f"stopped after step {progress.step}; go on with: glassformer train {self.files.directory} --resume"
                )

    def _steps(self) -> Iterator[list[Batch]]:
        """Yield the batches of each step from where training stands on, epoch after epoch."""
        progress = self._progress
        while not self._is_last():
            steps = self.feed.steps(progress.epochs + 1, skip=progress.step_of_epoch)
            batches = next(steps)
            while batches:
                following = next(steps, [])
                progress.step += 1
                progress.step_of_epoch += 1
                if not following:
                    progress.epochs, progress.step_of_epoch = progress.epochs + 1, 0
                yield batches
                batches = [] if self._is_last() else following

    def _step(self, learner: Learner, batches: list[Batch]) -> float:
        """Change the weights once; return the learning rate that was used."""
        started, progress = time.perf_counter(), self._progress
        schedule, d_model = self.settings.schedule, self.config.model.d_model
        rate = learning_rate(schedule, step=progress.step, d_model=d_model, last_step=self._last_step)
        update = learner.step(batches, rate)
        if not update.skipped:
            progress.loss += update.loss
            progress.n_labels += update.n_labels
        progress.seconds += time.perf_counter() - started
        self.on_event(
            Stepped(
                step=progress.step,
                epoch=self._epoch,
                loss=update.loss / max(update.n_labels, 1e-9),
                rate=rate,
                gradient_norm=update.gradient_norm,
                n_tokens=sum(batch.n_tokens for batch in batches),
                skipped=learner.counters.skipped,
                seconds=progress.seconds,
            )
        )
        return rate

    def _look(self, learner: Learner, rate: float) -> None:
        """Measure the model as it would be kept."""
        progress, result = self._progress, None
        if self.validation is not None:
            with learner.measured() as model:
                result = self.validation.measure(model)
            before = dict(progress.looks)
            is_best = progress.best is None or self.validation.is_better(result.value, before[progress.best])
            progress.looks.append((progress.step, result.value))
            progress.looks_since_best = 0 if is_best else progress.looks_since_best + 1
            progress.best = progress.step if is_best else progress.best
        event = Evaluated(
            step=progress.step,
            epoch=self._epoch,
            rate=rate,
            loss=progress.loss / max(progress.n_labels, 1e-9),
            validation_loss=None if result is None else result.loss,
            metric=None if result is None else result.metric,
            is_best=result is not None and progress.best == progress.step,
            skipped=learner.counters.skipped,
            seconds=progress.seconds,
        )
        progress.loss = progress.n_labels = 0.0
        self._keeper.look(asdict(event), progress)
        self.on_event(event)

    def _copy(self, learner: Learner, *, is_regular: bool) -> None:
        """Write the weights where a copy is due, and remove the copies that nobody needs any more."""
        progress, settings = self._progress, self.settings
        every = settings.snapshot_every
        is_regular = is_regular or self._is_last() or (every is not None and progress.step % every == 0)
        is_extra = progress.step in settings.snapshot_steps or (
            progress.step_of_epoch == 0 and progress.epochs in settings.snapshot_epochs
        )
        if is_regular or is_extra:
            with learner.measured() as model:
                self._keeper.copy(model, progress.step)
        if is_extra:
            progress.chosen_copies.append(progress.step)
        if is_regular:
            progress.copies.append(progress.step)
            self._keeper.prune(progress, less_is_better=settings.metric in LESS_IS_BETTER)

    def _finish(self, learner: Learner) -> Run:
        """Give the model the mean of some of its snapshots, measure it, and write it as the run's own."""
        if self.settings.average_of == "best":
            steps = self._keeper.best(self._progress, less_is_better=self.settings.metric in LESS_IS_BETTER)
        else:
            steps = self._keeper.last(self._progress)
        model = learner.model.eval()
        fill(model, average_weights([self.files.snapshot(step) for step in steps]))
        result = None if self.validation is None else self.validation.measure(model)
        event = Averaged(steps, None if result is None else result.loss, None if result is None else result.metric)
        self._keeper.look(asdict(event), self._progress)
        listed = ", ".join(map(str, steps))
        notes = {"weights": f"mean of the snapshots after steps {listed}" if len(steps) > 1 else f"after step {listed}"}
        save_weights(model, self.files.weights, notes)
        self.files.state.unlink(missing_ok=True)
        self.on_event(event)
        return Run(self.config, model, self.corpus.vocabularies, notes)

    @property
    def _epoch(self) -> int:
        """The epoch of the step that was just taken, from 1."""
        return self._progress.epochs + (self._progress.step_of_epoch > 0)

    def _is_last(self) -> bool:
        """Whether the step that was just taken is the last one."""
        settings, progress = self.settings, self._progress
        if settings.patience is not None and progress.looks_since_best >= settings.patience:
            return True
        if settings.epochs is not None:
            return progress.epochs >= settings.epochs
        return progress.step >= (settings.steps or STEPS)

    def _is_due(self, every: int | None) -> bool:
        """Whether something is due that happens every so many steps, or after each epoch."""
        if every is None and self.feed.endless:
            every = LOOK_EVERY
        return self._progress.step_of_epoch == 0 if every is None else self._progress.step % every == 0

    def _check_model(self, other: Config) -> None:
        """Refuse to begin with weights of another model; only its dropout may differ."""
        own = self.config.model.model_copy(update={"dropout": other.model.dropout})
        found = differences(self.config.model_copy(update={"model": own}), other, table="model")
        if found:
            raise ConfigError(f"the weights to begin with belong to another model: {'; '.join(found)}")

    def _check_validation(self) -> None:
        settings = self.settings
        if self.validation is None and (
            settings.patience or settings.average_of == "best" or settings.metric != "loss"
        ):
            raise ConfigError(
                "patience, average_of='best' and a metric need examples that nothing is learnt from: "
                "name some files in data.validation"
            )

    def _check_loss(self) -> None:
        """Refuse a smoothing that this output cannot have."""
        settings, kind = self.settings, self.config.model.kind
        if settings.smoothing == "others-but-pad" and kind == "encoder":
            raise ConfigError("smoothing='others-but-pad' leaves out padding, which is no class: use 'all' or 'others'")
        n = self.config.model.target_vocabulary or len(self.corpus.vocabularies.classes)
        if settings.smoothing == "others" and settings.label_smoothing * n > n - 1:
            raise ConfigError(
                f"label_smoothing={settings.label_smoothing} leaves the right one of {n} with less than the others: "
                f"the most is {(n - 1) / n:.3f}"
            )


@contextlib.contextmanager
def _own_random_numbers(device: str) -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        yield
