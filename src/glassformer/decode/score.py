"""The log-probability of given text, token by token: the same path and the same rules as when it is written."""

from collections.abc import Iterator, Sequence

import torch

from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.state import State
from glassformer.model.transformer import Transformer

LARGEST = 2**25  # logits at once: 128 MB


@torch.inference_mode()
def score(
    models: Sequence[Transformer], prompts: Sequence[Prompt], targets: Sequence[Sequence[int]], rules: Rules
) -> list[list[float]]:
    """Return the log-probability of each token of each target, given its prompt and the tokens before it.

    Args:
        models: One in eval mode, or several whose probabilities are averaged.
        prompts: What was read; their limits and prefixes do not matter here.
        targets: Ids; the end token is scored where it is among them. An empty one gives an empty list.
        rules: Which tokens could come; a token that could not has -inf.

    """
    results: list[list[float]] = [[] for _ in prompts]
    vocabulary = models[0].config.target_vocabulary or 1
    filled = [i for i in range(len(prompts)) if targets[i]]
    for group in _groups(sorted(filled, key=lambda i: len(targets[i])), [len(t) for t in targets], vocabulary):
        longest = max(len(targets[i]) for i in group)
        state = State(models, [prompts[i] for i in group])
        # the last token is only written, never read
        logits = state.read([[*prompts[i].read, *targets[i][:-1]] for i in group], last=longest)  # (B, T, V)
        for place in range(longest):
            rows = [row for row, i in enumerate(group) if place >= longest - len(targets[i])]
            done = [place - (longest - len(targets[group[row]])) for row in rows]
            written = [targets[group[row]][:n] for row, n in zip(rows, done, strict=True)]
            found = rules.log_probabilities(logits[rows, place], written)  # (R, V)
            tokens = torch.tensor([targets[group[row]][n] for row, n in zip(rows, done, strict=True)])
            values = found.gather(1, tokens.to(found.device)[:, None])[:, 0].tolist()
            for row, value in zip(rows, values, strict=True):
                results[group[row]].append(value)
    return results


def _groups(order: Sequence[int], lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Yield rows of growing length together, as many as have room."""
    group: list[int] = []
    for i in order:
        if group and (len(group) + 1) * lengths[i] * vocabulary > LARGEST:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
