"""What training on a CPU computes its own way: the same numbers as PyTorch's, and their gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer import kernels

B, H, K = 3, 2, 4


def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Equation 1, as it stands."""
    scores = (q @ k.transpose(-2, -1) / math.sqrt(K)).masked_fill(~allowed, -math.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ v


def case(n_queries: int, n_keys: int, dtype: torch.dtype) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return q, k and v, and masks: of one shape for all, of padding, of both."""
    torch.manual_seed(n_queries * n_keys)
    tensors = [torch.randn(B, H, n, K, dtype=dtype, requires_grad=True) for n in (n_queries, n_keys, n_keys)]
    lengths = torch.tensor([n_keys, max(1, n_keys // 2), 1])
    padding = (torch.arange(n_keys) < lengths[:, None])[:, None, None]
    causal = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)
    every = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return tensors, {"every": every, "causal": causal, "padding": padding, "both": padding & causal}


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (5, 5), (3, 7), (15, 16), (16, 17), (20, 40)])
@pytest.mark.parametrize("mask", ["every", "causal", "padding", "both"])
class TestAttention:
    def test_values_and_gradients(self, n_queries: int, n_keys: int, mask: str) -> None:
        tensors, masks = case(n_queries, n_keys, torch.float64)
        out, expected = kernels.Attention.apply(*tensors, masks[mask]), plain(*tensors, masks[mask])
        assert (out - expected).abs().max() <= 1e-14
        above = torch.randn_like(out)
        own, theirs = torch.autograd.grad(out, tensors, above), torch.autograd.grad(expected, tensors, above)
        for a, b in zip(own, theirs, strict=True):
            assert a.shape == b.shape
            assert (a - b).abs().max() <= 1e-13

    def test_bfloat16_is_as_near_as_plain_operations(self, n_queries: int, n_keys: int, mask: str) -> None:
        tensors, masks = case(n_queries, n_keys, torch.bfloat16)
        exact = [x.detach().double().requires_grad_() for x in tensors]
        above = torch.randn(B, H, n_queries, K, dtype=torch.bfloat16)

        def with_gradients(of: object, given: list[Tensor], above: Tensor) -> list[Tensor]:
            out = of(*given, masks[mask])  # type: ignore[operator]
            return [out.detach(), *torch.autograd.grad(out, given, above)]

        right = with_gradients(plain, exact, above.double())
        for own, theirs, value in zip(
            with_gradients(kernels.Attention.apply, tensors, above),
            with_gradients(plain, tensors, above),
            right,
            strict=True,
        ):
            assert own.dtype == torch.bfloat16
            allowed = 2 * (theirs.double() - value).abs().max() + 2**-8 * value.abs().max()
            assert (own.double() - value).abs().max() <= allowed


def test_a_row_that_sees_nothing_is_zeros_and_teaches_nothing() -> None:
    tensors, _ = case(4, 4, torch.float64)
    allowed = torch.ones(B, 1, 4, 4, dtype=torch.bool)
    allowed[1] = False
    allowed[2, 0, 3] = False
    out = kernels.Attention.apply(*tensors, allowed)
    gradients = torch.autograd.grad(out.sum(), tensors)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[2, :, 3], torch.zeros(H, K, dtype=torch.float64))
    assert out[2, :, 2].abs().min() > 0
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_drops_and_scales(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.rand(501, 1003, dtype=dtype).add(1).requires_grad_()  # an odd number of numbers
    y = kernels.dropout(x, 0.2)
    kept = y != 0
    assert y.dtype == dtype
    assert kept.float().mean().item() == pytest.approx(0.8, abs=0.003)  # five standard deviations are 0.0028
    assert torch.allclose(y[kept], x[kept] / 0.8, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, kept)
    torch.manual_seed(0)
    torch.rand(501, 1003, dtype=dtype)
    assert torch.equal(kernels.dropout(x, 0.2), y)


@pytest.mark.parametrize("n", [1, kernels.ROWS - 1, kernels.ROWS, 3 * kernels.ROWS + 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [1.0, 400.0])  # with 400 most probabilities are below the smallest number
def test_cross_entropy(n: int, smoothing: float, size: float) -> None:
    torch.manual_seed(n)
    logits = (size * torch.randn(n, 50, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(50, (n,))
    labels[n // 3] = -100
    own = kernels.CrossEntropy.apply(logits, labels, smoothing, -100)
    theirs = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    assert own.item() == pytest.approx(theirs.item(), rel=1e-12)
    (a,), (b,) = torch.autograd.grad(3 * own, logits), torch.autograd.grad(3 * theirs, logits)
    assert (a - b).abs().max() <= 1e-12
