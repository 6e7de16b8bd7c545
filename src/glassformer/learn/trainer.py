"""The training loop. It emits events and prints nothing; all that it makes stands in a run directory."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from glassformer.checkpoint import average_weights, fill, save_weights
from glassformer.config.files import dump
from glassformer.config.run import Config, DecodeConfig
from glassformer.data.batch import IGNORED, unpad
from glassformer.data.tasks import Reversal
from glassformer.decode.greedy import write
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.errors import CheckpointError, ConfigError, TrainingError
from glassformer.files import write_text
from glassformer.learn.loss import cross_entropy
from glassformer.learn.schedule import learning_rate
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles


@dataclass(frozen=True)
class Stepped:
    """One step is done."""

    step: int
    loss: float  # of this step's batch, with label smoothing
    rate: float  # the learning rate that was used
    seconds: float  # of all steps so far, without evaluations and writing


@dataclass(frozen=True)
class Evaluated:
    """The model was measured on the test sequences."""

    step: int
    rate: float  # the learning rate that the step used
    loss: float  # with label smoothing, mean over the steps since the evaluation before
    test_loss: float  # plain cross-entropy over all test tokens
    exact_match: float  # share of the test sequences that come back without a mistake


@dataclass(frozen=True)
class Averaged:
    """The run's own weights are the mean of these snapshots; measured like the others."""

    steps: list[int]
    test_loss: float
    exact_match: float


Event = Stepped | Evaluated | Averaged


class Trainer:
    """Trains a model from nothing and leaves a run directory."""

    def __init__(self, config: Config, directory: str | Path, on_event: Callable[[Event], None]) -> None:
        if config.data is None or config.train is None:
            missing = "data" if config.data is None else "train"
            raise ConfigError(f"there is nothing to train on: the configuration has no [{missing}] part")
        self.config, self.train_config, self.on_event = config, config.train, on_event
        self.task = Reversal(config.data)
        self.files = RunFiles(directory)
        model, n_tokens = config.model, self.task.tokenizer.size
        if not (model.source_vocabulary == model.target_vocabulary == n_tokens):
            raise ConfigError(
                f"the task {config.data.task!r} takes an encoder–decoder with source_vocabulary={n_tokens} and "
                f"target_vocabulary={n_tokens}, "
                f"but the model has {model.source_vocabulary} and {model.target_vocabulary}"
            )
        self._seconds = 0.0
        self._losses: list[float] = []
        test = self.task.test_batch()
        self._test = test
        self._answers = unpad(test.labels, test.labels != IGNORED)  # with the end token
        start = self.task.tokenizer.id_of("<s>")
        sources = unpad(test.source, test.source_is_real)
        self._prompts = [Prompt(s, [start], len(answer)) for s, answer in zip(sources, self._answers, strict=True)]

    def train(self) -> Run:
        """Take all steps, average the last snapshots, write the run; return it ready to use.

        Raises:
            CheckpointError: The directory is in use, or cannot be written.
            TrainingError: The loss is no longer a number.

        """
        self._begin_directory()
        settings = self.train_config
        with torch.random.fork_rng(devices=[]):  # the caller's own random numbers go on
            torch.manual_seed(settings.seed)
            model = Transformer(self.config)
            self._snapshot(model, 0)
            adam, betas = settings.optimizer, (settings.optimizer.beta_1, settings.optimizer.beta_2)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=adam.eps, fused=True)
            for step in range(1, settings.steps + 1):
                rate = self._step(model, optimizer, step)
                last = step == settings.steps
                if step == 1 or step % settings.evaluate_every == 0 or last:
                    self._evaluate(model, step, rate)
                if step % settings.snapshot_every == 0 or last:
                    self._snapshot(model, step)
            return self._finish(model)

    def _step(self, model: Transformer, optimizer: torch.optim.Optimizer, step: int) -> float:
        """Draw a batch and change the weights once; return the learning rate that was used."""
        started = time.perf_counter()
        settings = self.train_config
        rate = learning_rate(settings.schedule, step=step, d_model=self.config.model.d_model)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = self.task.training_batch(settings.batch_size, seed=settings.seed, step=step)
        logits = model(batch.source, batch.target, source_is_real=batch.source_is_real)
        loss = cross_entropy(logits, batch.labels, label_smoothing=settings.label_smoothing)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingError(f"the loss of step {step} is {value}: lower the learning rate or warm up for longer")
        self._losses.append(value)
        self._seconds += time.perf_counter() - started
        self.on_event(Stepped(step, value, rate, self._seconds))
        return rate

    def _evaluate(self, model: Transformer, step: int, rate: float) -> None:
        loss = sum(self._losses) / len(self._losses)
        self._losses.clear()
        event = Evaluated(step, rate, loss, *self._measure(model))
        self._log(asdict(event))
        self.on_event(event)

    @torch.inference_mode()
    def _measure(self, model: Transformer) -> tuple[float, float]:
        """Return the plain test loss and the exact match; leave the model in training mode."""
        model.eval()
        test = self._test
        logits = model(test.source, test.target, source_is_real=test.source_is_real)
        test_loss = cross_entropy(logits, test.labels).item()
        found = write([model], self._prompts, Rules(self.task.tokenizer.end_id), DecodeConfig())
        model.train()
        right = sum(
            hypothesis.stopped == "end" and hypothesis.ids == answer[:-1]
            for (hypothesis,), answer in zip(found, self._answers, strict=True)
        )
        return test_loss, right / len(self._answers)

    def _begin_directory(self) -> None:
        directory = self.files.directory
        if self.files.weights.exists():
            raise CheckpointError(
                f"{directory} holds a finished run, which is never written over; choose another --run"
            )
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise CheckpointError(f"{directory} is in use (an unfinished run?); remove it or choose another --run")
        try:
            self.files.snapshots.mkdir(parents=True)
        except OSError as error:
            raise CheckpointError(f"cannot make {directory}: {error.strerror}") from error
        write_text(self.files.config, dump(self.config))
        self.task.tokenizer.save(self.files.tokenizer)

    def _snapshot(self, model: Transformer, step: int) -> None:
        save_weights(model, self.files.snapshot(step), {"weights": f"after step {step}"})

    def _finish(self, model: Transformer) -> Run:
        """Give the model the mean of its last snapshots, measure it, and write it as the run's own."""
        settings = self.train_config
        late = [step for step in self.files.snapshot_steps() if 2 * step > settings.steps]
        steps = late[-settings.average :]
        fill(model, average_weights([self.files.snapshot(step) for step in steps]))
        event = Averaged(steps, *self._measure(model))
        self._log(asdict(event))
        if len(steps) > 1:
            notes = {"weights": f"mean of the snapshots after steps {', '.join(map(str, steps))}"}
        else:
            notes = {"weights": f"after step {steps[0]}"}
        save_weights(model, self.files.weights, notes)
        self.on_event(event)
        return Run(self.config, model, self.task.tokenizer, notes)

    def _log(self, values: dict[str, object]) -> None:
        try:
            with self.files.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot write {self.files.metrics}: {error.strerror}") from error
