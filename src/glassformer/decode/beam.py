"""Beam search (section 6.1), the best hypotheses side by side, and a record of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from glassformer.config.run import DecodeConfig
from glassformer.decode.hypothesis import Hypothesis, Prompt, length_penalty, scored
from glassformer.decode.rules import Rules, top
from glassformer.decode.state import Model, State, begin

Fate = Literal["goes on", "finished", "pruned"]


@dataclass(frozen=True)
class Candidate:
    """One token that could follow one hypothesis, and what became of it."""

    parent: int  # which of the hypotheses that went on from the step before
    token: int
    log_probability: float  # of the token
    total: float  # of all tokens so far
    penalty: float
    score: float  # total / penalty
    fate: Fate
    why: str  # of what was pruned


@dataclass
class Record:
    """What a beam search did for one source, step by step."""

    steps: list[list[Candidate]] = field(default_factory=list)  # each step's candidates, the best total first
    stopped: str = ""  # why it went no further


class Live(NamedTuple):
    """A hypothesis that goes on."""

    ids: list[int]
    total: float


class Search:
    """The search for one prompt: the hypotheses that go on, and the best that are finished."""

    def __init__(self, prompt: Prompt, total: float, rules: Rules, config: DecodeConfig, record: Record | None) -> None:
        self.prompt, self.rules, self.config, self.record = prompt, rules, config, record
        self.live = [Live(list(prompt.prefix), total)]
        self.finished: list[Hypothesis] = []
        self.done = False

    def advance(self, candidates: Sequence[tuple[float, int, int]]) -> list[int]:
        """Take a step: candidates (total, parent, token), the best first. Returns the parents of what goes on."""
        before, end_id, beam_size = self.live, self.rules.end_id, self.config.beam_size
        live: list[Live] = []
        parents: list[int] = []
        fates: list[tuple[Fate, str]] = []
        for total, parent, token in candidates:
            fate: tuple[Fate, str] = ("goes on", "")
            if total == -math.inf:
                break  # forbidden, or no hypothesis at all
            if token == end_id:
                fate = self._finish([*before[parent].ids, token], total)
            elif len(live) < beam_size:
                live.append(Live([*before[parent].ids, token], total))
                parents.append(parent)
            else:
                fate = ("pruned", f"{beam_size} better ones go on")
            fates.append(fate)
        length = len(before[0].ids) + 1
        if self.record is not None:
            penalty = length_penalty(self.config, length)
            self.record.steps.append(
                [
                    Candidate(parent, token, total - before[parent].total, total, penalty, total / penalty, *fate)
                    for (total, parent, token), fate in zip(candidates, fates, strict=False)
                ]
            )
        self.live = live
        self._stop(length)
        return parents

    def results(self) -> list[Hypothesis]:
        """Return the `n_best` hypotheses, the best first; those that were cut come after those that ended."""
        end_id, config = self.rules.end_id, self.config
        cut = [scored(live.ids, live.total, end_id=end_id, config=config) for live in self.live]
        return [*self.finished, *cut][: config.n_best]

    def _finish(self, ids: list[int], total: float) -> tuple[Fate, str]:
        self.finished.append(scored(ids, total, end_id=self.rules.end_id, config=self.config))
        worst = self.finished[-1]
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self.config.n_best :]
        if any(hypothesis is worst for hypothesis in self.finished):
            return "finished", ""
        return "pruned", f"{self.config.n_best} finished with no worse a score"

    def _stop(self, length: int) -> None:
        """Stop at the limit, or when nothing that goes on can come to a better score than what is finished."""
        why = ""
        if not self.live:
            why = "nothing goes on"
        elif length >= self.prompt.limit:
            why = f"the length limit of {self.prompt.limit}"
        elif len(self.finished) == self.config.n_best:
            # totals only fall, and the penalty grows or falls with the length: it is largest at one of the ends
            ends = (length_penalty(self.config, n) for n in (length + 1, self.prompt.limit))
            bound = self.live[0].total / max(ends)
            if self.finished[-1].score >= bound:
                why = f"no score can still come above {bound:.4f}"
        self.done = bool(why)
        if self.record is not None:
            self.record.stopped = why


@torch.inference_mode()
def beam(
    models: Sequence[Model],
    prompts: Sequence[Prompt],
    rules: Rules,
    config: DecodeConfig,
    *,
    records: Sequence[Record] | None = None,
) -> list[list[Hypothesis]]:
    """Search with a beam; returns the `n_best` hypotheses of each prompt, the best score first.

    Each step looks at the 2 `beam_size` best continuations, as tensor2tensor, the paper's own code, does: so even if
    `beam_size` of them end, as many go on. It stops when nothing that goes on can still come to a better score than
    the `n_best` that are finished, so that asking for more results never changes the first ones.

    Args:
        models: One, or several that vote together; in eval mode.
        prompts: What to write from.
        rules: Which tokens may come.
        config: Its beam size, length penalty and `n_best` are used here.
        records: One for each prompt, to be filled.

    """
    state = begin(models, prompts, rules)
    searches = [
        Search(prompt, total, rules, config, None if records is None else records[i])
        for i, (prompt, total) in enumerate(zip(prompts, state.prefix_log_probabilities, strict=True))
    ]
    running, width = searches, 1
    while True:
        found = _best(state, running, rules, width, 2 * config.beam_size)
        parents = [search.advance(candidates) for search, candidates in zip(running, found, strict=True)]
        kept = [i for i, search in enumerate(running) if not search.done]
        if not kept:
            return [search.results() for search in searches]
        new_width = max(len(running[i].live) for i in kept)
        rows, tokens = [], []
        for i in kept:
            own = [(width * i + parent, live.ids[-1]) for parent, live in zip(parents[i], running[i].live, strict=True)]
            own += own[:1] * (new_width - len(own))  # rows that fill up, as each source has as many
            rows += [row for row, _ in own]
            tokens += [token for _, token in own]
        everything = len(kept) == len(running)
        if not everything or rows != list(range(width * len(running))):
            state.select(rows, None if everything else kept)
        running, width = [running[i] for i in kept], new_width
        state.step(tokens)


def _best(
    state: State, running: Sequence[Search], rules: Rules, width: int, n: int
) -> list[list[tuple[float, int, int]]]:
    """Return the `n` best continuations (total, parent, token) of each search, the best first."""
    rows = [search.live + search.live[:1] * (width - len(search.live)) for search in running]  # filled up as above
    log_probabilities = rules.log_probabilities(state.logits, [live.ids for row in rows for live in row])
    values, tokens = top(log_probabilities, min(n, log_probabilities.shape[1]))  # (R, k)
    k = values.shape[1]
    sums = [[live.total for live in search.live] + [-math.inf] * (width - len(search.live)) for search in running]
    before = torch.tensor(sums, dtype=torch.double)  # (B, width); a sum of many numbers: in float64
    totals = before[:, :, None] + values.cpu().double().view(len(running), width, k)
    best, places = totals.flatten(1).topk(min(n, width * k), dim=-1)  # (B, n)
    chosen = tokens.cpu().view(len(running), width * k).gather(1, places)
    parents = places.div(k, rounding_mode="floor")
    return [
        list(zip(*triple, strict=True)) for triple in zip(best.tolist(), parents.tolist(), chosen.tolist(), strict=True)
    ]
