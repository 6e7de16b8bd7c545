"""Small models for the tests of searching: fixed, random, and far from undecided."""

from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.hypothesis import Hypothesis, Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.search import search
from glassformer.model.transformer import Transformer
from tests.agreement.variants import build
from tests.reference.beam import Next, cached

START, END = 1, 2


def small(kind: str = "encoder-decoder", vocabulary: int = 5, **changes: Any) -> Transformer:
    """A model of a few numbers, in float64, so that no two ways of computing come apart."""
    values: dict[str, Any] = {"kind": kind, "d_model": 16, "d_ff": 24, "n_heads": 2, "tying": "none"}
    if kind != "decoder":
        values |= {"source_vocabulary": vocabulary, "n_encoder_layers": 1}
    if kind != "encoder":
        values |= {"target_vocabulary": vocabulary, "n_decoder_layers": 2}
    return build(ModelConfig.model_validate(values | changes)).double()


def following(model: Transformer, source: list[int] | None, read: list[int] | None = None) -> Next:
    """What comes after tokens, computed anew each time: no cache, no batch."""

    def ask(ids: tuple[int, ...]) -> np.ndarray:
        with torch.inference_mode():
            target = torch.tensor([[*(read or [START]), *ids]])
            logits = model(None if source is None else torch.tensor([source]), target)
        return logits[0, -1].log_softmax(-1).numpy()

    return cached(ask)


def find(
    model: Transformer, prompts: list[Prompt] | Prompt, *, rules: Rules | None = None, **settings: Any
) -> list[list[Hypothesis]]:
    config = DecodeConfig(**settings)
    several = prompts if isinstance(prompts, list) else [prompts]
    return search([model], several, rules or Rules(END), config)


def whole(hypothesis: Hypothesis) -> tuple[int, ...]:
    """The tokens, with the end token where there was one."""
    return (*hypothesis.ids, END) if hypothesis.stopped == "end" else tuple(hypothesis.ids)
