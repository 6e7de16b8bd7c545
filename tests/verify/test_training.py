"""Faults of a training loop that no forward pass shows: each is planted once and named, and a right one passes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import glassformer as gf
from glassformer.config.train import Schedule
from glassformer.verification.report import Report

EPSILON, PAD = 0.1, 0


def names(found: Report) -> list[str]:
    assert found.explained
    assert found.equal == (not found.causes)
    assert all(cause.says and cause.fix for cause in found.causes)
    return [cause.name for cause in found.causes]


def torchs(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
    options = {"ignore_index": PAD, "label_smoothing": EPSILON} | options
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), **options)


def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    """Divergence from the smoothed labels, ε/(V - 2) on all but the right one and padding, over the tokens."""
    logits, labels = logits.flatten(0, 1)[labels.flatten() != PAD], labels[labels != PAD]
    wanted = torch.full_like(logits, EPSILON / (logits.shape[1] - 2))
    wanted[:, PAD] = 0.0
    wanted.scatter_(1, labels[:, None], 1 - EPSILON)
    return F.kl_div(logits.log_softmax(-1), wanted, reduction="sum") / len(labels)


def rows_apart(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([torchs(one[None], label[None]) for one, label in zip(logits, labels, strict=True)]).mean()


class TestLoss:
    @pytest.mark.parametrize(
        ("loss", "right"),
        [
            (torchs, []),
            (lambda x, y: torchs(x.float(), y), []),
            (lambda x, y: torchs(x, y, label_smoothing=0.0), ["smoothing-missing"]),
            (lambda x, y: torchs(x, y, ignore_index=-100), ["padding-in-loss"]),
            (lambda x, y: torchs(x, y, reduction="sum") / y.numel(), ["padding-in-count"]),
            (lambda x, y: torchs(x, y, reduction="sum"), ["sum"]),
            (lambda x, y: torchs(x, y, reduction="sum") / len(y), ["mean-over-rows"]),
            (rows_apart, ["mean-of-means"]),
            (lambda x, y: torchs(x.softmax(-1), y), ["softmax-twice"]),
            (lambda x, y: torchs(x, y, label_smoothing=EPSILON * 13 / 12), ["smoothing-others"]),
            (
                lambda x, y: torchs(x, y, label_smoothing=0.0, ignore_index=-100),
                ["smoothing-missing", "padding-in-loss"],
            ),
        ],
    )
    def test_one(self, loss: Callable[[Tensor, Tensor], Tensor], right: list[str]) -> None:
        assert names(gf.verify_loss(loss)) == right

    def test_a_divergence_is_a_constant_apart(self) -> None:
        assert names(gf.verify_loss(by_hand, smoothing="others-but-pad")) == ["constant-apart"]

    def test_labels_that_are_ignored(self) -> None:
        assert gf.verify_loss(lambda x, y: torchs(x, y, ignore_index=-100), pad_id=-100).equal

    def test_unknown(self) -> None:
        found = gf.verify_loss(lambda x, y: x.square().mean())
        assert not found.equal
        assert not found.explained
        assert found.verdict == "Unknown."

    def test_several_numbers(self) -> None:
        with pytest.raises(gf.VerifyError, match=r"a loss must be one number, but yours has the shape \(3, 6, 13\)"):
            gf.verify_loss(lambda x, y: x)


def paper(step: float, *, d_model: int = 512, warmup_steps: float = 4000) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5) if step else 0.0


class TestSchedule:
    @pytest.mark.parametrize(
        ("rate", "right"),
        [
            (paper, []),
            (lambda step: paper(step - 1), ["schedule-off-by-one"]),
            (lambda step: paper(step + 1), ["schedule-off-by-one"]),
            (lambda step: paper(step, warmup_steps=1000), ["warmup-units"]),
            (lambda step: paper(step * 8), ["schedule-units"]),
            (lambda step: paper(step) * 512**0.5, ["schedule-no-d-model"]),
            (lambda step: 2 * paper(step), ["schedule-factor"]),
        ],
    )
    def test_one(self, rate: Callable[[int], float], right: list[str]) -> None:
        assert names(gf.verify_schedule(rate)) == right

    def test_another_schedule(self) -> None:
        cosine = Schedule(kind="cosine", peak=1e-3, warmup_steps=100)
        parameter = nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.SGD([parameter], lr=1e-3)
        torchs = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda done: min(1.0, (done + 1) / 100))

        def rate(step: int) -> float:
            return 1e-3 * torchs.lr_lambdas[0](step - 1)

        assert names(gf.verify_schedule(rate, schedule=Schedule(kind="constant", peak=1e-3, warmup_steps=100))) == []
        assert not gf.verify_schedule(rate, schedule=cosine, last_step=1000).equal

    def test_unknown(self) -> None:
        assert not gf.verify_schedule(lambda step: 1 / step).explained


def laid_out(sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
    def rows(values: list[list[int]]) -> Tensor:
        return torch.tensor([[*row, *[PAD] * (max(map(len, values)) - len(row))] for row in values])

    return [rows(sources), rows(targets)]


class TestBatches:
    @pytest.mark.parametrize(
        ("read", "asked", "right"),
        [
            (lambda t: [1, *t], lambda t: [*t, 2], []),
            (lambda t: [*t, 2], lambda t: [*t, 2], ["target-not-shifted"]),
            (lambda t: t, lambda t: t, ["target-not-shifted", "end-token-missing"]),
            (lambda t: [2, *t], lambda t: [*t, 2], ["start-token-end"]),
            (lambda t: [1, *t], lambda t: t, ["end-token-missing"]),
            (lambda t: [1, *t, 2], lambda t: [*t, 2], ["end-token-read"]),
            (lambda t: [1, *t], lambda t: [1, *t, 2], ["start-token-asked"]),
            (lambda t: [1, *t[::-1]], lambda t: t[::-1], ["decoder-input", "labels"]),
        ],
    )
    def test_one(
        self, read: Callable[[list[int]], list[int]], asked: Callable[[list[int]], list[int]], right: list[str]
    ) -> None:
        def make(sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
            return [*laid_out(sources, [read(t) for t in targets]), laid_out(sources, [asked(t) for t in targets])[1]]

        assert names(gf.verify_batches(make)) == right

    def test_padding_and_sources(self) -> None:
        def make(sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
            labels = laid_out([], [[*t, 2] for t in targets])[1]
            return [
                *laid_out([[*s[::-1]] for s in sources], [[1, *t] for t in targets]),
                labels.masked_fill(labels == PAD, -100),
            ]

        assert names(gf.verify_batches(make)) == ["source"]

    def test_what_is_no_batch(self) -> None:
        with pytest.raises(gf.VerifyError, match="three tensors, not 2"):
            gf.verify_batches(laid_out)


class Dropping(nn.Module):
    def __init__(self, p: float, mode: bool | None = None) -> None:
        super().__init__()
        self.linear, self.p, self.mode = nn.Linear(8, 8), p, mode

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(x), self.p, training=self.training if self.mode is None else self.mode)


@pytest.mark.parametrize(
    ("model", "right"),
    [
        (Dropping(0.5), []),
        (Dropping(0.5, mode=True), ["dropout-in-eval"]),
        (Dropping(0.5, mode=False), ["dropout-off-in-training"]),
        (Dropping(0.0), ["dropout-off-in-training"]),
    ],
)
def test_dropout(model: Dropping, right: list[str]) -> None:
    model.eval()
    state = torch.random.get_rng_state()
    assert names(gf.verify_dropout(model, torch.ones(4, 8))) == right
    assert not model.training
    assert torch.equal(torch.random.get_rng_state(), state)
