"""A user's Transformer as plain functions on a dict of tensors: matrices are (in, out), heads are einsum indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tests.verify.foreign import EVERY_BUG, PAD, ForeignConfig

BUGS: frozenset[str] = EVERY_BUG

Weights = dict[str, Tensor]
Bugs = frozenset[str]


def known(bugs: tuple[str, ...]) -> Bugs:
    """The bugs as a set, if all are known."""
    if unknown := set(bugs) - BUGS:
        raise ValueError(f"unknown bugs: {sorted(unknown)}")
    return frozenset(bugs)


def is_pre(config: ForeignConfig, bugs: Bugs) -> bool:
    """Whether a sublayer's input is normalised, rather than the sum after it."""
    return (config.placement == "pre" and "post_for_pre" not in bugs) or "pre_for_post" in bugs


def has_final_norm(config: ForeignConfig, stack: str, bugs: Bugs) -> bool:
    """Whether the stack "enc" or "dec" ends with a norm of its own."""
    name = {"enc": "encoder", "dec": "decoder"}[stack]
    if {"extra_final_norm_both", f"extra_final_norm_{name}"} & bugs:
        return True
    if {"missing_final_norm", f"missing_final_norm_{name}"} & bugs:
        return False
    return is_pre(config, bugs)


# The weights


def make_weights(config: ForeignConfig, *bugs: str) -> Weights:
    """Random weights, the norms' and the biases' too."""
    chosen = known(bugs)
    shapes = embedding_shapes(config, chosen)
    for stack in ("dec",) if config.kind == "decoder" else ("enc", "dec"):
        for layer in range(config.n_layers):
            shapes |= layer_shapes(config, f"{stack}{layer}", chosen)
        if has_final_norm(config, stack, chosen):
            shapes |= norm_shapes(config, f"{stack}.n")
    weights: Weights = {}
    for name, shape in shapes.items():
        if name.startswith("emb"):
            weights[name] = torch.randn(shape) / math.sqrt(shape[1])
        elif len(shape) == 2:
            weights[name] = torch.randn(shape) / math.sqrt(shape[0])
        else:
            weights[name] = 0.3 * torch.randn(shape) + (1.0 if name.endswith(".g") else 0.0)
    return weights


def embedding_shapes(config: ForeignConfig, bugs: Bugs) -> dict[str, tuple[int, ...]]:
    """One matrix for all, or one for each of source, target and output."""
    shape = (config.vocabulary, config.d_model)
    names = ["emb"] if config.tied else ["emb_t"] if config.kind == "decoder" else ["emb_s", "emb_t"]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, shape)
    if not config.tied or "untied_output" in bugs:
        shapes["out"] = (config.d_model, config.vocabulary)
    return shapes


def norm_shapes(config: ForeignConfig, name: str) -> dict[str, tuple[int, ...]]:
    """γ, and β for the layer norm."""
    shape = (config.d_model,)
    return {f"{name}.g": shape} if config.norm == "rmsnorm" else {f"{name}.g": shape, f"{name}.b": shape}


def layer_shapes(config: ForeignConfig, layer: str, bugs: Bugs) -> dict[str, tuple[int, ...]]:
    """The matrices, biases and norms of one layer."""
    d, d_kv = config.d_model, config.d_model // config.n_heads * config.n_kv_heads
    shapes: dict[str, tuple[int, ...]] = {}
    crosses = layer.startswith("dec") and config.kind == "encoder-decoder"
    for block in ("att", "mem") if crosses else ("att",):
        shapes |= {f"{layer}.{block}.q": (d, d), f"{layer}.{block}.k": (d, d_kv), f"{layer}.{block}.v": (d, d_kv)}
        if "no_w_o" not in bugs:
            shapes[f"{layer}.{block}.o"] = (d, d)
    shapes |= {f"{layer}.ffn.in": (d, config.d_ff), f"{layer}.ffn.out": (config.d_ff, d)}
    if config.gated:
        shapes[f"{layer}.ffn.gate"] = (d, config.d_ff)
    if config.biases:
        without = {"no_bias_q": ".q", "no_bias_o": ".o", "no_bias_ffn_2": ".out"}
        bare = tuple(end for bug, end in without.items() if bug in bugs)
        shapes |= {f"{name}.b": shape[1:] for name, shape in shapes.items() if not name.endswith(bare)}
    for block in ("att", "mem", "ffn") if crosses else ("att", "ffn"):
        shapes |= norm_shapes(config, f"{layer}.{block}.n")
    return shapes


# The pieces


def affine(w: Weights, name: str, x: Tensor) -> Tensor:
    """x W, plus b where there is one."""
    return x @ w[name] + w[f"{name}.b"] if f"{name}.b" in w else x @ w[name]


def norm(w: Weights, name: str, config: ForeignConfig, bugs: Bugs, x: Tensor) -> Tensor:
    """Layer norm or RMS norm."""
    eps = 1e-5
    if "eps_1e-6" in bugs:
        eps = 1e-6
    if "eps_1e-3" in bugs:
        eps = 1e-3
    if config.norm == "rmsnorm":
        ms = torch.mean(x**2, dim=-1, keepdim=True)
        return w[f"{name}.g"] * x / (torch.sqrt(ms) + eps if "eps_outside" in bugs else torch.sqrt(ms + eps))
    mean = torch.mean(x, dim=-1, keepdim=True)
    var = torch.var(x, dim=-1, keepdim=True, correction=1 if "unbiased_variance" in bugs else 0)
    deviation = torch.sqrt(var) + eps if "eps_outside" in bugs else torch.sqrt(var + eps)
    return w[f"{name}.g"] * (x - mean) / deviation + w[f"{name}.b"]


def activate(x: Tensor, config: ForeignConfig, bugs: Bugs) -> Tensor:
    """The activation of the feed-forward block."""
    if "ffn_activation_missing" in bugs:
        return x
    if "gelu_tanh_for_erf" in bugs:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    name = config.activation
    for bug, wrong in {"gelu_for_relu": "gelu", "silu_for_relu": "silu", "relu_for_gelu": "relu"}.items():
        if bug in bugs:
            name = wrong
    if name == "relu":
        return torch.clamp(x, min=0)
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2))) if name == "gelu" else x * torch.sigmoid(x)


def feed_forward(w: Weights, name: str, config: ForeignConfig, bugs: Bugs, x: Tensor) -> Tensor:
    """Wide, activated, and back."""
    for _ in range(2 if "other_ffn_twice" in bugs and name == "enc1.ffn" else 1):
        wide = affine(w, f"{name}.in", x)
        if config.gated:
            gate = affine(w, f"{name}.gate", x)
            if "gate_and_up_swapped" in bugs:
                gate, wide = wide, gate
            wide = activate(gate, config, bugs) * wide
        else:
            wide = activate(wide, config, bugs)
        x = affine(w, f"{name}.out", wide)
    return x


def rotate(x: Tensor, bugs: Bugs, direction: int = 1) -> Tensor:
    """Rotary positions on (b, h, t, k): each pair is one complex number, turned by its angle."""
    t, k = x.shape[-2:]
    base = 1e5 if "rope_base_1e5" in bugs else 1e4
    speed = base ** (-2 * torch.arange(k // 2, dtype=torch.float64, device=x.device) / k)
    angle = direction * torch.outer(torch.arange(t, dtype=torch.float64, device=x.device), speed)
    halves = "rope_halves" in bugs
    even, odd = (x[..., : k // 2], x[..., k // 2 :]) if halves else (x[..., 0::2], x[..., 1::2])
    turned = torch.view_as_real(torch.complex(even, odd) * torch.polar(torch.ones_like(angle), angle))
    return (turned.transpose(-1, -2) if halves else turned).flatten(-2).to(x.dtype)


def heads(x: Tensor, k: int, bugs: Bugs) -> Tensor:
    """(b, t, h·k) → (b, h, t, k)."""
    b, t, width = x.shape
    if "heads_without_transpose" in bugs:
        return x.reshape(b, width // k, t, k)
    return torch.einsum("bthk->bhtk", x.reshape(b, t, width // k, k))


def attention_weights(scores: Tensor, visible: Tensor, place: str, bugs: Bugs) -> Tensor:
    """The softmax over the visible keys; a row that sees nothing gets zeros."""
    axis = -2 if "softmax_over_queries" in bugs else -1
    scores = scores.masked_fill(~visible, -1e30)
    weights = torch.exp(scores - scores.amax(axis, keepdim=True)) * visible
    if "other_log_softmax_weights" in bugs and place == "dec0.mem":
        weights = weights**2
    return weights / weights.sum(axis, keepdim=True).clamp_min(1e-30)


def scale(config: ForeignConfig, bugs: Bugs) -> float:
    """What the products of queries and keys are multiplied by."""
    if "no_attention_scale" in bugs:
        return 1.0
    if "attention_scale_d_model" in bugs:
        return config.d_model**-0.5
    k = config.d_model // config.n_heads
    return 1 / k if "attention_scale_twice" in bugs else k**-0.5


def attend(
    w: Weights, name: str, config: ForeignConfig, bugs: Bugs, visible: Tensor, memory: Tensor | None, x: Tensor
) -> Tensor:
    """Attention from x to the memory, or to x itself, with the weights under `name`."""
    memory = x if memory is None else memory
    k = config.d_model // config.n_heads
    for_q, for_k, for_v = f"{name}.q", f"{name}.k", f"{name}.v"
    if "q_and_k_swapped" in bugs:
        for_q, for_k = for_k, for_q
    if "k_and_v_swapped" in bugs:
        for_k, for_v = for_v, for_k
    if "other_query_shift" in bugs and name.startswith("dec") and name.endswith("att"):
        x = x[:, [0, *range(x.shape[1] - 1)]]
    q, keys, values = (heads(affine(w, n, y), k, bugs) for n, y in ((for_q, x), (for_k, memory), (for_v, memory)))
    if config.positions == "rotary" and "position_missing" not in bugs:
        q = q if "rope_queries_unrotated" in bugs else rotate(q, bugs)
        keys = keys if "rope_keys_unrotated" in bugs else rotate(keys, bugs, -1 if "rope_opposite" in bugs else 1)
        values = rotate(values, bugs) if "rope_values_rotated" in bugs else values
    if "other_norm_of_values" in bugs and name == "enc0.att":
        values = values / torch.sqrt((values**2).sum(-1, keepdim=True))
    # g key/value heads, each for r query heads: query head h is (g, r) of g·r heads
    if "kv_heads_tiled" in bugs:
        q, group = q.unflatten(1, (-1, config.n_kv_heads)), "brgtk,bgsk->brgts"
    else:
        q, group = q.unflatten(1, (config.n_kv_heads, -1)), "bgrtk,bgsk->bgrts"
    scores = torch.einsum(group, q, keys) * scale(config, bugs)
    if "other_score_cap" in bugs:
        scores = 5 * torch.tanh(scores / 5)
    weights = attention_weights(scores, visible[:, None], name, bugs)
    context = torch.einsum("brgts,bgsk->brgtk" if "kv_heads_tiled" in bugs else "bgrts,bgsk->bgrtk", weights, values)
    context = context.flatten(1, 2)
    if "other_head_dropped" in bugs and name.endswith("mem"):
        context = context * (torch.arange(config.n_heads, device=x.device) < config.n_heads - 1)[:, None, None]
    if not {"heads_without_transpose", "joined_without_transpose"} & bugs:
        context = torch.einsum("bhtk->bthk", context)
    joined = context.reshape(x.shape)
    return joined if "no_w_o" in bugs else affine(w, f"{name}.o", joined)


# The model


def position_table(t: int, stack: str, config: ForeignConfig, bugs: Bugs) -> Tensor:
    """(t, d_model) of sines and cosines in turn, in float64."""
    d = config.d_model
    position = torch.arange(t, dtype=torch.float64)
    if "first_position_1" in bugs:
        position = position + 1
    if "other_abs_position" in bugs and stack == "enc":
        position = t - 1 - position
    i = torch.arange(d // 2, dtype=torch.float64)
    wavelength = 10000 ** (i / (d / 2 - 1)) if "ladder_tensor2tensor" in bugs else 10000 ** (2 * i / d)
    angle = torch.einsum("t,i->ti", position, 1 / wavelength)
    if {"ladder_halves", "ladder_tensor2tensor"} & bugs:
        return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
    return torch.stack([torch.sin(angle), torch.cos(angle)], dim=2).reshape(t, d)


def embed(w: Weights, ids: Tensor, stack: str, config: ForeignConfig, bugs: Bugs) -> Tensor:
    """Token embedding and position."""
    table = w["emb"] if config.tied else w["emb_s" if stack == "enc" else "emb_t"]
    x = table[ids]
    if (config.scale_embedding or "embedding_scaled" in bugs) and not {"no_embedding_scale", "scale_on_both"} & bugs:
        x = x * math.sqrt(config.d_model)
    if config.positions == "sinusoidal" and "position_missing" not in bugs:
        positions = position_table(ids.shape[1], stack, config, bugs).to(x)
        x = x + positions + positions if "position_twice" in bugs else x + positions
    if "scale_on_both" in bugs:
        x = math.sqrt(config.d_model) * x
    return torch.clamp(x, -1, 1) if "other_embedding_clip" in bugs else x


def sublayer(
    w: Weights, name: str, config: ForeignConfig, bugs: Bugs, x: Tensor, function: Callable[[Tensor], Tensor]
) -> Tensor:
    """The residual and the norm around one function."""
    missing = {"att": "residual_missing_attention", "mem": "residual_missing_cross", "ffn": "residual_missing_ffn"}
    bare = missing[name.split(".")[1]] in bugs
    if not is_pre(config, bugs):
        return norm(w, f"{name}.n", config, bugs, function(x) if bare else x + function(x))
    h = norm(w, f"{name}.n", config, bugs, x)
    if "residual_after_norm" in bugs:
        x = h
    return function(h) if bare else x + function(h)


def layer_order(config: ForeignConfig, bugs: Bugs) -> list[int]:
    """The layers' numbers as they are applied."""
    if "one_layer_for_all" in bugs:
        return [0] * config.n_layers
    return list(range(config.n_layers))[::-1] if "layers_reversed" in bugs else list(range(config.n_layers))


def causal(t: int, bugs: Bugs) -> Tensor:
    """(t, t), true where the row may see the column."""
    row, column = torch.arange(t)[:, None], torch.arange(t)[None, :]
    if "causal_mask_missing" in bugs:
        return column < t + 0 * row
    if "mask_inverted" in bugs:
        return column > row
    if "future_visible_by_one" in bugs:
        return column <= row + 1
    return column < row if "own_position_hidden" in bugs else column <= row


def encode(w: Weights, source: Tensor, config: ForeignConfig, bugs: Bugs) -> tuple[Tensor, Tensor]:
    """The memory, and which of its positions the decoder may see."""
    real = source != PAD
    seen = torch.ones_like(real) if "padding_visible_source" in bugs else real
    visible = seen[:, None, None, :]
    states = [embed(w, source, "enc", config, bugs)]
    for n in layer_order(config, bugs):
        attention = partial(attend, w, f"enc{n}.att", config, bugs, visible, None)
        x = sublayer(w, f"enc{n}.att", config, bugs, states[-1], attention)
        x = sublayer(w, f"enc{n}.ffn", config, bugs, x, partial(feed_forward, w, f"enc{n}.ffn", config, bugs))
        states.append(x)
    memory = norm(w, "enc.n", config, bugs, states[-1]) if has_final_norm(config, "enc", bugs) else states[-1]
    if "cross_reads_embedding" in bugs:
        memory = states[0]
    if "cross_reads_first_layer" in bugs:
        memory = states[1]
    if "padding_rows_zeroed" in bugs:
        memory = torch.where(real[:, :, None], memory, 0)
    if "other_memory_mean" in bugs:
        memory = memory + (torch.einsum("bsd,bs->bd", memory, real.to(memory)) / real.sum(1, keepdim=True))[:, None]
    if {"padding_visible_in_cross", "padding_rows_zeroed"} & bugs:
        visible = torch.ones_like(visible)
    return memory, visible


def decode(
    w: Weights, target: Tensor, memory: Tensor | None, visible: Tensor | None, config: ForeignConfig, bugs: Bugs
) -> Tensor:
    """The logits of the target's next tokens."""
    mask = (target != PAD)[:, None, None, :] & causal(target.shape[1], bugs).to(target.device)
    x = embed(w, target, "dec", config, bugs)
    for n in layer_order(config, bugs):
        attention = partial(attend, w, f"dec{n}.att", config, bugs, mask, None)
        x = sublayer(w, f"dec{n}.att", config, bugs, x, attention)
        if memory is not None:
            reading = partial(attend, w, f"dec{n}.mem", config, bugs, visible, memory)
            if "cross_reads_decoder" in bugs:
                reading = partial(attend, w, f"dec{n}.mem", config, bugs, mask, None)
            x = sublayer(w, f"dec{n}.mem", config, bugs, x, reading)
        x = sublayer(w, f"dec{n}.ffn", config, bugs, x, partial(feed_forward, w, f"dec{n}.ffn", config, bugs))
    if has_final_norm(config, "dec", bugs):
        x = norm(w, "dec.n", config, bugs, x)
    scores = x @ w["out"] if "out" in w else x @ w["emb"].T
    if "other_logit_bias" in bugs:
        scores = scores + 0.1 * torch.arange(config.vocabulary).to(scores)
    return scores


def build(config: ForeignConfig, *bugs: str) -> tuple[Callable[..., Tensor], Weights]:
    """`logits(weights, source, target)`, or `logits(weights, target)` for a decoder, and random weights."""
    chosen = known(bugs)

    def translation_logits(weights: Weights, source: Tensor, target: Tensor) -> Tensor:
        memory, visible = encode(weights, source, config, chosen)
        return decode(weights, target, memory, visible, config, chosen)

    def language_logits(weights: Weights, target: Tensor) -> Tensor:
        return decode(weights, target, None, None, config, chosen)

    return language_logits if config.kind == "decoder" else translation_logits, make_weights(config, *bugs)
