"""What training makes small (section 5.4)."""

import math

import torch.nn.functional as F
from torch import Tensor

from glassformer.data.batch import IGNORED


def cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean loss over all labels that count, in nats a token.

    The smoothed target is PyTorch's: 1 - ε on the right token, and ε/V on each of the V tokens, the right one too.

    Args:
        logits: (B, T, V).
        labels: (B, T), IGNORED where nothing is asked.
        label_smoothing: ε.

    """
    return F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, label_smoothing=label_smoothing
    )


def smoothing_floor(label_smoothing: float, vocabulary: int) -> float:
    """Return the smallest possible smoothed loss: the entropy of the smoothed target."""
    other = label_smoothing / vocabulary
    right = 1.0 - label_smoothing + other
    return -sum(n * q * math.log(q) for n, q in ((1, right), (vocabulary - 1, other)) if q > 0)
