"""Dropout (section 5.4)."""

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import kernels


class Dropout(nn.Module):
    """In training, set each number to 0 with probability p and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` itself outside training, and where p is 0."""
        if not self.training or self.p == 0.0:
            return x
        return kernels.dropout(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)
