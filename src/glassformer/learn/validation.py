"""How good a model is while it learns: its loss on examples that it does not learn from, and what it writes."""

from dataclasses import dataclass

import torch

from glassformer.config.train import TrainConfig
from glassformer.data.corpus import Corpus
from glassformer.data.plan import in_order
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.metrics import value_of
from glassformer.learn.loss import Objective
from glassformer.model.transformer import Transformer
from glassformer.run import Run
from glassformer.text.lines import one_line

LESS_IS_BETTER = ("loss", "token_error_rate")
OF_CLASSES = ("accuracy", "macro_f1")
TOKENS = 8192  # of a batch that is only read


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
    """Measures a model on the validation examples of a corpus."""

    def __init__(self, corpus: Corpus, settings: TrainConfig) -> None:
        """Read the examples.

        Raises:
            ConfigError: The metric does not go with the model.
            DataError: The examples cannot be read.

        """
        self._corpus, self._name = corpus, settings.metric
        self._examples = corpus.examples("validation")
        self._sources: list[str] = []
        if settings.metric == "loss":
            return
        kind, is_of_classes = corpus.config.model.kind, settings.metric in OF_CLASSES
        if corpus.is_plain_text or is_of_classes != (kind == "encoder"):
            what = "plain text" if corpus.is_plain_text else f"a model of kind={kind!r}"
            raise ConfigError(f"train.metric={settings.metric!r} does not go with {what}; loss goes with all")
        self._sources, self._references = corpus.texts("validation", settings.metric_examples)

    def is_better(self, value: float, than: float) -> bool:
        """Compare two results by the metric."""
        return value < than if self._name in LESS_IS_BETTER else value > than

    @torch.inference_mode()
    def measure(self, model: Transformer) -> Result:
        """Measure a model, which is in eval mode."""
        plain = Objective()
        device = next(model.parameters()).device
        total = n_labels = 0.0
        for rows in in_order(self._examples.lengths, batch_tokens=TOKENS):
            batch = self._examples.batch(rows).to(device)
            logits = model(batch.source, batch.target, source_is_real=batch.source_is_real)
            total += float(plain(logits, batch.labels).double())
            n_labels += plain.count(batch.labels)
        return Result(total / max(n_labels, 1), self._measure_text(model) if self._sources else None)

    def _measure_text(self, model: Transformer) -> float:
        run = Run(self._corpus.config, model, self._corpus.vocabularies, {})
        if self._name in OF_CLASSES:
            found = run.classify(self._sources, truncate=self._corpus.data.truncate)
            return value_of(self._name, [one_line(one.label or "") for one in found], self._references)
        writer = run.writer({"beam_size": 1}, truncate=self._corpus.data.truncate)
        prompts, references = [], []
        for source, right in zip(self._sources, self._references, strict=True):
            try:
                prompts.append(writer.prompt(source))
            except DataError:  # too long for the model, so left out of the loss as well
                continue
            references.append(right)
        written = [one_line(results[0].text) for results in writer.write(prompts)]
        return value_of(self._name, written, references)
