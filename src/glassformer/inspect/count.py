"""How many parameters a model has: from its closed form, and from the built model."""

from dataclasses import dataclass

import torch

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config, model_of
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Part:
    """One kind of part: what one of them holds, how many there are, and the formula."""

    name: str
    formula: str
    each: int
    times: int = 1
    prefix: str = ""  # of the names of its parameters in the built model
    inside: bool = False  # a share of the part before it, not one more

    @property
    def total(self) -> int:
        """Parameters of all parts of this kind."""
        return self.each * self.times


@dataclass(frozen=True)
class Count:
    """The parameters of a model by part; `total` is counted in the built model, tied matrices once."""

    total: int
    closed_form: int
    parts: list[Part]
    tied: list[list[str]]  # names that stand for one matrix


def count(config: ModelConfig | Config) -> Count:
    """Count the parameters of a model without making its numbers."""
    config = model_of(config)
    with torch.device("meta"):
        model = Transformer(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    parts = closed_form(config)
    tied = [group for group in names.values() if len(group) > 1]
    return Count(total, sum(part.total for part in parts if not part.inside), parts, tied)


def closed_form(config: ModelConfig) -> list[Part]:
    """Return the parts of a model with their formulas (d = d_model, f = d_ff, K = d_head, H and G heads)."""
    parts = _embeddings(config)
    if config.n_encoder_layers:
        parts += _layers(config, "encoder", config.n_encoder_layers, cross=False)
    if config.n_decoder_layers:
        parts += _layers(config, "decoder", config.n_decoder_layers, cross=config.has_encoder)
    d = config.d_model
    if config.classifier is not None:
        classes = config.classifier.classes or 0  # model_of has checked it
        parts.append(Part("classifier", "d C + C", d * classes + classes, prefix="output"))
    elif config.target_vocabulary is not None:
        vocabulary, bias = config.target_vocabulary, config.output_bias
        own = config.tying not in ("all", "target-output")
        each = own * d * vocabulary + bias * vocabulary
        if each:
            formula = " + ".join(["V d"] * own + ["V"] * bias)
            parts.append(Part("output", formula, each, prefix="output"))
    return parts


def _embeddings(config: ModelConfig) -> list[Part]:
    d, parts = config.d_model, []
    shared = config.tying in ("all", "source-target")
    for side, vocabulary in (("encoder", config.source_vocabulary), ("decoder", config.target_vocabulary)):
        if vocabulary is None:
            continue
        if not (side == "decoder" and shared):
            who = {"all": "source, target and output", "source-target": "source and target"}.get(config.tying)
            if who is None:
                who = "source" if side == "encoder" else "target"
                who += " and output" if side == "decoder" and config.tying == "target-output" else ""
            parts.append(Part(f"embedding of {who}", "V d", vocabulary * d, prefix=f"{side}.embedding.tokens"))
        rows = config.positions.size or 0
        if rows:
            prefix = f"{side}.embedding.position_table"
            parts.append(Part(f"{side} positions", "positions · d", rows * d, prefix=prefix))
        if config.embedding.token_types:
            each = config.embedding.token_types * d
            parts.append(Part("token types", "types · d", each, prefix=f"{side}.embedding.token_types"))
        if config.norm.embedding:
            formula, each = _norm(config)
            parts.append(Part(f"{side} embedding norm", formula, each, prefix=f"{side}.embedding.norm"))
    return parts


def _layers(config: ModelConfig, side: str, n_layers: int, *, cross: bool) -> list[Part]:
    attention, ffn, norm = _attention(config), _ffn(config), _norm(config)
    n_attentions = 2 if cross else 1
    each = n_attentions * attention[1] + ffn[1] + (n_attentions + 1) * norm[1]
    formula = f"{n_attentions} attention + FFN + {n_attentions + 1} norms"
    layers = f"{side}.layers"
    parts = [
        Part(f"{side} layer", formula, each, n_layers, prefix=layers),
        Part("attention", *attention, n_layers * n_attentions, prefix=layers, inside=True),
        Part("FFN", *ffn, n_layers, prefix=layers, inside=True),
        Part("norm", *norm, n_layers * (n_attentions + 1), prefix=layers, inside=True),
    ]
    if config.final_norm:
        parts.append(Part(f"{side} final norm", *norm, prefix=f"{side}.norm"))
    return parts


def _attention(config: ModelConfig) -> tuple[str, int]:
    d, h, g, k = config.d_model, config.n_heads, config.kv_heads, config.d_k
    plain = h == g and h * k == d
    each, formula = 2 * d * h * k + 2 * d * g * k, "4 d²" if plain else "2 d H K + 2 d G K"
    if config.biases == "all":
        each += h * k + 2 * g * k + d
        formula += " + 4 d" if plain else " + H K + 2 G K + d"
    return formula, each


def _ffn(config: ModelConfig) -> tuple[str, int]:
    d, f, n_in = config.d_model, config.d_ff, 2 if config.ffn.gated else 1
    each, formula = (n_in + 1) * d * f, f"{n_in + 1} d f"
    if config.biases != "none":
        each += n_in * f + d
        formula += f" + {'2 f' if n_in == 2 else 'f'} + d"
    return formula, each


def _norm(config: ModelConfig) -> tuple[str, int]:
    return ("2 d", 2 * config.d_model) if config.norm.kind == "layernorm" else ("d", config.d_model)
