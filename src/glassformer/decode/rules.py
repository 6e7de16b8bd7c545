"""Which tokens may come next."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.errors import DecodingError

BLOCK = 100


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest numbers of each row of (R, V), the largest first, and where they stand; k ≤ V.

    They lie in the k blocks with the largest maxima, and maxima are found many times faster than the k largest.
    """
    n_blocks = values.shape[1] // BLOCK
    if n_blocks <= k:
        found, places = values.topk(k, dim=-1)
        return found, places
    blocks = values[:, : n_blocks * BLOCK].view(-1, n_blocks, BLOCK)  # (R, n, BLOCK)
    best = blocks.amax(dim=-1).topk(k, dim=-1).indices  # (R, k)
    candidates = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    rest = values[:, n_blocks * BLOCK :]
    found, places = torch.cat([candidates, rest], dim=1).topk(k, dim=-1)
    inside = best.gather(1, (places // BLOCK).clamp(max=k - 1)) * BLOCK + places % BLOCK
    return found, torch.where(places < k * BLOCK, inside, places - k * BLOCK + n_blocks * BLOCK)


class Rules:
    """Masks the tokens that may not come next before the softmax, so that the others' probabilities sum to 1.

    Where the rules leave no token, the end token is all that is left, even if they forbid it too.
    """

    def __init__(
        self, end_id: int, *, forbidden: Sequence[int] = (), min_length: int = 0, no_repeat_ngram: int = 0
    ) -> None:
        """Take the rules.

        Args:
            end_id: What ends a hypothesis.
            forbidden: Ids that are never written.
            min_length: The end token may not be one of the first `min_length - 1` tokens.
            no_repeat_ngram: n; no n tokens in a row occur twice in what is written. 0: they may.

        """
        self.end_id, self.min_length, self.n = end_id, min_length, no_repeat_ngram
        self.forbidden = sorted(set(forbidden))

    def log_probabilities(self, logits: Tensor, written: Sequence[Sequence[int]]) -> Tensor:
        """Return the log-probabilities (R, V) of the next token, -inf where it is not allowed.

        Args:
            logits: (R, V); they are written over, as a copy would take a good part of a step's time.
            written: What each row has written so far, its prefix included.

        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.forbidden:
            logits.index_fill_(1, torch.tensor(self.forbidden, device=logits.device), -math.inf)
        banned: list[tuple[int, int]] = []
        if self.min_length or self.n:
            banned = [(row, token) for row, ids in enumerate(written) for token in self._banned(ids)]
        if banned:
            logits[torch.tensor(banned, device=logits.device).unbind(1)] = -math.inf
        if self.forbidden or banned:
            nothing_left = logits.amax(dim=1) == -math.inf  # (R,)
            logits[:, self.end_id].masked_fill_(nothing_left, 0.0)
        return logits.log_softmax(dim=-1)

    def forced(self, logits: Tensor, targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of given texts.

        Args:
            logits: (R, T, V) of the last T tokens of each row, T that of the longest; they are written over.
            targets: The tokens of each row.

        """
        results: list[list[float]] = [[] for _ in targets]
        n_places = logits.shape[1]
        for place in range(n_places):
            rows = [row for row, target in enumerate(targets) if place >= n_places - len(target)]
            done = [place - (n_places - len(targets[row])) for row in rows]  # tokens before this place
            written = [targets[row][:n] for row, n in zip(rows, done, strict=True)]
            found = self.log_probabilities(logits[rows, place], written)  # (R', V)
            tokens = torch.tensor([targets[row][n] for row, n in zip(rows, done, strict=True)], device=found.device)
            for row, value in zip(rows, found.gather(1, tokens[:, None])[:, 0].tolist(), strict=True):
                results[row].append(value)
        return results

    def check(self, prefix: Sequence[int], names: Sequence[str]) -> None:
        """Refuse a prefix that the rules would not have let a search write.

        Raises:
            DecodingError: It names the first token that is not allowed.

        """
        for place, token in enumerate(prefix):
            if token in self.forbidden or token in self._banned(prefix[:place]) or token == self.end_id:
                raise DecodingError(
                    f"token {place + 1} of the prefix, {names[place]!r}, is one that may not be written"
                )

    def _banned(self, ids: Sequence[int]) -> set[int]:
        """Return what may not follow `ids`, apart from what never may."""
        banned = {self.end_id} if len(ids) + 1 < self.min_length else set()
        if self.n and len(ids) >= self.n:
            last = list(ids[len(ids) - self.n + 1 :])  # the n - 1 tokens that the next one would complete
            starts = range(len(ids) - self.n + 1)
            banned |= {ids[i + self.n - 1] for i in starts if list(ids[i : i + self.n - 1]) == last}
        return banned
