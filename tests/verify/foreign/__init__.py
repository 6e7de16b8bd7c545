"""Users' own Transformers, right or with a named bug, in three styles that share nothing but this description."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignConfig:
    """What the user set out to write; the epsilon of every norm is 1e-5."""

    kind: str = "encoder-decoder"  # or "decoder"
    vocabulary: int = 13  # one for source and target
    d_model: int = 64
    n_heads: int = 4
    n_kv_heads: int = 4  # fewer than n_heads only in MODERN
    d_ff: int = 256
    n_layers: int = 2  # in each stack
    norm: str = "layernorm"  # or "rmsnorm"
    placement: str = "post"  # or "pre", which has one final norm after each stack
    positions: str = "sinusoidal"  # or "rotary"
    activation: str = "relu"  # or "gelu" (with erf), "silu"
    gated: bool = False  # (act(x W_gate) * x W_up) W_down
    biases: bool = True  # in all linears of attention and FFN; the output never has one
    scale_embedding: bool = True  # √d_model on the token embedding, before the position is added
    tied: bool = True  # source embedding, target embedding and output are one matrix


PAPER = ForeignConfig()
PRE = ForeignConfig(placement="pre", activation="gelu")
MODERN = ForeignConfig(
    kind="decoder",
    n_kv_heads=2,
    d_ff=128,
    norm="rmsnorm",
    placement="pre",
    positions="rotary",
    activation="silu",
    gated=True,
    biases=False,
    scale_embedding=False,
)
PAD = 0

# Bugs that no catalogue knows, and the place where each is first seen.
OTHERS: dict[str, str] = {
    "other_score_cap": "encoder.layers.0.self_attention",
    "other_abs_position": "encoder.embedding",
    "other_ffn_twice": "encoder.layers.1.ffn",
    "other_query_shift": "decoder.layers.0.self_attention",
    "other_head_dropped": "decoder.layers.0.cross_attention",
    "other_norm_of_values": "encoder.layers.0.self_attention",
    "other_log_softmax_weights": "decoder.layers.0.cross_attention",
    "other_memory_mean": "memory",
    "other_logit_bias": "output",
    "other_embedding_clip": "encoder.embedding",
}

_SOME: dict[tuple[str, ...], str] = {
    ("PAPER",): """
        extra_final_norm_encoder extra_final_norm_decoder extra_final_norm_both
        pre_for_post gelu_for_relu silu_for_relu""",
    ("PRE",): """
        missing_final_norm_encoder missing_final_norm_decoder post_for_pre gelu_tanh_for_erf relu_for_gelu""",
    ("MODERN",): """
        embedding_scaled gate_and_up_swapped kv_heads_tiled rope_halves rope_base_1e5
        rope_keys_unrotated rope_queries_unrotated rope_values_rotated rope_opposite""",
    ("PRE", "MODERN"): "missing_final_norm residual_after_norm",
    ("PAPER", "PRE"): """
        no_embedding_scale scale_on_both ladder_halves ladder_tensor2tensor first_position_1 position_twice
        unbiased_variance padding_visible_source padding_visible_in_cross padding_rows_zeroed
        untied_output q_and_k_swapped no_bias_q no_bias_o no_bias_ffn_2
        cross_reads_decoder cross_reads_embedding cross_reads_first_layer residual_missing_cross""",
}

# The configs that a bug can be put into; a bug that is not here goes into all three.
APPLIES: dict[str, tuple[str, ...]] = {
    **{bug: configs for configs, bugs in _SOME.items() for bug in bugs.split()},
    **dict.fromkeys(OTHERS, ("PAPER",)),
}

_EVERYWHERE = """
    no_attention_scale attention_scale_twice attention_scale_d_model position_missing ffn_activation_missing
    eps_outside eps_1e-6 eps_1e-3 mask_inverted future_visible_by_one own_position_hidden causal_mask_missing
    no_w_o heads_without_transpose joined_without_transpose k_and_v_swapped
    residual_missing_attention residual_missing_ffn layers_reversed one_layer_for_all softmax_over_queries"""

EVERY_BUG: frozenset[str] = frozenset(_EVERYWHERE.split()) | frozenset(APPLIES)
