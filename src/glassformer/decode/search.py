"""Writing one token at a time, over a cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glassformer.data.batch import pad
from glassformer.errors import DecodingError
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Hypothesis:
    """What a search wrote for one source."""

    ids: list[int]  # without the start token and the end token
    log_probability: float  # of all tokens that were chosen, the end token included
    # end: the end token was chosen; limit: the length limit cut it; empty: there was nothing to read
    stopped: Literal["end", "limit", "empty"]


@dataclass(frozen=True, eq=False)
class Step:
    """One step of greedy decoding, for all rows of a batch."""

    log_probabilities: Tensor  # (B, V), of the next token
    chosen: Tensor  # (B,)


@torch.inference_mode()
def greedy_steps(
    model: Transformer, sources: Sequence[Sequence[int]], *, start_id: int, n_steps: int
) -> Iterator[Step]:
    """Encode the sources once, then choose the most likely token `n_steps` times; the caller stops earlier.

    The model should be in eval mode.
    """
    if n_steps < 1:
        raise DecodingError(f"a length limit of {n_steps} leaves no room for a token: the smallest is 1")
    if not (model.config.has_encoder and model.config.has_decoder):
        raise DecodingError(
            f"a model of kind {model.config.kind!r} does not translate: that takes an encoder and a decoder"
        )
    device = next(model.parameters()).device
    ids, is_real = pad(sources)
    memory = model.encode(ids.to(device), is_real=None if is_real is None else is_real.to(device))
    cache = model.new_cache()
    last = torch.full((len(sources), 1), start_id, device=device)
    for _ in range(n_steps):
        logits = model.decode(last, memory, cache=cache)[:, -1]  # (B, V)
        last = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
        yield Step(logits.float().log_softmax(dim=-1), last[:, 0])


def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    start_id: int,
    end_id: int,
    limits: Sequence[int],
) -> list[Hypothesis]:
    """Write the most likely token at each step, until the end token or the length limit.

    Args:
        model: An encoder–decoder in eval mode.
        sources: Ids of each source, of any lengths; an empty one gives an empty hypothesis.
        start_id: What the decoder reads first.
        end_id: What ends a hypothesis.
        limits: For each source, the most tokens that may be chosen, the end token included; where the decoder's
            positions are a learned table, its end is a limit too.

    Raises:
        DecodingError: The model does not translate, or a limit is below 1.

    """
    if min(limits, default=1) < 1:
        raise DecodingError(f"a length limit of {min(limits)} leaves no room for a token: the smallest is 1")
    table = model.config.longest
    limits = limits if table is None else [min(limit, table) for limit in limits]
    hypotheses = [Hypothesis([], 0.0, "empty") for _ in sources]
    rows = [i for i, source in enumerate(sources) if source]
    if not rows:
        return hypotheses
    limit = torch.tensor([limits[i] for i in rows])
    steps = greedy_steps(model, [sources[i] for i in rows], start_id=start_id, n_steps=int(limit.max()))
    length, total = torch.zeros(len(rows), dtype=torch.long), torch.zeros(len(rows), dtype=torch.double)
    open_, chosen = limit > 0, []
    for step in steps:
        ids = step.chosen.cpu()
        chosen.append(ids)
        best = step.log_probabilities.gather(1, step.chosen[:, None])[:, 0].cpu()
        total += torch.where(open_, best.double(), 0.0)
        length += open_
        open_ = open_ & (ids != end_id) & (length < limit)
        if not open_.any():
            break
    for i, ids, n, score in zip(
        rows, torch.stack(chosen, dim=1).tolist(), length.tolist(), total.tolist(), strict=True
    ):
        ended = ids[n - 1] == end_id
        hypotheses[i] = Hypothesis(ids[: n - 1] if ended else ids[:n], score, "end" if ended else "limit")
    return hypotheses
