"""Three things of a training step at which PyTorch is slow on a CPU, done otherwise: the same numbers, sooner.

They know nothing of models. What each brings is measured in bench/train_speed.py, and noted in dev/log.md.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 2**16  # of a probability, in dropout
LANES = 16  # PyTorch's softmax over fewer numbers than a register holds takes ten times as long
ROWS = 64  # of logits, whose loss is taken at once


def dropout(x: Tensor, p: float) -> Tensor:
    """Set each number to 0 with probability p and scale the others by 1 / (1 - p).

    Drawing the random numbers takes most of the time of `F.dropout`. Here each 64-bit draw decides about four numbers,
    so p is rounded to a multiple of 2^-16.
    """
    dropped = min(max(1, round(p * LEVELS)), LEVELS - 1)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)  # even over -2^15 .. 2^15 - 1
    kept = torch.ge(levels, dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))  # a mask of bools is slower
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


class Attention(torch.autograd.Function):
    """softmax(Q K^T / √d_k) V with its gradient, for bfloat16.

    There PyTorch's fused kernel takes 2 to 20 times as long, forward and backward (512 to 15 tokens), and plain
    operations, whose gradients PyTorch puts together one by one, twice as long.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """(B, H, T, K), twice (B, H, S, K), and what broadcasts to (B, H, T, S), True = may attend -> (B, H, T, K).

        A row whose keys are all hidden gives zeros.
        """
        ctx.heads, ctx.n_keys = q.shape[:2], k.shape[2]
        more = max(0, LANES - ctx.n_keys)  # keys that nobody may attend to
        q, k, v = (x.flatten(0, 1) for x in (q, F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more))))  # (B H, .., K)
        hidden = F.pad(~allowed, (0, more), value=True)
        bias = torch.zeros(hidden.shape, dtype=torch.promote_types(q.dtype, torch.float32))
        scores = (q @ k.transpose(1, 2)).view(*ctx.heads, q.shape[1], -1)
        scores = torch.add(bias.masked_fill_(hidden, -math.inf), scores, alpha=q.shape[-1] ** -0.5)
        weights = scores.softmax(dim=-1)  # (B, H, T, S)
        empty = hidden.all(dim=-1, keepdim=True)
        if empty.any():
            weights = weights.masked_fill(empty, 0.0)
        rounded = weights.to(q.dtype).flatten(0, 1)
        ctx.save_for_backward(q, k, v, weights, rounded)
        return (rounded @ v).view(*ctx.heads, q.shape[1], -1)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of q, k and v."""
        q, k, v, weights, rounded = ctx.saved_tensors
        g = above[0].flatten(0, 1)
        product = (g @ v.transpose(1, 2)).view(weights.shape) * weights
        of_scores = product.sub_(weights * product.sum(dim=-1, keepdim=True))  # softmax's
        of_scores = of_scores.mul_(q.shape[-1] ** -0.5).to(q.dtype).flatten(0, 1)  # of Q K^T
        of_q, of_k, of_v = of_scores @ k, of_scores.transpose(1, 2) @ q, rounded.transpose(1, 2) @ g
        of_q, of_k, of_v = (x.view(*ctx.heads, *x.shape[1:]) for x in (of_q, of_k, of_v))
        return of_q, of_k[:, :, : ctx.n_keys], of_v[:, :, : ctx.n_keys], None


class CrossEntropy(torch.autograd.Function):
    """F.cross_entropy(.., reduction="sum") with its gradient, some rows at a time, so that they stay in the cache.

    It takes a tenth to a third of the time, and was a third of a small model's training step: PyTorch goes through the
    rows of V numbers many times, in float32.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float, ignored_label: int) -> Tensor:
        """(N, V) and (N,) -> the sum of the losses; `smoothing` is spread over all V tokens."""
        precise = torch.promote_types(logits.dtype, torch.float32)
        other = smoothing / logits.shape[-1]  # of the label's 1, what each token gets
        total = torch.zeros((), dtype=torch.float64)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        buffer = torch.empty(min(ROWS, len(logits)), logits.shape[-1], dtype=precise)
        for start in range(0, len(logits), ROWS):
            y = labels[start : start + ROWS]
            ignored, at = y == ignored_label, y.clamp(min=0)[:, None]  # (R,), (R, 1)
            x = buffer[: len(y)].copy_(logits[start : start + ROWS])
            p = x.softmax(dim=1)
            # log Σ exp(x), by the likeliest token, whose probability is never 0
            log_sum = x.amax(dim=1) - p.amax(dim=1).log()
            chosen = (1 - smoothing) * x.gather(1, at)[:, 0] + other * x.sum(dim=1)
            total += (log_sum - chosen).masked_fill_(ignored, 0.0).sum()
            if gradient is not None:  # softmax(x) less the smoothed label
                rows = gradient[start : start + ROWS]
                torch.sub(p.scatter_add_(1, at, p.new_full(at.shape, smoothing - 1)), other, out=rows)
                rows.index_fill_(0, ignored.nonzero()[:, 0], 0.0)
        ctx.save_for_backward(gradient)
        return total.to(precise)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the logits."""
        (gradient,) = ctx.saved_tensors
        return gradient * above[0], None, None, None
