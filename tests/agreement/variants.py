"""The product of architecture choices: four small models for each core combination, and every pair of the others."""

import itertools
import random
from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.model.transformer import Transformer

CORE = list(
    itertools.product(
        ("encoder-decoder", "decoder", "encoder"),
        ("post", "pre"),
        ("sinusoidal", "learned", "rotary", "none"),
        (None, 2, 1),  # key and value heads, of 4
    )
)
PER_CORE = 4
TYINGS = {
    "encoder-decoder": ("all", "source-target", "target-output", "none"),
    "decoder": ("target-output", "none"),
    "encoder": ("none",),
}
OTHERS: dict[str, tuple[Any, ...]] = {
    "norm.kind": ("layernorm", "rmsnorm"),
    "norm.eps": (1e-5, 1e-3),
    "norm.final": (None, True, False),
    "norm.embedding": (False, True),
    "first": (0, 1, 2),
    "pairs": ("interleaved", "halves", "tensor2tensor"),  # the ladder or the convention
    "activation": ("relu", "gelu", "gelu-tanh", "silu"),
    "gated": (False, True),
    "biases": ("all", "ffn", "none"),
    "output_bias": (False, True),
    "scale": (True, False),
    "d_head": (None, 6),
    "tying": (0, 1, 2, 3),  # counted in TYINGS
    "initialisation": ("pytorch", "xavier", "normal"),
    "classes": (None, "first", "mean", "none"),
    "token_types": (0, 2),
}
VOCABULARY = 23
LONGEST = 16


def drawn(kind: str, placement: str, positions: str, n_kv_heads: int | None) -> list[dict[str, Any]]:
    """Draw the other choices of the variants of one core combination, always the same ones."""
    draw = random.Random(f"{kind} {placement} {positions} {n_kv_heads}")
    return [{name: draw.choice(values) for name, values in OTHERS.items()} for _ in range(PER_CORE)]


def config(core: tuple[str, str, str, int | None], other: dict[str, Any]) -> ModelConfig:
    """Put a core combination and the other choices together; a choice that the kind does not have falls away."""
    kind, placement, positions, n_kv_heads = core
    has_encoder, has_decoder = kind != "decoder", kind != "encoder"
    place: dict[str, Any] = {"kind": positions}
    if positions != "none":
        place["first"] = other["first"]
    if positions == "learned":
        place["size"] = LONGEST + 2
    if positions == "sinusoidal":
        place["ladder"] = other["pairs"]
    if positions == "rotary":
        place["convention"] = "halves" if other["pairs"] == "tensor2tensor" else other["pairs"]
    values: dict[str, Any] = {
        "kind": kind,
        "d_model": 16,
        "d_ff": 24,
        "n_heads": 4,
        "n_kv_heads": n_kv_heads,
        "d_head": other["d_head"],
        "norm": {key.removeprefix("norm."): value for key, value in other.items() if key.startswith("norm.")}
        | {"placement": placement},
        "positions": place,
        "ffn": {"activation": other["activation"], "gated": other["gated"]},
        "biases": other["biases"],
        "embedding": {
            "scale": other["scale"],
            "token_types": other["token_types"] if kind == "encoder" else 0,
        },
        "tying": TYINGS[kind][other["tying"] % len(TYINGS[kind])],
        "initialisation": other["initialisation"],
        "dropout": {"residual": 0.1, "attention": 0.1, "ffn": 0.1},
    }
    if has_encoder:
        values |= {"source_vocabulary": VOCABULARY, "n_encoder_layers": 2}
    if has_decoder:
        values |= {
            "target_vocabulary": VOCABULARY,
            "n_decoder_layers": 2,
            "output_bias": other["output_bias"],
        }
    if kind == "encoder" and other["classes"] is not None:
        values["classifier"] = {"classes": 3, "pooling": other["classes"]}
    return ModelConfig.model_validate(values)


def build(model_config: ModelConfig, seed: int = 0) -> Transformer:
    """Make a model in eval mode whose norms, biases and tables are far from their first values.

    Fresh ones hide faults: a norm of something normalised changes nothing, and an added zero neither.
    """
    torch.manual_seed(seed)
    model = Transformer(model_config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.uniform_(-0.3, 0.3)
            else:
                parameter.normal_(std=0.2)
    return model
