"""A user's Transformer in the manner of a line-by-line lesson; each bug is a branch where one would make it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.verify.foreign import EVERY_BUG, PAD, ForeignConfig

BUGS: frozenset[str] = EVERY_BUG


def in_order(layers: nn.ModuleList, bugs: frozenset[str]) -> list[nn.Module]:
    """The layers as they are applied."""
    if "one_layer_for_all" in bugs:
        return [layers[0]] * len(layers)
    if "layers_reversed" in bugs:
        return list(reversed(layers))
    return list(layers)


def norm_comes_first(config: ForeignConfig, bugs: frozenset[str]) -> bool:
    """Whether the norm stands before the sublayer (pre) or after the sum (post)."""
    if "pre_for_post" in bugs:
        return True
    if "post_for_pre" in bugs:
        return False
    return config.placement == "pre"


class LayerNorm(nn.Module):
    """Each position to mean 0 and variance 1, then a gain and a shift; without centring it is RMSNorm."""

    def __init__(self, size: int, bugs: frozenset[str], centring: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size)) if centring else None
        self.bugs = bugs
        self.eps = 1e-6 if "eps_1e-6" in bugs else 1e-3 if "eps_1e-3" in bugs else 1e-5

    def forward(self, x: Tensor) -> Tensor:
        if self.shift is not None:
            x = x - x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True)
        if "unbiased_variance" in self.bugs and self.shift is not None:
            variance = variance * x.size(-1) / (x.size(-1) - 1)
        if "eps_outside" in self.bugs:
            x = self.gain * x / (variance.sqrt() + self.eps)
        else:
            x = self.gain * x / (variance + self.eps).sqrt()
        return x if self.shift is None else x + self.shift


def make_norm(config: ForeignConfig, bugs: frozenset[str]) -> nn.Module:
    """The norm that the config names."""
    return LayerNorm(config.d_model, bugs, centring=config.norm == "layernorm")


def make_final_norm(config: ForeignConfig, bugs: frozenset[str], stack: str) -> nn.Module:
    """The norm after a whole stack, or nothing where there is none."""
    wanted = norm_comes_first(config, bugs)
    if "missing_final_norm" in bugs or f"missing_final_norm_{stack}" in bugs:
        wanted = False
    if "extra_final_norm_both" in bugs or f"extra_final_norm_{stack}" in bugs:
        wanted = True
    return make_norm(config, bugs) if wanted else nn.Identity()


class SublayerConnection(nn.Module):
    """The residual and the norm around one sublayer."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], sublayer: str) -> None:
        super().__init__()
        self.norm = make_norm(config, bugs)
        self.norm_first = norm_comes_first(config, bugs)
        self.residual = f"residual_missing_{sublayer}" not in bugs
        self.bugs = bugs

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if not self.norm_first:
            return self.norm(x + sublayer(x) if self.residual else sublayer(x))
        normed = self.norm(x)
        if "residual_after_norm" in self.bugs:
            x = normed
        return x + sublayer(normed) if self.residual else sublayer(normed)


def subsequent_mask(ids: Tensor, bugs: frozenset[str]) -> Tensor:
    """(size, size), True where the row's position may look at the column's."""
    everything = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool, device=ids.device)
    if "causal_mask_missing" in bugs:
        return everything
    if "mask_inverted" in bugs:
        return everything.triu(1)
    if "future_visible_by_one" in bugs:
        return everything.tril(1)
    if "own_position_hidden" in bugs:
        return everything.tril(-1)
    return everything.tril()


def rotate(x: Tensor, bugs: frozenset[str], sign: int = 1) -> Tensor:
    """Turn each pair of features of (batch, heads, positions, d_head) by its position's angle."""
    size = x.size(-1)
    base = 100000.0 if "rope_base_1e5" in bugs else 10000.0
    frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=x.device) / size)
    angle = sign * torch.arange(x.size(-2), dtype=torch.float64, device=x.device)[:, None] * frequency
    if "rope_halves" in bugs:
        angle = torch.cat([angle, angle], -1)
        quarter_turn = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
    else:
        angle = angle.repeat_interleave(2, -1)
        quarter_turn = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * angle.cos().to(x.dtype) + quarter_turn * angle.sin().to(x.dtype)


class MultiHeadedAttention(nn.Module):
    """Attention of several heads; the four linears are for queries, keys, values and the joined heads."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], place: str) -> None:
        super().__init__()
        self.config, self.bugs, self.place = config, bugs, place
        self.d_head = config.d_model // config.n_heads
        d_kv = config.n_kv_heads * self.d_head
        self.linears = nn.ModuleList(nn.Linear(config.d_model, n, config.biases) for n in (config.d_model, d_kv, d_kv))
        if "no_bias_q" in bugs:
            self.linears[0] = nn.Linear(config.d_model, config.d_model, bias=False)
        if "no_w_o" not in bugs:
            self.linears.append(nn.Linear(config.d_model, config.d_model, config.biases and "no_bias_o" not in bugs))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        to_query, to_key, to_value = self.linears[:3]
        if "q_and_k_swapped" in self.bugs:
            to_query, to_key = to_key, to_query
        if "k_and_v_swapped" in self.bugs:
            to_key, to_value = to_value, to_key
        if "other_query_shift" in self.bugs and self.place.startswith("decoder") and "cross" not in self.place:
            x = torch.cat([x[:, :1], x[:, :-1]], 1)
        query, key, value = self.split(to_query(x)), self.split(to_key(memory)), self.split(to_value(memory))
        if self.config.positions == "rotary" and "position_missing" not in self.bugs:
            query, key, value = self.turn(query, key, value)
        if "other_norm_of_values" in self.bugs and self.place == "encoder.layers.0.self_attention":
            value = value / value.norm(dim=-1, keepdim=True)
        heads = self.weights(query, self.share(key), mask) @ self.share(value)
        if "other_head_dropped" in self.bugs and "cross" in self.place:
            heads = torch.cat([heads[:, :-1], torch.zeros_like(heads[:, -1:])], 1)
        joined = self.join(heads)
        return joined if "no_w_o" in self.bugs else self.linears[3](joined)

    def split(self, x: Tensor) -> Tensor:
        """(batch, positions, features) to (batch, heads, positions, d_head)."""
        batch, length, features = x.shape
        if "heads_without_transpose" in self.bugs:
            return x.view(batch, features // self.d_head, length, self.d_head)
        return x.view(batch, length, features // self.d_head, self.d_head).transpose(1, 2)

    def join(self, heads: Tensor) -> Tensor:
        """(batch, heads, positions, d_head) to (batch, positions, features)."""
        batch, _, length, _ = heads.shape
        if "heads_without_transpose" in self.bugs or "joined_without_transpose" in self.bugs:
            return heads.contiguous().view(batch, length, self.config.d_model)
        return heads.transpose(1, 2).contiguous().view(batch, length, self.config.d_model)

    def turn(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if "rope_queries_unrotated" not in self.bugs:
            query = rotate(query, self.bugs)
        if "rope_keys_unrotated" not in self.bugs:
            key = rotate(key, self.bugs, -1 if "rope_opposite" in self.bugs else 1)
        if "rope_values_rotated" in self.bugs:
            value = rotate(value, self.bugs)
        return query, key, value

    def share(self, x: Tensor) -> Tensor:
        """Give every query head its key or value head."""
        group = self.config.n_heads // x.size(1)
        return x.repeat(1, group, 1, 1) if "kv_heads_tiled" in self.bugs else x.repeat_interleave(group, 1)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
        divisor = math.sqrt(self.d_head)
        if "no_attention_scale" in self.bugs:
            divisor = 1.0
        if "attention_scale_twice" in self.bugs:
            divisor = self.d_head
        if "attention_scale_d_model" in self.bugs:
            divisor = math.sqrt(self.config.d_model)
        scores = query @ key.transpose(-2, -1) / divisor
        if "other_score_cap" in self.bugs:
            scores = 5 * torch.tanh(scores / 5)
        scores = scores.masked_fill(~mask, -1e9)  # not -inf: a row that sees nothing must not become NaN
        weights = scores.softmax(-2 if "softmax_over_queries" in self.bugs else -1)
        if "other_log_softmax_weights" in self.bugs and self.place == "decoder.layers.0.cross_attention":
            weights = weights.square()
            weights = weights / weights.sum(-1, keepdim=True)
        return weights


class PositionwiseFeedForward(nn.Module):
    """Two linears with an activation between them, or the gated form of three."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], place: str) -> None:
        super().__init__()
        self.config, self.bugs, self.place = config, bugs, place
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=config.biases)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.biases) if config.gated else None
        self.narrow = nn.Linear(config.d_ff, config.d_model, bias=config.biases and "no_bias_ffn_2" not in bugs)

    def activation(self, x: Tensor) -> Tensor:
        if "ffn_activation_missing" in self.bugs:
            return x
        if "gelu_tanh_for_erf" in self.bugs:
            return F.gelu(x, approximate="tanh")
        name = self.config.activation
        if "gelu_for_relu" in self.bugs:
            name = "gelu"
        if "silu_for_relu" in self.bugs:
            name = "silu"
        if "relu_for_gelu" in self.bugs:
            name = "relu"
        return {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[name](x)

    def once(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.narrow(self.activation(self.widen(x)))
        if "gate_and_up_swapped" in self.bugs:
            return self.narrow(self.gate(x) * self.activation(self.widen(x)))
        return self.narrow(self.activation(self.gate(x)) * self.widen(x))

    def forward(self, x: Tensor) -> Tensor:
        if "other_ffn_twice" in self.bugs and self.place == "encoder.layers.1.ffn":
            return self.once(self.once(x))
        return self.once(x)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward block."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], place: str) -> None:
        super().__init__()
        self.self_attention = MultiHeadedAttention(config, bugs, f"{place}.self_attention")
        self.feed_forward = PositionwiseFeedForward(config, bugs, f"{place}.ffn")
        self.connections = nn.ModuleList(SublayerConnection(config, bugs, name) for name in ("attention", "ffn"))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.connections[0](x, lambda h: self.self_attention(h, h, mask))
        return self.connections[1](x, self.feed_forward)


class DecoderLayer(EncoderLayer):
    """Self-attention, attention to the memory where there is one, then the feed-forward block."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], place: str) -> None:
        super().__init__(config, bugs, place)
        self.bugs = bugs
        if config.kind == "encoder-decoder":
            self.memory_attention = MultiHeadedAttention(config, bugs, f"{place}.cross_attention")
            self.connections.insert(1, SublayerConnection(config, bugs, "cross"))

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor | None) -> Tensor:
        x = self.connections[0](x, lambda h: self.self_attention(h, h, mask))
        if memory is not None:
            astray = "cross_reads_decoder" in self.bugs
            seen = mask if astray else memory_mask
            x = self.connections[1](x, lambda h: self.memory_attention(h, h if astray else memory, seen))
        return self.connections[-1](x, self.feed_forward)


class Embeddings(nn.Module):
    """Token embedding and position."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], stack: str) -> None:
        super().__init__()
        self.config, self.bugs, self.stack = config, bugs, stack
        self.lookup = nn.Embedding(config.vocabulary, config.d_model)

    def forward(self, ids: Tensor) -> Tensor:
        root = math.sqrt(self.config.d_model)
        x = self.lookup(ids)
        scaled = self.config.scale_embedding or "embedding_scaled" in self.bugs
        if scaled and "no_embedding_scale" not in self.bugs and "scale_on_both" not in self.bugs:
            x = x * root
        if self.config.positions == "sinusoidal" and "position_missing" not in self.bugs:
            times = 2 if "position_twice" in self.bugs else 1
            x = x + times * self.position(ids).to(x.dtype)
        if "scale_on_both" in self.bugs:
            x = x * root
        return x.clamp(-1, 1) if "other_embedding_clip" in self.bugs else x

    def position(self, ids: Tensor) -> Tensor:
        """(positions, d_model): sines at the even features, cosines at the odd ones."""
        d_model, length = self.config.d_model, ids.size(1)
        place = torch.arange(length, dtype=torch.float64, device=ids.device)
        if "first_position_1" in self.bugs:
            place = place + 1
        if "other_abs_position" in self.bugs and self.stack == "encoder":
            place = place.flip(0)
        step = torch.arange(d_model // 2, dtype=torch.float64, device=ids.device)
        exponent = step / (d_model // 2 - 1) if "ladder_tensor2tensor" in self.bugs else 2 * step / d_model
        angle = place[:, None] / 10000**exponent
        if "ladder_halves" in self.bugs or "ladder_tensor2tensor" in self.bugs:
            return torch.cat([angle.sin(), angle.cos()], -1)
        table = torch.empty(length, d_model, dtype=torch.float64, device=ids.device)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        return table


class Generator(nn.Module):
    """From the last state to one score for each token."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str]) -> None:
        super().__init__()
        self.bugs = bugs
        self.project = nn.Linear(config.d_model, config.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.project(x)
        if "other_logit_bias" in self.bugs:
            scores = scores + 0.1 * torch.arange(scores.size(-1), dtype=scores.dtype, device=scores.device)
        return scores


class DecoderOnly(nn.Module):
    """A causal language model."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str]) -> None:
        super().__init__()
        self.config, self.bugs = config, bugs
        self.target_embedding = Embeddings(config, bugs, "decoder")
        places = [f"decoder.layers.{i}" for i in range(config.n_layers)]
        self.decoder = nn.ModuleList(DecoderLayer(config, bugs, place) for place in places)
        self.decoder_norm = make_final_norm(config, bugs, "decoder")
        self.generator = Generator(config, bugs)
        if config.tied and "untied_output" not in bugs:
            self.generator.project.weight = self.target_embedding.lookup.weight

    def decode(self, target: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> Tensor:
        """The logits of the target's next tokens."""
        mask = (target != PAD)[:, None, None, :] & subsequent_mask(target, self.bugs)
        x = self.target_embedding(target)
        for layer in in_order(self.decoder, self.bugs):
            x = layer(x, mask, memory, memory_mask)
        return self.generator(self.decoder_norm(x))

    def forward(self, target: Tensor) -> Tensor:
        return self.decode(target)


class EncoderDecoder(DecoderOnly):
    """The translation model of the paper."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str]) -> None:
        super().__init__(config, bugs)
        self.source_embedding = Embeddings(config, bugs, "encoder")
        places = [f"encoder.layers.{i}" for i in range(config.n_layers)]
        self.encoder = nn.ModuleList(EncoderLayer(config, bugs, place) for place in places)
        self.encoder_norm = make_final_norm(config, bugs, "encoder")
        if config.tied:
            self.source_embedding.lookup.weight = self.target_embedding.lookup.weight

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """The memory that the decoder reads."""
        outputs = [self.source_embedding(source)]
        for layer in in_order(self.encoder, self.bugs):
            outputs.append(layer(outputs[-1], mask))
        memory = self.encoder_norm(outputs[-1])
        if "cross_reads_embedding" in self.bugs:
            memory = outputs[0]
        if "cross_reads_first_layer" in self.bugs:
            memory = outputs[1]
        real = (source != PAD)[:, :, None].to(memory.dtype)
        if "padding_rows_zeroed" in self.bugs:
            memory = memory * real
        if "other_memory_mean" in self.bugs:
            memory = memory + (memory * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        return memory

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = memory_mask = (source != PAD)[:, None, None, :]
        if "padding_visible_source" in self.bugs:
            mask = memory_mask = torch.ones_like(mask)
        if "padding_visible_in_cross" in self.bugs or "padding_rows_zeroed" in self.bugs:
            memory_mask = torch.ones_like(mask)
        return self.decode(target, self.encode(source, mask), memory_mask)


def build(config: ForeignConfig, *bugs: str) -> nn.Module:
    """A model with these bugs and random weights, the norms' and the biases' too."""
    if unknown := set(bugs) - BUGS:
        raise ValueError(f"unknown bugs: {sorted(unknown)}")
    model = (DecoderOnly if config.kind == "decoder" else EncoderDecoder)(config, frozenset(bugs))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=parameter.size(1) ** -0.5)
        else:
            nn.init.normal_(parameter, mean=1.0 if name.endswith("gain") else 0.0, std=0.3)
    return model
