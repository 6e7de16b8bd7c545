"""The training loop. It emits events and prints nothing; all that it makes stands in a run directory."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from glassformer.checkpoint import average_weights, fill
from glassformer.config.files import differences, load_config
from glassformer.config.run import Config
from glassformer.data.batch import Batch
from glassformer.data.corpus import Corpus
from glassformer.data.findings import Finding, fast_findings
from glassformer.errors import ConfigError, TrainingError, TrainingStopped
from glassformer.learn.checks import check_loss, check_model, check_settings
from glassformer.learn.distributed import Processes
from glassformer.learn.events import Averaged, Evaluated, Event, Started, Stepped
from glassformer.learn.keeper import Keeper, Progress
from glassformer.learn.learner import Learner
from glassformer.learn.loss import Objective
from glassformer.learn.schedule import STEPS, learning_rate, peak
from glassformer.learn.validation import LESS_IS_BETTER, Validation
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, check_device, load_vocabularies
from glassformer.text.vocabularies import Vocabularies

LOOK_EVERY = 100  # steps, where there is neither a setting nor an epoch
SAVE_SECONDS = 600.0  # the state is saved at each look, and after so long without one


class Trainer:
    """Trains a model and leaves a run directory.

    On several processes each has a trainer of its own, with the same arguments. All read the data and the directory;
    the first one writes, and its events are told.
    """

    def __init__(
        self,
        config: Config,
        directory: str | Path,
        on_event: Callable[[Event], None],
        *,
        device: str = "cpu",
        start_from: Run | None = None,
        resume: bool = False,
        processes: Processes | None = None,
    ) -> None:
        """Read the data.

        Args:
            config: What to train, and how.
            directory: Of the run.
            on_event: Is told what happens.
            device: Where the model works.
            start_from: A run whose weights and vocabularies are the beginning; its model must be the configuration's.
            resume: Go on where the run in the directory was stopped; where there is none, begin.
            processes: That train together, if there are several.

        Raises:
            ConfigError: The configuration makes no sense, or is not that of the run.
            CheckpointError: The directory holds a finished run, or its files are damaged.
            DataError: The data cannot be read.
            DecodingError: There is no such device.

        """
        if config.train is None:
            raise ConfigError("there is nothing to train on: the configuration has no [train] part")
        self.processes = processes or Processes()
        self._device = self.processes.device(device)
        check_device(self._device)
        self.files, self.settings, self.on_event = RunFiles(directory), config.train, on_event
        self._resumes = resume and self.files.state.exists() and self.files.config.exists()
        self._keeper = Keeper(self.files, self.settings, writes=self.processes.is_first)
        self._begins_again = resume and not self._resumes and self._keeper.holds_unfinished()
        self._progress = Progress()
        if not resume:
            self._keeper.check_free()  # before the data are read, which can take long
        self._start_from, self._stop = start_from, False
        begun = load_config(self.files.config) if self._resumes else None
        vocabularies = None if start_from is None else start_from.vocabularies
        if begun is not None:
            vocabularies = load_vocabularies(self.files, begun)
        with self.processes.first_of_machine():
            self._read(config, vocabularies)
        self.config = self.corpus.config
        if begun is not None and (found := differences(self.config, begun)):
            raise ConfigError(
                f"{directory} goes on as it was begun, but this configuration differs: {'; '.join(found)}"
            )
        if start_from is not None:
            check_model(self.config, start_from.config)
        check_loss(self.config)
        self._last_step = self.settings.steps or STEPS
        if self.settings.epochs is not None:
            self._last_step = sum(self.feed.n_steps(epoch) for epoch in range(1, self.settings.epochs + 1))

    def _read(self, config: Config, vocabularies: Vocabularies | None) -> None:
        """Read the examples, and learn the vocabularies unless they are given."""
        self.corpus = Corpus(config, vocabularies)
        has_validation = self.corpus.has("validation")
        check_settings(self.settings, n_processes=self.processes.count, has_validation=has_validation)
        self.validation = Validation(self.corpus, self.settings, self.processes) if has_validation else None
        self.feed = self.corpus.feed(self.settings)

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
        # decoding, at a look, sets the number of threads, which changes how some libraries share out a product: so that
        # it is the same before the first look, and after one goes on
        torch.set_num_threads(torch.get_num_threads())
        with _own_random_numbers(self._device):
            torch.manual_seed(self.settings.seed)
            with _told_of_memory("the model"):
                learner = self._learner()
            if self._resumes:
                started = self._go_on(learner)
            else:
                started = self._tried(learner)  # before anything is written
                self._begin(learner)
            self._tell(started)
            self._loop(learner)
            return self._finish()

    def _begin(self, learner: Learner) -> None:
        """Write what a run begins with; from then on it can be resumed, with the weights that it began with."""
        if not self._begins_again and self.processes.is_first:
            self._keeper.check_free()
        self._progress.counters, self._progress.data = learner.counters, self.corpus.fingerprint
        self._keeper.begin(self.corpus.vocabularies)
        with learner.measured() as model:
            self._keeper.copy(model, 0)
        self._keeper.save_state(learner.tensors(), self._progress)
        self._keeper.write_config(self.config)

    def _go_on(self, learner: Learner) -> Started:
        """Take up the state of the run."""
        tensors, self._progress = self._keeper.load_state()
        learner.counters = self._progress.counters
        if self._progress.data != self.corpus.fingerprint:
            raise ConfigError(
                f"the examples are not those that {self.files.directory} was begun with: a file of data.train or "
                "data.validation has changed; put it back, or train anew in another directory"
            )
        started = self._tried(learner)
        learner.restore(tensors)
        return started

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
        return Learner(model, settings, objective, self.processes)

    def try_heaviest(self) -> Started:
        """Go through the batch that needs the most memory as before the first step; write nothing.

        Raises:
            TrainingError: It does not fit into memory.

        """
        with _own_random_numbers(self._device):
            return self._tried(self._learner())

    def _tried(self, learner: Learner) -> Started:
        """Try the batch that needs the most memory, and say what is about to happen."""
        batches, started = self.feed.heaviest(), time.perf_counter()
        for batch in batches:
            with _told_of_memory(f"the heaviest batch, {len(batch)} rows of {batch.n_columns} tokens,"):
                learner.try_step(batch)
        batch = batches[0]
        schedule, d_model = self.settings.schedule, self.config.model.d_model
        peak_step, peak_rate = peak(schedule, d_model=d_model, last_step=self._last_step)
        lengths = self.feed.lengths
        return Started(
            step=self._progress.step,
            last_step=self._last_step,
            n_examples=None if lengths is None else len(lengths),
            findings=self._findings(),
            peak_step=peak_step,
            peak_rate=peak_rate,
            heaviest=(len(batch), batch.n_columns),
            heaviest_seconds=time.perf_counter() - started,
            seconds=self._progress.seconds,
        )

    def _findings(self) -> list[Finding]:
        """Return what the examples and the settings give reason to doubt."""
        lengths, warmup = self.feed.lengths, self.settings.schedule.warmup_steps
        found = [] if lengths is None else fast_findings(self.feed.counts, lengths)
        if warmup > self._last_step:
            text = f"the training ends after {self._last_step:,} steps, before its warm-up of {warmup:,} does"
            found.append(Finding("warning", f"{text}: the learning rate only rises"))
        return found

    def _loop(self, learner: Learner) -> None:
        progress, saved = self._progress, time.monotonic()
        for batches in self._steps():
            rate = self._step(learner, batches)
            is_due = self._is_due(self.settings.evaluate_every)
            stops, late = self.processes.sum(self._stop, time.monotonic() - saved > SAVE_SECONDS)  # all do the same
            if is_due or progress.step == 1 or self._is_last():
                self._look(learner, rate)
            self._copy(learner, is_regular=is_due if self.settings.snapshot_every is None else False)
            if is_due or stops or late:
                self._keeper.save_state(learner.tensors(), progress)
                saved = time.monotonic()
            if stops and not self._is_last():
                raise TrainingStopped(
                    f"stopped after step {progress.step}; go on with: glassformer train {self.files.directory} --resume"
                )

    def _steps(self) -> Iterator[list[Batch]]:
        """Yield the batches of each step from where training stands on, epoch after epoch."""
        progress, others = self._progress, {"rank": self.processes.rank, "count": self.processes.count}
        while not self._is_last():
            steps = self.feed.steps(progress.epochs + 1, skip=progress.step_of_epoch, **others)
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
        with _told_of_memory(f"step {progress.step}"):
            update = learner.step(batches, rate)
        if not update.skipped:
            progress.loss += update.loss
            progress.n_labels += update.n_labels
        (n_tokens,) = self.processes.sum(sum(batch.n_tokens for batch in batches if batch.n_labels))
        progress.seconds += time.perf_counter() - started
        self._tell(
            Stepped(
                step=progress.step,
                epoch=self._epoch,
                loss=update.loss / max(update.n_labels, 1e-9),
                rate=rate,
                gradient_norm=update.gradient_norm,
                n_tokens=int(n_tokens),
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
            is_best = math.isfinite(result.value) and (
                progress.best is None or self.validation.is_better(result.value, before[progress.best])
            )
            progress.looks.append((progress.step, result.value))
            progress.looks_since_best = 0 if is_best else progress.looks_since_best + 1
            progress.best = progress.step if is_best else progress.best
        event = Evaluated(
            step=progress.step,
            epoch=self._epoch,
            rate=rate,
            loss=progress.loss / progress.n_labels if progress.n_labels else None,
            validation_loss=None if result is None else result.loss,
            metric=None if result is None else result.metric,
            is_best=result is not None and progress.best == progress.step,
            skipped=learner.counters.skipped,
            seconds=progress.seconds,
        )
        progress.loss = progress.n_labels = 0.0
        self._keeper.look(asdict(event), progress)
        self._tell(event)

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

    def _finish(self) -> Run:
        """Make a model of the mean of some snapshots, measure it, and write it as the run's own."""
        if self.settings.average_of == "best":
            steps = self._keeper.best(self._progress, less_is_better=self.settings.metric in LESS_IS_BETTER)
        else:
            steps = self._keeper.last(self._progress)
        self.processes.wait()  # until the snapshots are there
        model = Transformer(self.config).to(self._device).eval()
        fill(model, average_weights([self.files.snapshot(step) for step in steps]))
        result = None if self.validation is None else self.validation.measure(model)
        is_finite = all(bool(p.isfinite().all()) for p in model.parameters())
        if not is_finite or (result is not None and not math.isfinite(result.loss)):
            raise TrainingError(
                "the weights are no good: they, or the loss that they give, are infinite or no numbers; train anew in "
                "another directory with a lower learning rate, a longer warm-up, or train.optimizer.clip=1"
            )
        event = Averaged(steps, None if result is None else result.loss, None if result is None else result.metric)
        self._keeper.look(asdict(event), self._progress)
        listed = ", ".join(map(str, steps))
        notes = {"weights": f"mean of the snapshots after steps {listed}" if len(steps) > 1 else f"after step {listed}"}
        self._keeper.finish(model, notes)
        self._tell(event)
        return Run(self.config, model, self.corpus.vocabularies, notes)

    def _tell(self, event: Event) -> None:
        if self.processes.is_first:
            self.on_event(event)

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


@contextlib.contextmanager
def _told_of_memory(what: str) -> Iterator[None]:
    """Say what can be done where the memory is not enough."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # PyTorch's own error is a RuntimeError
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise TrainingError(
            f"{what} does not fit into memory: lower train.batch_tokens (or batch_size) and raise train.accumulate, or "
            "leave long examples out with data.max_length"
        ) from error


@contextlib.contextmanager
def _own_random_numbers(device: str) -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        yield
