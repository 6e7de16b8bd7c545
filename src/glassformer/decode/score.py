"""The log-probability of given text, token by token: the same path and the same rules as when it is written."""

import math
from collections.abc import Iterator, Sequence

import torch

from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.state import Model, State
from glassformer.errors import DataError

LARGEST = 2**25  # logits at once: 128 MB


@torch.inference_mode()
def score(
    models: Sequence[Model],
    prompts: Sequence[Prompt],
    targets: Sequence[Sequence[int]],
    rules: Rules,
    *,
    batch_size: int = 64,
) -> list[list[float]]:
    """Return the log-probability of each token of each target, given its prompt and the tokens before it.

    Args:
        models: One in eval mode, or several whose probabilities are averaged.
        prompts: What was read; their limits and prefixes do not matter here.
        targets: Ids; the end token is scored where it is among them. An empty one gives an empty list.
        rules: Which tokens could come; a token that could not has -inf.
        batch_size: The most rows to be read at once.

    Raises:
        DataError: A target stands after a blank prompt.

    """
    for prompt, target in zip(prompts, targets, strict=True):
        if target and prompt.is_blank:
            raise DataError("there is nothing before the text that is to be scored: its first token has no probability")
    results: list[list[float]] = [[] for _ in prompts]
    vocabulary = models[0].config.target_vocabulary or 1
    for group in _groups(prompts, targets, batch_size, vocabulary):
        state = State(models, [prompts[i] for i in group])
        # the last token is only written, never read
        rows, longest = [[*prompts[i].read, *targets[i][:-1]] for i in group], max(len(targets[i]) for i in group)
        forced = rules.forced(state.read(rows, last=longest), [targets[i] for i in group])
        for i, values in zip(group, forced, strict=True):
            results[i] = values
    return results


def perplexity(log_probability: float, n_tokens: int) -> float:
    """Return exp of the mean of minus a token's log-probability; infinite where that is too large for a number."""
    try:
        return math.exp(-log_probability / n_tokens)
    except OverflowError:
        return math.inf


def _groups(
    prompts: Sequence[Prompt], targets: Sequence[Sequence[int]], batch_size: int, vocabulary: int
) -> Iterator[list[int]]:
    """Yield places of like length together, as many as have room."""
    lengths = [(len(p.source or ()) + len(p.read) + len(t), len(t)) for p, t in zip(prompts, targets, strict=True)]
    group: list[int] = []
    longest = 0
    for i in sorted((i for i, target in enumerate(targets) if target), key=lambda i: lengths[i]):
        longest = max(longest, len(targets[i]))
        if group and (len(group) == batch_size or (len(group) + 1) * longest * vocabulary > LARGEST):
            yield group
            group, longest = [], len(targets[i])
        group.append(i)
    if group:
        yield group
