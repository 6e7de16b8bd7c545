"""Where a search stands, for one model or several together: last tokens in, scores of the next ones out."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.data.batch import pad
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.errors import DecodingError
from glassformer.model.cache import Cache
from glassformer.model.transformer import Memory


class Model(Protocol):
    """What a search asks of a model: ours, or one that another engine runs. The methods are those of `Transformer`."""

    @property
    def config(self) -> ModelConfig:
        """What it is."""

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""

    def new_cache(self) -> Cache:
        """Return an empty cache for `decode`."""

    def encode(self, source: Tensor, *, is_real: Tensor | None = None) -> Memory:
        """Read sources (B, S)."""

    def decode(
        self,
        target: Tensor,
        memory: Memory | None = None,
        *,
        cache: Cache | None = None,
        is_real: Tensor | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Read targets (B, T) and return the logits (B, last, V) of what comes next."""


def combine(logits: Sequence[Tensor]) -> Tensor:
    """Return the logits of one model, or the logarithm of the mean of the probabilities of several."""
    if len(logits) == 1:
        return logits[0]
    precise = torch.promote_types(logits[0].dtype, torch.float32)
    return torch.stack([one.to(precise).log_softmax(dim=-1) for one in logits]).logsumexp(dim=0) - math.log(len(logits))


class State:
    """What the models remember of each row, memory and cache together, and the logits of its next token.

    A row is one hypothesis. Rows of one source stand side by side, as many for each source, and share its memory.
    """

    logits: Tensor  # (R, V)
    prefix_log_probabilities: list[float]  # of each prompt's prefix

    def __init__(self, models: Sequence[Model], prompts: Sequence[Prompt]) -> None:
        """Encode the sources; the models are in eval mode and write the same vocabulary."""
        if not all(model.config.has_decoder for model in models):
            raise DecodingError("an encoder-only model does not write: it classifies")
        self.models = models
        self.device = models[0].device
        self._caches = [model.new_cache() for model in models]
        self._memories: list[Memory | None] = [None] * len(models)
        if models[0].config.has_encoder:
            ids, is_real = self._pad([prompt.source or () for prompt in prompts])
            self._memories = [model.encode(ids, is_real=is_real) for model in models]

    def read(self, rows: Sequence[Sequence[int]], *, last: int) -> Tensor:
        """Read the first tokens of each row; return the logits (R, last, V) of what follows the last so many."""
        ids, is_real = self._pad(rows, left=True)
        logits = self._decode(ids, is_real, last)
        self.logits = logits[:, -1]
        return logits

    def step(self, tokens: Sequence[int]) -> None:
        """Read one more token for each row."""
        self.logits = self._decode(torch.tensor(tokens, device=self.device)[:, None], None, 1)[:, 0]

    def select(self, rows: Sequence[int], sources: Sequence[int] | None) -> None:
        """Keep these rows, in this order, and the memories of these sources; None: all of them."""
        chosen = torch.tensor(rows, device=self.device)
        kept = None if sources is None else torch.tensor(sources, device=self.device)
        for cache in self._caches:
            cache.select(chosen, kept)
        if kept is not None:
            self._memories = [None if memory is None else memory.select(kept) for memory in self._memories]

    def _pad(self, rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor | None]:
        ids, is_real = pad(rows, left=left)
        return ids.to(self.device), None if is_real is None else is_real.to(self.device)

    def _decode(self, ids: Tensor, is_real: Tensor | None, last: int) -> Tensor:
        logits = [
            model.decode(ids, memory, cache=cache, is_real=is_real, last=last)
            for model, memory, cache in zip(self.models, self._memories, self._caches, strict=True)
        ]
        return combine(logits)


@torch.inference_mode()
def begin(models: Sequence[Model], prompts: Sequence[Prompt], rules: Rules) -> State:
    """Encode the sources and read what stands before the first token that is to be chosen.

    Raises:
        DecodingError: The models do not write, or a limit leaves no room for a token.

    """
    for prompt in prompts:
        prompt.check()
    state = State(models, prompts)
    longest = max(len(prompt.prefix) for prompt in prompts)
    logits = state.read([[*prompt.read, *prompt.prefix] for prompt in prompts], last=1 + longest)  # (B, 1 + P, V)
    forced = rules.forced(logits[:, :-1], [prompt.prefix for prompt in prompts])
    state.prefix_log_probabilities = [sum(values) for values in forced]
    return state
