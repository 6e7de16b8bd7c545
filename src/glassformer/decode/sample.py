"""Drawing tokens: temperature, the k most likely, the fewest that make up a share."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassformer.config.run import DecodeConfig


class Sampler:
    """Draws the next token of each row by its probability.

    Each row has random numbers of its own, from the seed, the number of its line, and which sample of the line it is:
    what is drawn does not depend on the batch.
    """

    def __init__(self, config: DecodeConfig, rows: Sequence[tuple[int, int]]) -> None:
        """Take the settings, and for each row the number of its line and of its sample."""
        self.config = config
        self._random = [np.random.default_rng([config.seed, line, sample]) for line, sample in rows]

    def __call__(self, log_probabilities: Tensor, rows: Sequence[int]) -> Tensor:
        """Draw a token for each of these rows from log-probabilities (R, V); returns (R,)."""
        probabilities, tokens = self.distribution(log_probabilities.cpu())  # in float64, which not every device has
        reached = probabilities.cumsum(dim=-1)
        total = reached[:, -1:]
        drawn = torch.tensor([self._random[i].random() for i in rows], dtype=torch.double)
        place = ((reached <= drawn[:, None] * total) & (reached < total)).sum(dim=-1, keepdim=True)  # (R, 1)
        return tokens.gather(1, place)[:, 0].to(log_probabilities.device)

    def distribution(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities (R, V), the largest first, and their tokens; 0 at those that are not drawn from.

        First the temperature, then top_k, then top_p of what is left; the result need not sum to 1.
        """
        tempered = (log_probabilities.double() / self.config.temperature).softmax(dim=-1)
        probabilities, tokens = tempered.sort(dim=-1, descending=True, stable=True)
        if self.config.top_k is not None:
            probabilities[:, self.config.top_k :] = 0.0
        if self.config.top_p is not None:
            share = self.config.top_p * probabilities.sum(dim=-1, keepdim=True)
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities[before >= share] = 0.0  # the token with which the share is reached is the last that stays
        return probabilities, tokens
