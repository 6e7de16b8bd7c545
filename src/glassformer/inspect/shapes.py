"""The shape of every tensor for given lengths, from a run of the model that computes no numbers."""

from dataclasses import dataclass

import torch

from glassformer.config.model import ModelConfig
from glassformer.inspect.trace import trace
from glassformer.model.attention import causal
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Shape:
    """The shape of one tensor."""

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    hidden_cells_per_head: int | None = None  # of causal attention weights: the cells above the diagonal


def shapes(config: ModelConfig, *, source_length: int, target_length: int) -> list[Shape]:
    """Return the shapes of all tensors, for one sequence of so many source and target tokens."""
    with torch.device("meta"):  # shapes without numbers: the largest model takes no memory
        model = Transformer(config)
        source = torch.zeros(1, source_length, dtype=torch.long) if config.has_encoder else None
        target = torch.zeros(1, target_length, dtype=torch.long) if config.has_decoder else None
    hidden = int((~causal(target_length, target_length, torch.device("cpu"))).sum())
    return [
        Shape(name, tensor.axes, tensor.shape, hidden if _is_causal(name) else None)
        for name, tensor in trace(model, source, target).items()
    ]


def _is_causal(name: str) -> bool:
    return name.startswith("decoder.") and name.endswith(("self_attention.masked", "self_attention.weights"))
