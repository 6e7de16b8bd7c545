"""Scaled dot-product attention (equation 1) and multi-head attention (section 3.2.2)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer import kernels
from glassformer.config.model import ModelConfig
from glassformer.errors import DataError
from glassformer.model.cache import KeyValues
from glassformer.model.position import Rotation
from glassformer.model.tap import Tap


@dataclass(frozen=True)
class Mask:
    """Which keys each query may attend to.

    `allowed` broadcasts to (B, H, T, S), True = may attend. It is None where a flag says it all ("causal" over
    as many keys as queries, or every key), so that the fused kernels are not held up by a dense mask.
    """

    allowed: Tensor | None
    causal: bool = False

    def dense(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        """Write the flags out, as (T, S) if `allowed` does not say more."""
        if self.allowed is not None:
            return self.allowed
        if self.causal:
            return causal(n_queries, n_keys, device)
        return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)


def causal(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """(T, S): the queries are the last T of the S tokens, and see the keys at or before their own index."""
    index = torch.arange(n_keys, device=device)
    return index <= index[n_keys - n_queries :, None]


def attention_mask(ids: Tensor, n_keys: int, is_real: Tensor | None, *, is_causal: bool) -> Mask:
    """Return the mask of queries `ids` (B, T) over keys of which `is_real` (B, S) are real; None: all are.

    A query may see real keys at or before its own index (causal), or all real keys. A whole sequence, a prompt,
    one step and a chunk are the same case: the queries are the last T of the S tokens.
    """
    n_queries = ids.shape[1]
    if is_real is not None:
        if is_real.dtype != torch.bool or is_real.shape != (ids.shape[0], n_keys):
            got = f"{is_real.dtype} {tuple(is_real.shape)}"
            raise DataError(f"is_real must be torch.bool of shape {(len(ids), n_keys)}, True at real tokens, not {got}")
        allowed = is_real[:, None, None, :]  # (B, 1, 1, S)
        if is_causal:
            allowed = allowed & causal(n_queries, n_keys, ids.device)  # (B, 1, T, S)
        return Mask(allowed)
    if not is_causal or n_queries == 1:
        return Mask(None)
    if n_queries == n_keys:
        return Mask(None, causal=True)
    return Mask(causal(n_queries, n_keys, ids.device))  # (T, S)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    With fewer key and value heads than query heads, each serves several queries (Ainslie et al. 2023).
    """

    def __init__(self, config: ModelConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.cross = cross  # keys and values from the memory, which does not change from step to step
        self.n_heads, self.n_kv_heads, self.d_k = config.n_heads, config.kv_heads, config.d_k
        self.dropout = config.dropout.attention
        bias = config.biases == "all"
        self.w_q = nn.Linear(config.d_model, self.n_heads * self.d_k, bias=bias)
        self.w_k = nn.Linear(config.d_model, self.n_kv_heads * self.d_k, bias=bias)
        self.w_v = nn.Linear(config.d_model, self.n_kv_heads * self.d_k, bias=bias)
        self.w_o = nn.Linear(self.n_heads * self.d_k, config.d_model, bias=bias)
        self.q, self.k, self.v = Tap("B H T K"), Tap("B G S K"), Tap("B G S K")
        if config.positions.kind == "rotary" and not cross:
            self.rotated_q, self.rotated_k = Tap("B H T K"), Tap("B G S K")
        self.scores, self.scaled, self.masked, self.weights = (Tap("B H T S") for _ in range(4))
        self.heads, self.joined, self.projected = Tap("B H T K"), Tap("B T HK"), Tap("B T D")

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask,
        *,
        rotation: Rotation | None = None,
        past: KeyValues | None = None,
    ) -> Tensor:
        """Let each row of `x` (B, T, D) read the rows of `memory` (B, S, D), `x` itself or the encoder's output.

        `rotation` turns queries and keys by their positions; `past` holds keys and values of earlier steps, and those
        of this step are added to it. Returns (B, T, D).
        """
        q = self.q(self._split(self.w_q(x), self.n_heads))  # (B, H, T, K)
        if rotation is not None:
            q = self.rotated_q(rotation.turn(q))
        if self.cross and past is not None and past.length:
            k, v = past.read()  # (B, G, S, K)
        else:
            k = self.k(self._split(self.w_k(memory), self.n_kv_heads))  # (B, G, S, K)
            v = self.v(self._split(self.w_v(memory), self.n_kv_heads))
            if rotation is not None:
                k = self.rotated_k(rotation.turn(k))
            if past is not None:
                k, v = past.append(k, v)
        heads = self.heads(self._attend(q, k, v, mask))  # (B, H, T, K)
        joined = self.joined(heads.transpose(1, 2).flatten(2))  # (B, T, HK)
        projected: Tensor = self.projected(self.w_o(joined))  # (B, T, D)
        return projected

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """softmax(Q K^T / √d_k) V. A row whose keys are all hidden gives zeros.

        PyTorch's fused kernel, or ours for training where its backward pass is slow; unless somebody watches what
        they do not show. It is the one thing that is computed in several ways.
        """
        dropout = self.dropout if self.training else 0.0
        n = q.shape[0] // k.shape[0]  # so many rows side by side read one row of the memory: the beams of one source
        n_groups = self.n_heads // self.n_kv_heads
        watched = any(tap.watched for tap in (self.scores, self.scaled, self.masked, self.weights))
        slow = v.requires_grad and v.dtype == torch.bfloat16 and v.device.type == "cpu"
        if slow and not watched and not dropout and n == n_groups == 1:
            return kernels.Attention.apply(q, k, v, mask.dense(q.shape[2], k.shape[2], q.device))  # type: ignore[no-any-return, no-untyped-call]
        if not slow and not watched:
            if n > 1:
                q = q.view(len(k), n, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # (B, H, n T, K)
            heads = F.scaled_dot_product_attention(q, k, v, mask.allowed, dropout, mask.causal, enable_gqa=n_groups > 1)
            return heads.view(len(k), self.n_heads, n, -1, self.d_k).transpose(1, 2).flatten(0, 1) if n > 1 else heads
        dtype = q.dtype  # in float16 the products overflow before they are scaled; the kernel has float32 inside too
        q, k, v = (x.float() if dtype == torch.float16 else x for x in (q, k, v))
        k, v = (x.repeat_interleave(n, 0).repeat_interleave(n_groups, 1) for x in (k, v))
        scores = self.scores(q @ k.transpose(-2, -1))  # (B, H, T, S)
        scaled = self.scaled(scores / math.sqrt(self.d_k))
        allowed = mask.dense(q.shape[2], k.shape[2], q.device)
        if n > 1 and allowed.ndim == 4:
            allowed = allowed.repeat_interleave(n, dim=0)
        masked = self.masked(scaled.masked_fill(~allowed, -math.inf))
        # a softmax over nothing is 0/0: such a row becomes zeros on a way that has no NaN in its gradient either
        empty = ~allowed.any(dim=-1, keepdim=True)  # (.., T, 1)
        weights = self.weights(masked.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0))
        return (F.dropout(weights, dropout) @ v).to(dtype)  # (B, H, T, K)

    def _split(self, x: Tensor, n: int) -> Tensor:
        """(B, T, n K) -> (B, n, T, K)."""
        return x.view(*x.shape[:2], n, self.d_k).transpose(1, 2)
