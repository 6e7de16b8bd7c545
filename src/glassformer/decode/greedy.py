"""Writing token by token: the most likely one each time, or one that is drawn."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.config.run import DecodeConfig
from glassformer.decode.hypothesis import Hypothesis, Prompt, scored
from glassformer.decode.rules import Rules, top
from glassformer.decode.sample import Sampler
from glassformer.decode.state import Model, State, begin

# log-probabilities (R, V) of the rows that are still written at, and which prompts those are -> a token for each, (R,)
Choose = Callable[[Tensor, Sequence[int]], Tensor]


@dataclass(frozen=True, eq=False)
class Step:
    """One more token for each row that is still written at."""

    rows: list[int]  # which of the prompts
    log_probabilities: Tensor  # (R, V) of what could come
    tokens: list[int]  # what was chosen, for each row
    chosen: list[float]  # its log-probability


def most_likely(log_probabilities: Tensor, _: Sequence[int]) -> Tensor:
    """Choose the most likely token of each row."""
    return top(log_probabilities, 1)[1][:, 0]


def sampler(prompts: Sequence[Prompt], config: DecodeConfig, n: int = 1) -> Sampler:
    """Return what draws for prompts of which each stands `n` times in a row."""
    return Sampler(config, [(prompt.number, i % n) for i, prompt in enumerate(prompts)])


@torch.inference_mode()
def steps(state: State, prompts: Sequence[Prompt], rules: Rules, choose: Choose = most_likely) -> Iterator[Step]:
    """Write one token after the other for each prompt, until its end token or its limit.

    `state` is what `begin` made of the prompts. A row that has ended leaves the batch.
    """
    written = [list(prompt.prefix) for prompt in prompts]
    rows = list(range(len(prompts)))
    while rows:
        log_probabilities = rules.log_probabilities(state.logits, [written[i] for i in rows])  # (R, V)
        chosen = choose(log_probabilities, rows)  # (R,)
        values = log_probabilities.gather(1, chosen[:, None])[:, 0]
        tokens = chosen.tolist()
        yield Step(rows, log_probabilities, tokens, values.tolist())
        for i, token in zip(rows, tokens, strict=True):
            written[i].append(token)
        still = [k for k, i in enumerate(rows) if tokens[k] != rules.end_id and len(written[i]) < prompts[i].limit]
        if len(still) < len(rows):
            rows, tokens = [rows[k] for k in still], [tokens[k] for k in still]
            if rows:
                state.select(still, still)
        if rows:
            state.step(tokens)


def write(
    models: Sequence[Model], prompts: Sequence[Prompt], rules: Rules, config: DecodeConfig
) -> list[list[Hypothesis]]:
    """Write each prompt to its end: once, greedily, or as many samples as `n_best`, the best score first."""
    n = config.n_best if config.sample else 1
    prompts = [prompt for prompt in prompts for _ in range(n)]
    state = begin(models, prompts, rules)
    written, totals = [list(prompt.prefix) for prompt in prompts], list(state.prefix_log_probabilities)
    for step in steps(state, prompts, rules, sampler(prompts, config, n) if config.sample else most_likely):
        for i, token, log_probability in zip(step.rows, step.tokens, step.chosen, strict=True):
            written[i].append(token)
            totals[i] += log_probability
    found = [scored(ids, total, end_id=rules.end_id, config=config) for ids, total in zip(written, totals, strict=True)]
    return [sorted(found[i : i + n], key=lambda hypothesis: -hypothesis.score) for i in range(0, len(found), n)]
