"""Learning rates: each curve at its beginning, at its peak, later and at its end."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config.train import Schedule
from glassformer.learn.schedule import learning_rate, peak

LAST = 100
CURVES: dict[str, dict[str, Any]] = {
    "paper": {"kind": "paper", "warmup_steps": 10},
    "inverse-sqrt": {"kind": "inverse-sqrt", "warmup_steps": 10, "peak": 0.02},
    "cosine": {"kind": "cosine", "warmup_steps": 10, "peak": 0.02},
    "cosine with an end": {"kind": "cosine", "warmup_steps": 10, "peak": 0.02, "final": 0.25},
    "constant": {"kind": "constant", "warmup_steps": 10, "peak": 0.02},
    "cosine without a warm-up": {"kind": "cosine", "warmup_steps": 0, "peak": 0.02},
    "constant without a warm-up": {"kind": "constant", "warmup_steps": 0, "peak": 0.02},
    "a warm-up of one step": {"kind": "inverse-sqrt", "warmup_steps": 1, "peak": 0.02},
}


def rate(step: int, *, d_model: int = 64, last_step: int | None = LAST, **schedule: Any) -> float:
    return learning_rate(Schedule(**schedule), step=step, d_model=d_model, last_step=last_step)


def rates(curve: str, last: int = LAST) -> list[float]:
    return [rate(step, last_step=last, **CURVES[curve]) for step in range(1, last + 1)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, 1.747e-7), (100, 1.747e-5), (1000, 1.747e-4), (4000, 6.988e-4), (10_000, 4.419e-4), (100_000, 1.398e-4)],
)
def test_the_papers_values(step: int, expected: float) -> None:
    assert rate(step, d_model=512, kind="paper", warmup_steps=4000) == pytest.approx(expected, rel=4e-4)
    assert rate(step, d_model=512) == rate(step, d_model=512, kind="paper", warmup_steps=4000)  # it is the default


@pytest.mark.parametrize(("step", "expected"), [(100, 0.0015625), (400, 0.00625), (1600, 0.003125)])
def test_the_toys_values(step: int, expected: float) -> None:
    assert rate(step, kind="paper", warmup_steps=400) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        # steps 1, 5, 10, 11, 40, 55, 100
        ("inverse-sqrt", [0.002, 0.01, 0.02, 0.02 * math.sqrt(10 / 11), 0.01, 0.02 * math.sqrt(10 / 55), 0.02 / math.sqrt(10)]),
        ("cosine", [0.002, 0.01, 0.02, 0.01 * (1 + math.cos(math.pi / 90)), 0.015, 0.01, 0.0]),
        ("cosine with an end", [0.002, 0.01, 0.02, 0.005 + 0.0075 * (1 + math.cos(math.pi / 90)), 0.01625, 0.0125, 0.005]),
        ("constant", [0.002, 0.01, 0.02, 0.02, 0.02, 0.02, 0.02]),
        ("constant without a warm-up", [0.02] * 7),
        ("a warm-up of one step", [0.02 / math.sqrt(step) for step in (1, 5, 10, 11, 40, 55, 100)]),
        ("cosine without a warm-up", [0.01 * (1 + math.cos(math.pi * (step - 1) / 99)) for step in (1, 5, 10, 11, 40, 55, 100)]),
    ],
)  # fmt: skip
def test_each_curve(curve: str, expected: list[float]) -> None:
    found = rates(curve)
    assert [found[step - 1] for step in (1, 5, 10, 11, 40, 55, 100)] == pytest.approx(expected, rel=1e-12, abs=1e-17)


@pytest.mark.parametrize("curve", CURVES)
class TestAll:
    def test_no_step_before_the_last_has_a_rate_of_0(self, curve: str) -> None:
        assert all(value > 0 for value in rates(curve)[:-1])
        assert rates(curve)[-1] >= 0

    def test_step_1_of_a_short_training(self, curve: str) -> None:
        for last in range(1, 15):
            assert rates(curve, last)[0] > 0

    def test_the_peak_is_the_largest_of_all_steps(self, curve: str) -> None:
        schedule = Schedule(**CURVES[curve])
        step, most = peak(schedule, d_model=64)
        found = rates(curve)
        assert found[step - 1] == most == max(found)
        assert found.index(max(found)) == step - 1

    def test_it_rises_in_a_straight_line_and_never_after(self, curve: str) -> None:
        warmup = CURVES[curve]["warmup_steps"]
        found = rates(curve)
        for step in range(1, warmup + 1):
            assert found[step - 1] == pytest.approx(found[0] * step, rel=1e-12)
        assert all(a >= b for a, b in pairwise(found[max(0, warmup - 1) :]))

    def test_the_end_of_the_warm_up_is_no_jump(self, curve: str) -> None:
        """The longer the warm-up, the nearer its last step is to the ones beside it."""
        fine = CURVES[curve] | {"warmup_steps": 10_000}
        before, at, after = (rate(step, last_step=100_000, **fine) for step in (9_999, 10_000, 10_001))
        assert before == pytest.approx(at, rel=2e-4)
        assert after == pytest.approx(at, rel=2e-4)

    def test_it_depends_on_the_step_alone(self, curve: str) -> None:
        schedule = Schedule(**CURVES[curve])
        forwards = [learning_rate(schedule, step=step, d_model=64, last_step=LAST) for step in range(1, LAST + 1)]
        backwards = [learning_rate(schedule, step=step, d_model=64, last_step=LAST) for step in range(LAST, 0, -1)]
        assert forwards == backwards[::-1]


def test_only_the_papers_depends_on_the_width() -> None:
    for curve, fields in CURVES.items():
        ratio = rate(20, d_model=64, **fields) / rate(20, d_model=256, **fields)
        assert ratio == pytest.approx(2.0 if curve == "paper" else 1.0)


class TestCosine:
    FIELDS = CURVES["cosine with an end"]

    def test_past_its_end_it_stays_there(self) -> None:
        """An epoch may have some steps more than the first one."""
        assert rate(101, **self.FIELDS) == rate(150, **self.FIELDS) == pytest.approx(0.005)

    def test_without_an_end_it_stays_at_its_peak(self) -> None:
        assert [rate(step, last_step=None, **self.FIELDS) for step in (5, 10, 11, 1000)] == [0.01, 0.02, 0.02, 0.02]

    @pytest.mark.parametrize("last_step", [1, 5, 10])
    def test_a_training_that_ends_in_the_warm_up(self, last_step: int) -> None:
        assert [rate(step, last_step=last_step, **self.FIELDS) for step in (1, 5, 10)] == [0.002, 0.01, 0.02]

    def test_only_it_asks_for_the_last_step(self) -> None:
        for curve in ("paper", "inverse-sqrt", "constant"):
            assert rate(50, last_step=60, **CURVES[curve]) == rate(50, last_step=None, **CURVES[curve])


@given(
    st.sampled_from(["paper", "inverse-sqrt", "cosine", "constant"]),
    st.integers(1, 10_000),
    st.integers(1, 200_000),
    st.integers(1, 200_000),
)
def test_rates_lie_between_0_and_the_peak(kind: str, warmup: int, step: int, last: int) -> None:
    schedule = Schedule(kind=kind, warmup_steps=warmup, peak=None if kind == "paper" else 0.3)
    found = learning_rate(schedule, step=step, d_model=512, last_step=last)
    assert 0 <= found <= peak(schedule, d_model=512)[1]
    assert found > 0 or step >= last
