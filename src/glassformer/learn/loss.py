"""What training makes small (section 5.4)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer import kernels
from glassformer.data.batch import IGNORED


@dataclass(frozen=True, eq=False)
class Objective:
    """Cross-entropy, smoothed and weighted as the configuration says.

    It is a sum, with `count` to divide it by, so that the batches of a step, and the processes of a training, can be
    put together: the mean is over all their tokens, not over their means.
    """

    label_smoothing: float = 0.0  # ε
    # where ε goes: "all" of the V tokens, ε/V each, the right one too (PyTorch); the "others", ε/(V - 1) each;
    # the "others-but-pad", ε/(V - 2) each
    smoothing: Literal["all", "others", "others-but-pad"] = "all"
    pad_id: int = 0
    class_weights: Tensor | None = None  # (V,) how much an example of each class counts

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the losses in nats.

        Args:
            logits: (..., V).
            labels: (...), IGNORED where nothing is asked.

        """
        logits, labels = logits.flatten(0, -2), labels.flatten()
        plain, share = self.class_weights is None and self.smoothing != "others-but-pad", self._share(logits.shape[-1])
        if plain and logits.device.type == "cpu" and logits.dtype != torch.float16:
            return kernels.CrossEntropy.apply(logits, labels, share, IGNORED)  # type: ignore[no-any-return, no-untyped-call]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision is too coarse for a sum
        if plain:
            return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED, label_smoothing=share)
        losses = self._each(logits, labels)
        if self.class_weights is not None:
            losses = losses * self.class_weights[labels.clamp(min=0)]
        return losses.sum()

    def count(self, labels: Tensor) -> float:
        """Return what the sum of the losses is divided by: the number of labels, or the sum of their weights."""
        asked = labels[labels != IGNORED]
        return float(len(asked) if self.class_weights is None else self.class_weights[asked].sum())

    def _each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every label, 0 where nothing is asked."""
        if self.smoothing != "others-but-pad" or not self.label_smoothing:
            return F.cross_entropy(
                logits, labels, reduction="none", ignore_index=IGNORED, label_smoothing=self._share(logits.shape[-1])
            )
        minus = -logits.log_softmax(dim=-1)  # (N, V)
        right = minus.gather(1, labels.clamp(min=0)[:, None])[:, 0]
        others = minus.sum(dim=-1) - right - minus[:, self.pad_id]
        share = self.label_smoothing / (logits.shape[-1] - 2)
        losses = (1 - self.label_smoothing) * right + share * others
        return losses.masked_fill(labels == IGNORED, 0.0)

    def _share(self, vocabulary: int) -> float:
        """Return the ε with which PyTorch's formula is this one: ε/(V - 1) on the others is ε'/V on all."""
        return (
            self.label_smoothing * vocabulary / (vocabulary - 1) if self.smoothing == "others" else self.label_smoothing
        )


def cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean loss over all labels that count, in nats; 0 where there are none."""
    objective = Objective(label_smoothing)
    return objective(logits, labels) / max(1.0, objective.count(labels))


def smoothing_floor(label_smoothing: float, vocabulary: int) -> float:
    """Return the smallest possible smoothed loss: the entropy of the smoothed target, ε spread over all tokens."""
    other = label_smoothing / vocabulary
    right = 1.0 - label_smoothing + other
    return -sum(n * q * math.log(q) for n, q in ((1, right), (vocabulary - 1, other)) if q > 0)
