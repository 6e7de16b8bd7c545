"""Llama and its likes at Hugging Face: decoders with RMSNorm before each sublayer, rotary positions and gated networks.

Touvron et al. 2023 (arXiv:2302.13971). Query and key rows are laid out for "halves".
"""

from typing import Any

from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.interop.foreign import Settings
from glassformer.interop.layout import Layout, Part, embedding_names, layers, with_bias

ARCHITECTURES = ("LlamaForCausalLM",)
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
LAYER = {
    "self_attention.w_q": "self_attn.q_proj", "self_attention.w_k": "self_attn.k_proj",
    "self_attention.w_v": "self_attn.v_proj", "self_attention.w_o": "self_attn.o_proj",
    "ffn.w_gate": "mlp.gate_proj", "ffn.w_1": "mlp.up_proj", "ffn.w_2": "mlp.down_proj",
}  # fmt: skip
NORMS = {"self_attention_residual.norm": "input_layernorm", "ffn_residual.norm": "post_attention_layernorm"}


def read(settings: Settings) -> dict[str, Any]:
    """Return the fields of [model]."""
    biases = settings.get("attention_bias", False)
    settings.only("mlp_bias", biases)  # both or none: ours are one choice
    settings.only("attention_dropout", 0.0)
    scaling = settings.get("rope_scaling") or {}
    rope = settings.get("rope_parameters") or {}
    for table, kind in ((scaling, scaling.get("rope_type", scaling.get("type", "default"))),
                        (rope, rope.get("rope_type", "default"))):  # fmt: skip
        if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise CheckpointError(
                f"{settings.where} stretches rotary positions ({table}), which we do not have; only plain ones are read"
            )
    if settings.get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(f"{settings.where} turns a part of each head only, which we do not have")
    settings.only("pretraining_tp", 1)
    settings.only("rope_interleaved", False)
    settings.ignore("max_position_embeddings")
    heads, theta = settings.count("num_attention_heads"), settings.number("rope_theta", rope.get("rope_theta", 1e4))
    fields: dict[str, Any] = {
        "kind": "decoder",
        "target_vocabulary": settings.count("vocab_size"),
        "n_decoder_layers": settings.count("num_hidden_layers"),
        "d_model": settings.count("hidden_size"),
        "d_ff": settings.count("intermediate_size"),
        "n_heads": heads,
        "n_kv_heads": settings.get("num_key_value_heads", heads),
        "d_head": settings.get("head_dim"),
        "norm": {"kind": "rmsnorm", "eps": settings.number("rms_norm_eps", 1e-6), "placement": "pre"},
        "positions": {"kind": "rotary", "base": float(theta), "convention": "halves"},
        "ffn": {"activation": settings.choice("hidden_act", ACTIVATIONS, "silu"), "gated": True},
        "biases": "all" if biases else "none",
        "embedding": {"scale": False},
        "tying": "target-output" if settings.get("tie_word_embeddings", False) else "none",
        "initialisation": "normal",
        "dropout": {"residual": 0.0},
    }
    return fields


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""
    names, biases = embedding_names(config), ("weight", "bias") if config.biases == "all" else ("weight",)
    table = {**with_bias(LAYER, biases), **with_bias(NORMS, ("weight",))}
    found = {
        names["target"]: Part("model.embed_tokens.weight"),
        **layers(config.n_decoder_layers, table, "decoder", "model.layers"),
        "decoder.norm.weight": Part("model.norm.weight"),
    }
    if names["output"] != names["target"]:
        found[names["output"]] = Part("lm_head.weight")
    return found


def refusal(config: ModelConfig) -> str | None:
    """Say why a model is no Llama; None: it is one."""
    norm, positions = config.norm, config.positions
    needs = {
        "a decoder alone": config.kind == "decoder",
        "RMSNorm before each sublayer and at the end": norm.kind == "rmsnorm"
        and norm.placement == "pre"
        and config.final_norm
        and not norm.embedding,
        "rotary positions from 0": positions.kind == "rotary" and not positions.first,
        "a gated network": config.ffn.gated,
        "biases everywhere or nowhere": config.biases in ("all", "none") and not config.output_bias,
        "an embedding that is not scaled": not config.embedding.scale,
    }
    return next((need for need, holds in needs.items() if not holds), None)


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    spelt = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.target_vocabulary,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_decoder_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_k,
        "hidden_act": spelt[config.ffn.activation],
        "rms_norm_eps": config.norm.eps,
        "rope_theta": config.positions.base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.positions.base},
        "attention_bias": config.biases == "all",
        "mlp_bias": config.biases == "all",
        "tie_word_embeddings": config.tying == "target-output",
        "max_position_embeddings": 2048,
    }
