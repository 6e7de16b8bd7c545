"""The shape of every tensor for given lengths, from a run of the model that computes no numbers."""

from dataclasses import dataclass

import torch

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config, model_of
from glassformer.errors import DataError
from glassformer.inspect.trace import trace
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Shape:
    """The shape of one tensor."""

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    hidden_cells_per_head: int | None = None  # of causal attention weights: the cells above the diagonal


def shapes(config: ModelConfig | Config, *, source_length: int, target_length: int) -> list[Shape]:
    """Return the shapes of all tensors, for one sequence of so many source and target tokens.

    Raises:
        DataError: A length is past the end of the model's learned positions.

    """
    config = model_of(config)
    for side, length, is_there in (
        ("source", source_length, config.has_encoder),
        ("target", target_length, config.has_decoder),
    ):
        if is_there and config.longest is not None and length > config.longest:
            raise DataError(
                f"a {side} of {length} tokens is past the end of the learned positions: {config.longest} at most"
            )
    with torch.device("meta"):  # shapes without numbers: the largest model takes no memory
        model = Transformer(config)
        source = torch.zeros(1, source_length, dtype=torch.long) if config.has_encoder else None
        target = torch.zeros(1, target_length, dtype=torch.long) if config.has_decoder else None
    hidden = target_length * (target_length - 1) // 2
    return [
        Shape(name, tensor.axes, tensor.shape, hidden if _is_causal(name) else None)
        for name, tensor in trace(model, source, target).items()
    ]


def _is_causal(name: str) -> bool:
    return name.startswith("decoder.") and name.endswith(("self_attention.masked", "self_attention.weights"))
