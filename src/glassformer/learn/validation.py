"""How good a model is while it learns: its loss on examples that it does not learn from, and what it writes."""

from dataclasses import dataclass
from itertools import chain, islice

import torch

from glassformer.config.train import TrainConfig
from glassformer.data.corpus import Corpus
from glassformer.data.plan import in_order
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.metrics import OF_CLASSES, value_of
from glassformer.learn.distributed import Processes
from glassformer.learn.loss import Objective
from glassformer.model.transformer import Transformer
from glassformer.run import Run
from glassformer.text.lines import one_line

LESS_IS_BETTER = ("loss", "token_error_rate")
TOKENS = 8192  # of a batch that is only read, at most …
LOGITS = 2**25  # … and of its logits: 128 MB


@dataclass(frozen=True)
class Result:
    """What was measured."""

    loss: float  # mean cross-entropy over all tokens, without label smoothing: exp of it is the perplexity
    metric: float | None  # of what was written or answered; None: the loss is the metric

    @property
    def value(self) -> float:
        """What the best weights are best in."""
        return self.loss if self.metric is None else self.metric


class Validation:
    """Measures a model on the validation examples of a corpus; several processes share the work."""

    def __init__(self, corpus: Corpus, settings: TrainConfig, processes: Processes | None = None) -> None:
        """Read the examples.

        Raises:
            ConfigError: The metric does not go with the model.
            DataError: The examples cannot be read.

        """
        self._corpus, self._name, self._processes = corpus, settings.metric, processes or Processes()
        self._examples = corpus.examples("validation")
        self._sources: list[str] = []
        if settings.metric == "loss":
            return
        kind, is_of_classes = corpus.config.model.kind, settings.metric in OF_CLASSES
        if corpus.is_plain_text or is_of_classes != (kind == "encoder"):
            what = "plain text" if corpus.is_plain_text else f"a model of kind={kind!r}"
            raise ConfigError(f"train.metric={settings.metric!r} does not go with {what}; loss goes with all")
        self._sources, self._references = corpus.texts("validation", settings.metric_examples, only_learnable=True)
        if not self._sources:
            raise DataError(
                f"none of the validation examples that train.metric={settings.metric!r} needs fits the model"
            )

    def is_better(self, value: float, than: float) -> bool:
        """Compare two results by the metric."""
        return value < than if self._name in LESS_IS_BETTER else value > than

    @torch.inference_mode()
    def measure(self, model: Transformer) -> Result:
        """Measure a model, which is in eval mode; the result is the same in every process."""
        plain, processes = Objective(), self._processes
        device = model.device
        total = n_labels = 0.0
        most = LOGITS // (model.config.target_vocabulary or 1)
        batches = in_order(self._examples.lengths, batch_tokens=max(1, min(TOKENS, most)))
        for rows in islice(batches, processes.rank, None, processes.count):
            batch = self._examples.batch(rows).to(device)
            logits = model(batch.source, batch.target, source_is_real=batch.source_is_real)
            total += float(plain(logits, batch.labels).double())
            n_labels += plain.count(batch.labels)
        total, n_labels = processes.sum(total, n_labels)
        return Result(total / max(n_labels, 1), self._measure_text(model) if self._sources else None)

    def _measure_text(self, model: Transformer) -> float:
        run = Run(self._corpus.config, model, self._corpus.vocabularies, {})
        own = slice(self._processes.rank, None, self._processes.count)
        answer = self._classify if self._name in OF_CLASSES else self._write
        answers = answer(run, self._sources[own], self._references[own])
        written, references = zip(*chain.from_iterable(self._processes.gather(answers)), strict=True)
        return value_of(self._name, written, references)

    def _classify(self, run: Run, texts: list[str], names: list[list[str]]) -> list[tuple[str, list[str]]]:
        found = run.classify(texts, truncate=self._corpus.data.truncate)
        return [(one_line(one.label or ""), name) for one, name in zip(found, names, strict=True)]

    def _write(self, run: Run, sources: list[str], references: list[list[str]]) -> list[tuple[str, list[str]]]:
        writer = run.writer({"beam_size": 1}, truncate=self._corpus.data.truncate)
        written = writer.write([writer.prompt(source) for source in sources])
        return [(one_line(found[0].text), right) for found, right in zip(written, references, strict=True)]
