"""One layer of the encoder or the decoder (figure 1): sublayers, each in a residual connection with a norm."""

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.model.attention import Mask, MultiHeadAttention
from glassformer.model.cache import KeyValues
from glassformer.model.dropout import Dropout
from glassformer.model.position import Rotation
from glassformer.model.tap import Tap


def make_norm(config: ModelConfig) -> nn.Module:
    """LayerNorm(x) = γ (x - μ) / √(σ² + ε) + β, or RMSNorm(x) = γ x / √(mean(x²) + ε), over a token's D numbers."""
    if config.norm.kind == "rmsnorm":
        return nn.RMSNorm(config.d_model, eps=config.norm.eps)
    return nn.LayerNorm(config.d_model, eps=config.norm.eps)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2); another activation; or gated (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation, self.gated = config.ffn.activation, config.ffn.gated
        bias = config.biases != "none"
        self.w_1 = nn.Linear(config.d_model, config.d_ff, bias=bias)
        self.w_2 = nn.Linear(config.d_ff, config.d_model, bias=bias)
        self.up = Tap("B T F")
        if self.gated:
            self.w_gate = nn.Linear(config.d_model, config.d_ff, bias=bias)
            self.gate, self.activated = Tap("B T F"), Tap("B T F")
        self.hidden, self.projected = Tap("B T F"), Tap("B T D")
        self.dropout = Dropout(config.dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), each position on its own."""
        up = self.up(self.w_1(x))  # (B, T, F)
        if self.gated:
            gate = self.gate(self.w_gate(x))  # (B, T, F)
            hidden = self.hidden(self.activated(self._activate(gate)) * up)
        else:
            hidden = self.hidden(self._activate(up))
        projected: Tensor = self.projected(self.w_2(self.dropout(hidden)))  # (B, T, D)
        return projected

    def _activate(self, x: Tensor) -> Tensor:
        match self.activation:
            case "relu":
                return F.relu(x)
            case "gelu":
                return F.gelu(x)
            case "gelu-tanh":
                return F.gelu(x, approximate="tanh")
            case "silu":
                return F.silu(x)


class Residual(nn.Module):
    """post: LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4; pre: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post = config.norm.placement == "post"
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout.residual)
        self.sum, self.normed = Tap("B T D"), Tap("B T D")

    def enter(self, x: Tensor) -> Tensor:
        """Return what the sublayer reads."""
        return x if self.post else self.normed(self.norm(x))

    def leave(self, x: Tensor, change: Tensor) -> Tensor:
        """Add the sublayer's `change` to what came in."""
        x = self.sum(x + self.dropout(change))
        return self.normed(self.norm(x)) if self.post else x


class Layer(nn.Module):
    """Self-attention; in a decoder with an encoder, cross-attention; feed-forward."""

    def __init__(self, config: ModelConfig, *, cross: bool) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross = cross
        if cross:
            self.cross_attention = MultiHeadAttention(config, cross=True)
            self.cross_attention_residual = Residual(config)
        self.ffn = FeedForward(config)
        self.ffn_residual = Residual(config)
        self.output = Tap("B T D")

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None,
        *,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        self_past: KeyValues | None = None,
        cross_past: KeyValues | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); `memory` (B, S, D) is what cross-attention reads."""
        y = self.self_attention_residual.enter(x)
        x = self.self_attention_residual.leave(x, self.self_attention(y, y, mask, rotation=rotation, past=self_past))
        if self.cross:
            y = self.cross_attention_residual.enter(x)
            x = self.cross_attention_residual.leave(x, self.cross_attention(y, memory, memory_mask, past=cross_past))
        y = self.ffn_residual.enter(x)
        x = self.ffn_residual.leave(x, self.ffn(y))
        output: Tensor = self.output(x)
        return output
