"""Marian's translators at Hugging Face (Junczys-Dowmunt et al. 2018, arXiv:1804.00344).

The 2017 machine with sines and cosines in halves, an activation of choice, a bias on the scores, and one table. The
decoder starts with the padding token, whose row is all zeros.
"""

from typing import Any

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig, Positions
from glassformer.errors import CheckpointError
from glassformer.interop.foreign import Settings
from glassformer.interop.layout import Layout, Part, embedding_names, layers, with_bias
from glassformer.model.position import Sinusoidal

ARCHITECTURES = ("MarianMTModel",)
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
ATTENTION = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}
ENCODER_LAYER = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "self_attention_residual.norm": "self_attn_layer_norm",
    "ffn.w_1": "fc1", "ffn.w_2": "fc2", "ffn_residual.norm": "final_layer_norm",
}  # fmt: skip
DECODER_LAYER = {
    **ENCODER_LAYER,
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}


def read(settings: Settings) -> dict[str, Any]:
    """Return the fields of [model]."""
    sizes = {
        side: [settings.count(f"{side}_{what}") for what in ("attention_heads", "ffn_dim")]
        for side in ("encoder", "decoder")
    }
    if sizes["encoder"] != sizes["decoder"]:
        raise CheckpointError(f"{settings.where} has an encoder and a decoder of unequal heads or networks")
    shared, vocabulary = settings.get("share_encoder_decoder_embeddings", True), settings.count("vocab_size")
    target = settings.get("decoder_vocab_size", vocabulary)
    settings.only("normalize_before", False)
    settings.only("normalize_embedding", False)
    settings.only("add_final_layer_norm", False)
    settings.only("add_bias_logits", False)  # final_logits_bias is always there
    settings.only("static_position_embeddings", True)
    settings.only("decoder_start_token_id", settings.get("pad_token_id"))
    settings.ignore("max_position_embeddings", "forced_eos_token_id", "encoder_layerdrop", "decoder_layerdrop",
                    "init_std", "classifier_dropout", "classif_dropout", "extra_pos_embeddings", "num_hidden_layers",
                    "max_length", "num_beams", "bad_words_ids")  # fmt: skip
    tied = settings.get("tie_word_embeddings", True)
    if shared and not tied:
        raise CheckpointError(
            f"{settings.where} shares one table between both sides but not with the output, which readers of this "
            "format understand in two ways"
        )
    fields: dict[str, Any] = {
        "kind": "encoder-decoder",
        "source_vocabulary": vocabulary,
        "target_vocabulary": target,
        "n_encoder_layers": settings.count("encoder_layers"),
        "n_decoder_layers": settings.count("decoder_layers"),
        "d_model": settings.count("d_model"),
        "d_ff": sizes["encoder"][1],
        "n_heads": sizes["encoder"][0],
        "positions": {"ladder": "halves"},
        "ffn": {"activation": settings.choice("activation_function", ACTIVATIONS, "gelu")},
        "embedding": {"scale": bool(settings.get("scale_embedding", False))},
        "output_bias": True,
        "tying": "all" if shared else "target-output" if tied else "none",
        "dropout": {
            "residual": settings.number("dropout", 0.1),
            "attention": settings.number("attention_dropout", 0.0),
            "ffn": settings.number("activation_dropout", 0.0),
        },
    }
    return fields


def check_positions(tensor: Tensor, d_model: int, where: str) -> None:
    """Refuse a table of positions that is not the one of sines and cosines.

    Raises:
        CheckpointError: It is another one.

    """
    places = torch.arange(len(tensor))
    right = Sinusoidal(Positions(ladder="halves"), d_model)(places, torch.float32) if tensor.ndim == 2 else None
    if right is None or tensor.shape != right.shape or (tensor - right).abs().max() > 1e-3:
        raise CheckpointError(f"{where} has positions of its own where Marian has sines and cosines")


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""
    names = embedding_names(config)
    shared = names["source"] == names["target"]
    found = {
        names["source"]: Part("model.shared.weight" if shared else "model.encoder.embed_tokens.weight"),
        **layers(config.n_encoder_layers, with_bias(ENCODER_LAYER), "encoder", "model.encoder.layers"),
        **layers(config.n_decoder_layers, with_bias(DECODER_LAYER), "decoder", "model.decoder.layers"),
        "output.bias": Part("final_logits_bias"),
    }
    if not shared:
        found[names["target"]] = Part("model.decoder.embed_tokens.weight")
    if names["output"] not in found:
        found[names["output"]] = Part("lm_head.weight")
    return found


def refusal(config: ModelConfig) -> str | None:
    """Say what a model lacks to be a Marian; None: it is one."""
    norm, positions = config.norm, config.positions
    needs = {
        "an encoder and a decoder": config.kind == "encoder-decoder",
        "LayerNorm after each sublayer, with none at the end, and ε = 1e-5": norm.kind == "layernorm"
        and norm.placement == "post"
        and not config.final_norm
        and not norm.embedding
        and norm.eps == 1e-5,
        "positions from 0, with all sines before all cosines (positions.ladder='halves')": positions.kind
        == "sinusoidal"
        and positions.ladder == "halves"
        and positions.base == 10000.0
        and not positions.first,
        "a network without a gate": not config.ffn.gated,
        "relu, gelu or silu": config.ffn.activation in ACTIVATIONS.values(),
        "one table, or an output tied to the target's, or three": config.tying != "source-target",
        "biases everywhere": config.biases == "all",
        "as many key as query heads, d_model / n_heads wide": config.kv_heads == config.n_heads
        and config.d_k * config.n_heads == config.d_model,
    }
    return next((need for need, holds in needs.items() if not holds), None)


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    spelt = {"silu": "swish", "relu": "relu", "gelu": "gelu"}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.target_vocabulary,
        "share_encoder_decoder_embeddings": config.tying == "all",
        "tie_word_embeddings": config.tying in ("all", "target-output"),
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "d_model": config.d_model,
        "activation_function": spelt[config.ffn.activation],
        "scale_embedding": config.embedding.scale,
        "dropout": config.dropout.residual,
        "attention_dropout": config.dropout.attention,
        "activation_dropout": config.dropout.ffn,
        "max_position_embeddings": 1024,
    }
