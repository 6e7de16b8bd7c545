"""A user's Transformer with stacked projections and GPT's names; each bug is a branch where one would make it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.verify.foreign import EVERY_BUG, PAD, ForeignConfig

# One `qkv` linear has one bias vector for all three, so the queries' own bias cannot be left out.
BUGS: frozenset[str] = EVERY_BUG - {"no_bias_q"}


class RMSNorm(nn.Module):
    """x over its root mean square."""

    def __init__(self, size: int, eps: float, bugs: frozenset[str]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps, self.bugs = eps, bugs

    def forward(self, x: Tensor) -> Tensor:
        if "eps_outside" in self.bugs:
            return self.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class WrongLayerNorm(nn.LayerNorm):
    """The layer norm, written out for the bugs that nn.LayerNorm does not have."""

    def __init__(self, size: int, eps: float, bugs: frozenset[str]) -> None:
        super().__init__(size, eps=eps)
        self.bugs = bugs

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=int("unbiased_variance" in self.bugs), keepdim=True)
        sigma = variance.sqrt() + self.eps if "eps_outside" in self.bugs else (variance + self.eps).sqrt()
        return (x - mean) / sigma * self.weight + self.bias


def make_norm(config: ForeignConfig, bugs: frozenset[str]) -> nn.Module:
    eps = 1e-5
    if "eps_1e-6" in bugs:
        eps = 1e-6
    if "eps_1e-3" in bugs:
        eps = 1e-3
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, eps, bugs)
    if "unbiased_variance" in bugs or "eps_outside" in bugs:
        return WrongLayerNorm(config.d_model, eps, bugs)
    return nn.LayerNorm(config.d_model, eps=eps)


def rope(x: Tensor, bugs: frozenset[str], backwards: bool = False) -> Tensor:
    """Turn the pairs of the last axis of (batch, heads, time, d_head)."""
    time, d_head = x.shape[-2:]
    theta = 100_000.0 if "rope_base_1e5" in bugs else 10_000.0
    inverse = torch.pow(theta, torch.arange(0, d_head, 2, device=x.device).double() / d_head).reciprocal()
    angles = torch.arange(time, device=x.device).double().unsqueeze(1) * inverse
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if backwards:
        sin = -sin
    if "rope_halves" in bugs:
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Attention(nn.Module):
    """What self-attention and cross-attention have in common, from projected q, k, v on."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], where: str) -> None:
        super().__init__()
        self.config, self.bugs, self.where = config, bugs, where
        self.d_head = config.d_model // config.n_heads
        self.d_kv = self.d_head * config.n_kv_heads
        if "no_w_o" not in bugs:
            self.c_proj = nn.Linear(config.d_model, config.d_model, bias=config.biases and "no_bias_o" not in bugs)

    def heads(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        if "heads_without_transpose" in self.bugs:
            return x.reshape(batch, width // self.d_head, time, self.d_head)
        return x.reshape(batch, time, width // self.d_head, self.d_head).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention with a bias of 0 where the key is seen; (batch, time, width) in and out."""
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        if self.config.positions == "rotary" and "position_missing" not in self.bugs:
            if "rope_queries_unrotated" not in self.bugs:
                q = rope(q, self.bugs)
            if "rope_keys_unrotated" not in self.bugs:
                k = rope(k, self.bugs, backwards="rope_opposite" in self.bugs)
            if "rope_values_rotated" in self.bugs:
                v = rope(v, self.bugs)
        repeat = self.config.n_heads // self.config.n_kv_heads
        if "kv_heads_tiled" in self.bugs:
            k, v = torch.cat([k] * repeat, 1), torch.cat([v] * repeat, 1)
        else:
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        if "other_norm_of_values" in self.bugs and self.where == "encoder 0 attn":
            v = F.normalize(v, dim=-1)
        y = self.mix(q, k, v, bias)
        if "other_head_dropped" in self.bugs and "cross" in self.where:
            y = F.pad(y[:, :-1], (0, 0, 0, 0, 0, 1))
        if not {"heads_without_transpose", "joined_without_transpose"} & self.bugs:
            y = y.transpose(1, 2)
        y = y.reshape(y.size(0), -1, self.config.d_model)
        return y if "no_w_o" in self.bugs else self.c_proj(y)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """PyTorch's attention, or its three lines where the user wrote something else."""
        scale = self.d_head**-0.5
        if "no_attention_scale" in self.bugs:
            scale = 1.0
        if "attention_scale_twice" in self.bugs:
            scale = 1 / self.d_head
        if "attention_scale_d_model" in self.bugs:
            scale = self.config.d_model**-0.5
        by_hand = {"other_score_cap", "softmax_over_queries", "other_log_softmax_weights"}
        if not by_hand & self.bugs:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        scores = q @ k.transpose(-2, -1) * scale
        if "other_score_cap" in self.bugs:
            scores = 5 * torch.tanh(scores / 5)
        weights = torch.softmax(scores + bias, dim=-2 if "softmax_over_queries" in self.bugs else -1)
        if "other_log_softmax_weights" in self.bugs and self.where == "decoder 0 cross":
            weights = F.normalize(weights**2, p=1, dim=-1)
        return weights @ v


class SelfAttention(Attention):
    """q, k and v from one linear."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], where: str) -> None:
        super().__init__(config, bugs, where)
        self.qkv = nn.Linear(config.d_model, config.d_model + 2 * self.d_kv, bias=config.biases)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split((self.config.d_model, self.d_kv, self.d_kv), dim=-1)
        if "q_and_k_swapped" in self.bugs:
            q, k = k, q
        if "k_and_v_swapped" in self.bugs:
            k, v = v, k
        if "other_query_shift" in self.bugs and self.where.startswith("decoder"):
            q = torch.cat((q[:, :1], q[:, :-1]), dim=1)
        return self.attend(q, k, v, bias)


class CrossAttention(Attention):
    """q from the decoder, k and v of the memory from one linear."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], where: str) -> None:
        super().__init__(config, bugs, where)
        self.q = nn.Linear(config.d_model, config.d_model, bias=config.biases)
        self.kv = nn.Linear(config.d_model, 2 * self.d_kv, bias=config.biases)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        q = self.q(x)
        k, v = self.kv(memory).chunk(2, dim=-1)
        if "q_and_k_swapped" in self.bugs:
            q, k = self.kv(x).chunk(2, dim=-1)[0], self.q(memory)
        if "k_and_v_swapped" in self.bugs:
            k, v = v, k
        return self.attend(q, k, v, bias)


class MLP(nn.Module):
    """c_fc, activation, c_proj; c_gate beside c_fc where it is gated."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], where: str) -> None:
        super().__init__()
        self.config, self.bugs = config, bugs
        self.times = 2 if "other_ffn_twice" in bugs and where == "encoder 1" else 1
        self.c_fc = nn.Linear(config.d_model, config.d_ff, bias=config.biases)
        if config.gated:
            self.c_gate = nn.Linear(config.d_model, config.d_ff, bias=config.biases)
        self.c_proj = nn.Linear(config.d_ff, config.d_model, bias=config.biases and "no_bias_ffn_2" not in bugs)

    def act(self, x: Tensor) -> Tensor:
        if "ffn_activation_missing" in self.bugs:
            return x
        if "gelu_tanh_for_erf" in self.bugs:
            return F.gelu(x, approximate="tanh")
        if "gelu_for_relu" in self.bugs:
            return F.gelu(x)
        if "silu_for_relu" in self.bugs:
            return F.silu(x)
        if "relu_for_gelu" in self.bugs:
            return F.relu(x)
        return {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[self.config.activation](x)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            if not self.config.gated:
                x = self.c_proj(self.act(self.c_fc(x)))
            elif "gate_and_up_swapped" in self.bugs:
                x = self.c_proj(self.c_gate(x) * self.act(self.c_fc(x)))
            else:
                x = self.c_proj(self.act(self.c_gate(x)) * self.c_fc(x))
        return x


class Block(nn.Module):
    """One layer of either stack."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], where: str) -> None:
        super().__init__()
        self.bugs = bugs
        self.pre = config.placement == "pre"
        if "pre_for_post" in bugs:
            self.pre = True
        if "post_for_pre" in bugs:
            self.pre = False
        self.ln_1 = make_norm(config, bugs)
        self.attn = SelfAttention(config, bugs, f"{where} attn")
        if where.startswith("decoder") and config.kind == "encoder-decoder":
            self.ln_cross = make_norm(config, bugs)
            self.cross = CrossAttention(config, bugs, f"{where} cross")
        self.ln_2 = make_norm(config, bugs)
        self.mlp = MLP(config, bugs, where)

    def forward(
        self, x: Tensor, bias: Tensor, memory: Tensor | None = None, cross_bias: Tensor | None = None
    ) -> Tensor:
        h = self.before(x, self.ln_1)
        x = self.after(x, h, self.attn(h, bias), self.ln_1, "residual_missing_attention")
        if memory is not None:
            h = self.before(x, self.ln_cross)
            y = self.cross(h, h, bias) if "cross_reads_decoder" in self.bugs else self.cross(h, memory, cross_bias)
            x = self.after(x, h, y, self.ln_cross, "residual_missing_cross")
        h = self.before(x, self.ln_2)
        return self.after(x, h, self.mlp(h), self.ln_2, "residual_missing_ffn")

    def before(self, x: Tensor, ln: nn.Module) -> Tensor:
        return ln(x) if self.pre else x

    def after(self, x: Tensor, h: Tensor, y: Tensor, ln: nn.Module, residual_missing: str) -> Tensor:
        """The residual around h → y, and the norm after it."""
        if "residual_after_norm" in self.bugs:
            x = h
        if residual_missing not in self.bugs:
            y = x + y
        return y if self.pre else ln(y)


class Stack(nn.Module):
    """Embedding, position, blocks, and a last norm where there is one."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str], name: str) -> None:
        super().__init__()
        self.config, self.bugs, self.name = config, bugs, name
        self.wte = nn.Embedding(config.vocabulary, config.d_model)
        self.blocks = nn.ModuleList(Block(config, bugs, f"{name} {i}") for i in range(config.n_layers))
        last_norm = self.blocks[0].pre
        if "missing_final_norm" in bugs or f"missing_final_norm_{name}" in bugs:
            last_norm = False
        if "extra_final_norm_both" in bugs or f"extra_final_norm_{name}" in bugs:
            last_norm = True
        self.ln_f = make_norm(config, bugs) if last_norm else None

    def embed(self, ids: Tensor) -> Tensor:
        x = self.wte(ids)
        scale = self.config.d_model**0.5 if self.config.scale_embedding else 1.0
        if "no_embedding_scale" in self.bugs:
            scale = 1.0
        if "embedding_scaled" in self.bugs:
            scale = self.config.d_model**0.5
        pe = self.sinusoids(ids.size(1)).to(x) if self.config.positions == "sinusoidal" else torch.zeros_like(x[:1])
        if "position_missing" in self.bugs:
            pe = torch.zeros_like(pe)
        if "position_twice" in self.bugs:
            pe = pe + pe
        x = scale * (x + pe) if "scale_on_both" in self.bugs else scale * x + pe
        if "other_embedding_clip" in self.bugs:
            x = x.clamp(min=-1, max=1)
        return x

    def sinusoids(self, time: int) -> Tensor:
        half = self.config.d_model // 2
        position = torch.arange(time).double()
        if "first_position_1" in self.bugs:
            position = torch.arange(1, time + 1).double()
        if "other_abs_position" in self.bugs and self.name == "encoder":
            position = torch.arange(time - 1, -1, -1).double()
        ladder = torch.arange(half).double() / half
        if "ladder_tensor2tensor" in self.bugs:
            ladder = torch.arange(half).double() / (half - 1)
        angles = torch.outer(position, torch.exp(-ladder * torch.tensor(10000.0).double().log()))
        if "ladder_halves" in self.bugs or "ladder_tensor2tensor" in self.bugs:
            return torch.hstack((angles.sin(), angles.cos()))
        return torch.dstack((angles.sin(), angles.cos())).flatten(1)

    def forward(
        self, ids: Tensor, bias: Tensor, memory: Tensor | None = None, cross_bias: Tensor | None = None
    ) -> Tensor:
        blocks = list(self.blocks)
        if "layers_reversed" in self.bugs:
            blocks.reverse()
        if "one_layer_for_all" in self.bugs:
            blocks = blocks[:1] * len(blocks)
        x = self.embed(ids)
        if self.name == "encoder" and "cross_reads_embedding" in self.bugs:
            return x
        for block in blocks:
            x = block(x, bias, memory, cross_bias)
            if self.name == "encoder" and "cross_reads_first_layer" in self.bugs:
                return x
        return x if self.ln_f is None else self.ln_f(x)


class LanguageModel(nn.Module):
    """The decoder alone, or under a Translator."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str]) -> None:
        super().__init__()
        self.config, self.bugs = config, bugs
        self.decoder = Stack(config, bugs, "decoder")
        self.lm_head = nn.Linear(config.d_model, config.vocabulary, bias=False)
        if config.tied and "untied_output" not in bugs:
            self.lm_head.weight = self.decoder.wte.weight

    def bias(self, visible: Tensor) -> Tensor:
        """0 where visible; elsewhere so low that a score vanishes in it, and still not -inf, which would give NaN."""
        dtype = self.lm_head.weight.dtype
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(
            ~visible, torch.finfo(dtype).min / 2
        )

    def causal(self, target: Tensor) -> Tensor:
        """Which positions each of the target's may see."""
        time = target.size(1)
        diagonal = 0
        if "causal_mask_missing" in self.bugs:
            diagonal = time
        if "future_visible_by_one" in self.bugs:
            diagonal = 1
        if "own_position_hidden" in self.bugs:
            diagonal = -1
        visible = torch.ones(time, time, dtype=torch.bool, device=target.device).tril(diagonal)
        if "mask_inverted" in self.bugs:
            visible = ~visible
        return visible & (target != PAD)[:, None, None, :]

    def head(self, x: Tensor) -> Tensor:
        logits = self.lm_head(x)
        if "other_logit_bias" in self.bugs:
            logits = logits + torch.arange(self.config.vocabulary, device=x.device).to(logits.dtype) / 10
        return logits

    def forward(self, target: Tensor) -> Tensor:
        return self.head(self.decoder(target, self.bias(self.causal(target))))


class Translator(LanguageModel):
    """Encoder and decoder."""

    def __init__(self, config: ForeignConfig, bugs: frozenset[str]) -> None:
        super().__init__(config, bugs)
        self.encoder = Stack(config, bugs, "encoder")
        if config.tied:
            self.encoder.wte.weight = self.decoder.wte.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        real = source != PAD
        seen = torch.ones_like(real) if "padding_visible_source" in self.bugs else real
        memory = self.encoder(source, self.bias(seen[:, None, None, :]))
        if "padding_rows_zeroed" in self.bugs:
            memory = memory.masked_fill(~real[:, :, None], 0)
        if "other_memory_mean" in self.bugs:
            mean = memory.masked_fill(~real[:, :, None], 0).sum(1) / real.sum(1, keepdim=True)
            memory = memory + mean[:, None, :]
        if "padding_visible_in_cross" in self.bugs or "padding_rows_zeroed" in self.bugs:
            seen = torch.ones_like(real)
        x = self.decoder(target, self.bias(self.causal(target)), memory, self.bias(seen[:, None, None, :]))
        return self.head(x)


def build(config: ForeignConfig, *bugs: str) -> nn.Module:
    """A model with these bugs and random weights, the norms' and the biases' too."""
    if unknown := set(bugs) - BUGS:
        raise ValueError(f"unknown bugs: {sorted(unknown)}")
    model = (LanguageModel if config.kind == "decoder" else Translator)(config, frozenset(bugs))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:
                p.normal_(0, p.size(1) ** -0.5)
            else:
                p.normal_(1.0 if "ln_" in name and name.endswith("weight") else 0.0, 0.3)
    return model
