"""The loss against its formulas written out, and as a sum that can be put together from parts."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.batch import IGNORED
from glassformer.learn.loss import Objective, cross_entropy, smoothing_floor

V = 7
PAD = 2
SMOOTHING = ("all", "others", "others-but-pad")
Array = NDArray[np.float64]


def case(n: int = 20, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits and labels, some of them ignored, none of them PAD."""
    random = np.random.default_rng(seed)
    labels = random.choice([i for i in range(V) if i != PAD], n)
    labels[random.random(n) < 0.3] = IGNORED
    return torch.from_numpy(random.normal(0, 3, (n, V))).to(dtype), torch.from_numpy(labels)


def wanted(label: int, smoothing: str, epsilon: float) -> Array:
    """Return the distribution that the model is to give: one row of the table of definitions."""
    if smoothing == "all":
        q = np.full(V, epsilon / V)
        q[label] += 1 - epsilon
        return q
    q = np.full(V, epsilon / (V - 1 if smoothing == "others" else V - 2))
    q[label] = 1 - epsilon
    if smoothing == "others-but-pad":
        q[PAD] = 0.0
    return q


def written_out(logits: Tensor, labels: Tensor, smoothing: str, epsilon: float, weights: Array | None = None) -> float:
    total = 0.0
    for row, label in zip(logits.double().numpy(), labels.tolist(), strict=True):
        if label == IGNORED:
            continue
        p = np.exp(row) / np.exp(row).sum()
        q = wanted(label, smoothing, epsilon)
        assert q.sum() == pytest.approx(1.0)
        total -= float((q * np.log(p)).sum()) * (1.0 if weights is None else float(weights[label]))
    return total


def objective(smoothing: str = "all", epsilon: float = 0.1, weights: Array | None = None) -> Objective:
    kind: Any = smoothing
    return Objective(epsilon, kind, PAD, None if weights is None else torch.from_numpy(weights))


class TestFormulas:
    @pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
    @pytest.mark.parametrize("smoothing", SMOOTHING)
    @pytest.mark.parametrize("weights", [None, np.arange(1.0, V + 1)], ids=["plain", "weighted"])
    def test_written_out(self, smoothing: str, epsilon: float, weights: Array | None) -> None:
        logits, labels = case()
        found = objective(smoothing, epsilon, weights)(logits, labels)
        assert found.item() == pytest.approx(written_out(logits, labels, smoothing, epsilon, weights), rel=1e-12)

    def test_the_three_differ(self) -> None:
        logits, labels = case()
        found = {smoothing: objective(smoothing)(logits, labels).item() for smoothing in SMOOTHING}
        assert len({round(value, 6) for value in found.values()}) == 3

    @pytest.mark.parametrize("smoothing", SMOOTHING)
    def test_gradients_are_what_is_given_minus_what_is_wanted(self, smoothing: str) -> None:
        logits, labels = case()
        logits.requires_grad_()
        objective(smoothing)(logits, labels).backward()
        assert logits.grad is not None
        for row, gradient, label in zip(logits.detach(), logits.grad, labels.tolist(), strict=True):
            expected = np.zeros(V) if label == IGNORED else row.softmax(0).numpy() - wanted(label, smoothing, 0.1)
            assert np.abs(gradient.numpy() - expected).max() < 1e-12

    def test_others_but_pad_knows_which_token_is_pad(self) -> None:
        """Whatever its logit, nothing asks for it."""
        logits = torch.zeros(1, V, dtype=torch.float64)
        logits[0, PAD] = -1000.0
        labels = torch.tensor([4])
        assert objective("others-but-pad")(logits, labels).item() == pytest.approx(math.log(V - 1))
        assert Objective(0.1, "others-but-pad", pad_id=3)(logits, labels).item() > 10
        assert objective("others")(logits, labels).item() > 10

    @pytest.mark.parametrize("smoothing", SMOOTHING)
    def test_any_shape(self, smoothing: str) -> None:
        logits, labels = case()
        flat = objective(smoothing)(logits, labels)
        assert objective(smoothing)(logits.view(4, 5, V), labels.view(4, 5)).item() == pytest.approx(flat.item())


class TestNothingAsked:
    @pytest.mark.parametrize("smoothing", SMOOTHING)
    @pytest.mark.parametrize("weights", [None, np.ones(V)], ids=["plain", "weighted"])
    def test_0_and_finite_gradients(self, smoothing: str, weights: Array | None) -> None:
        logits = torch.randn(2, 3, V, dtype=torch.float64, requires_grad=True)
        labels = torch.full((2, 3), IGNORED)
        own = objective(smoothing, 0.1, weights)
        loss = own(logits, labels)
        loss.backward()
        assert loss.item() == 0.0
        assert own.count(labels) == 0.0
        assert logits.grad is not None
        assert torch.equal(logits.grad, torch.zeros_like(logits))
        assert cross_entropy(logits, labels, label_smoothing=0.1).item() == 0.0

    @pytest.mark.parametrize("smoothing", SMOOTHING)
    @pytest.mark.parametrize("weights", [None, np.ones(V)], ids=["plain", "weighted"])
    def test_an_ignored_row_changes_nothing(self, smoothing: str, weights: Array | None) -> None:
        logits, labels = case()
        asked = labels != IGNORED
        own = objective(smoothing, 0.1, weights)
        assert own(logits, labels).item() == pytest.approx(own(logits[asked], labels[asked]).item(), rel=1e-14)
        assert own.count(labels) == own.count(labels[asked]) == int(asked.sum())


class TestWeights:
    def test_the_mean_is_over_the_sum_of_weights(self) -> None:
        logits, labels = case()
        weights = np.linspace(0.5, 3, V)
        own = objective("all", 0.0, weights)
        expected = torch.nn.functional.cross_entropy(
            logits, labels, weight=torch.from_numpy(weights), ignore_index=IGNORED
        )
        assert own.count(labels) == pytest.approx(sum(weights[i] for i in labels.tolist() if i != IGNORED))
        assert own(logits, labels).item() / own.count(labels) == pytest.approx(expected.item(), rel=1e-12)

    @pytest.mark.parametrize("smoothing", SMOOTHING)
    def test_equal_weights_are_none(self, smoothing: str) -> None:
        logits, labels = case()
        plain, own = objective(smoothing), objective(smoothing, 0.1, np.full(V, 3.0))
        mean = plain(logits, labels).item() / plain.count(labels)
        assert own(logits, labels).item() / own.count(labels) == pytest.approx(mean, rel=1e-12)

    def test_a_class_without_weight_teaches_nothing(self) -> None:
        logits, labels = case()
        weights = np.ones(V)
        weights[4] = 0.0
        without = torch.where(labels == 4, IGNORED, labels)
        assert (labels == 4).any()
        own = objective("all", 0.1, weights)
        assert own(logits, labels).item() == pytest.approx(objective()(logits, without).item(), rel=1e-12)
        assert own.count(labels) == own.count(without)


class TestParts:
    @pytest.mark.parametrize("smoothing", SMOOTHING)
    @pytest.mark.parametrize("weights", [None, np.linspace(0.5, 3, V)], ids=["plain", "weighted"])
    def test_unequal_parts_are_the_whole(self, smoothing: str, weights: Array | None) -> None:
        """The loss and its gradient: sums over the total count, not a mean of means."""
        logits, labels = case(60)
        labels[:9] = IGNORED  # the first part asks for nothing at all
        own = objective(smoothing, 0.1, weights)
        whole = logits.clone().requires_grad_()
        mean = own(whole, labels) / own.count(labels)
        mean.backward()
        pieces = logits.clone().requires_grad_()
        cuts = [9, 1, 13, 30, 7]
        parts = list(zip(pieces.split(cuts), labels.split(cuts), strict=True))
        count = sum(own.count(some) for _, some in parts)
        assert count == pytest.approx(own.count(labels), rel=1e-14)
        total = sum((own(*part) for part in parts), torch.zeros((), dtype=torch.float64)) / count
        total.backward()
        assert total.item() == pytest.approx(mean.item(), rel=1e-12)
        assert whole.grad is not None
        assert pieces.grad is not None
        assert (whole.grad - pieces.grad).abs().max() <= 1e-12
        means = [own(*part).item() / own.count(part[1]) for part in parts if own.count(part[1])]
        assert abs(sum(means) / len(means) - mean.item()) > 1e-3  # what the wrong way would give


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("smoothing", SMOOTHING)
    @pytest.mark.parametrize("weights", [None, np.ones(V, np.float32)], ids=["plain", "weighted"])
    def test_half_precision_is_summed_in_float32(
        self, dtype: torch.dtype, smoothing: str, weights: Array | None
    ) -> None:
        logits, labels = case(30_000, dtype=dtype)
        logits.requires_grad_()
        found = objective(smoothing, 0.1, weights)(logits, labels)
        assert found.dtype == torch.float32
        exact = objective(smoothing)(logits.detach().double(), labels).item()
        assert exact > 70_000  # more than float16 can hold
        assert found.item() == pytest.approx(exact, rel=1e-5)
        (found / 30_000).backward()
        assert logits.grad is not None
        assert logits.grad.dtype == dtype
        assert logits.grad.isfinite().all()

    def test_float64_stays(self) -> None:
        assert objective()(*case()).dtype == torch.float64

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("smoothing", SMOOTHING)
    def test_the_largest_logits(self, dtype: torch.dtype, smoothing: str) -> None:
        logits = torch.full((1, V), -60_000.0, dtype=dtype)
        logits[0, 4] = 60_000.0
        found = objective(smoothing, 0.1)(logits, torch.tensor([4]))
        assert found.isfinite()


class TestMean:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_many_rows_are_pytorchs(self, smoothing: float) -> None:
        """Taken some rows at a time, the sum and its gradient are those of PyTorch's own function, to float64's rounding."""
        torch.manual_seed(1)
        logits = (3 * torch.randn(201, 37, dtype=torch.float64)).requires_grad_()
        labels = torch.randint(0, 37, (201,))
        labels[::7] = IGNORED
        own = Objective(smoothing)(logits, labels)
        (own_gradient,) = torch.autograd.grad(2.5 * own, logits)
        given = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED, label_smoothing=smoothing)
        (gradient,) = torch.autograd.grad(2.5 * given, logits)
        torch.testing.assert_close(own, given, rtol=1e-12, atol=0)
        torch.testing.assert_close(own_gradient, gradient, rtol=0, atol=1e-12)

    def test_it_is_pytorchs(self) -> None:
        logits, labels = case()
        expected = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, label_smoothing=0.1)
        assert cross_entropy(logits, labels, label_smoothing=0.1).item() == pytest.approx(expected.item(), rel=1e-12)

    def test_smoothing_is_asked_for(self) -> None:
        logits, labels = case()
        expected = written_out(logits, labels, "all", 0.0) / int((labels != IGNORED).sum())
        assert cross_entropy(logits, labels).item() == pytest.approx(expected, rel=1e-12)

    def test_the_facts(self) -> None:
        """ε 0.1, 13 tokens: 0.9077 and 0.0077; the best loss is 0.537; 1.846 at a logit of 20 against zeros."""
        best = torch.full((1, 13), 0.1 / 13, dtype=torch.float64)
        best[0, 5] += 0.9
        assert best[0, 5].item() == pytest.approx(0.9077, abs=5e-5)
        assert best[0, 0].item() == pytest.approx(0.0077, abs=5e-5)
        loss = cross_entropy(best.log(), torch.tensor([5]), label_smoothing=0.1).item()
        assert loss == pytest.approx(0.537, abs=5e-4)
        sure = torch.zeros(1, 13)
        sure[0, 5] = 20.0
        assert cross_entropy(sure, torch.tensor([5]), label_smoothing=0.1).item() == pytest.approx(1.846, abs=5e-4)


class TestFloor:
    @pytest.mark.parametrize(("epsilon", "vocabulary"), [(0.1, 13), (0.1, 37_000), (0.5, 2), (0.9, 3)])
    def test_no_logits_give_less(self, epsilon: float, vocabulary: int) -> None:
        floor = smoothing_floor(epsilon, vocabulary)
        best = torch.full((1, vocabulary), epsilon / vocabulary, dtype=torch.float64)
        best[0, 1] += 1 - epsilon
        label = torch.tensor([1])
        assert cross_entropy(best.log(), label, label_smoothing=epsilon).item() == pytest.approx(floor, rel=1e-9)
        for seed in range(8):
            noise = torch.from_numpy(np.random.default_rng(seed).normal(0, 0.1, best.shape))
            assert cross_entropy(best.log() + noise, label, label_smoothing=epsilon).item() > floor

    def test_without_smoothing_it_is_0(self) -> None:
        assert smoothing_floor(0.0, 13) == 0.0
        assert smoothing_floor(0.1, 13) == pytest.approx(0.537, abs=5e-4)
