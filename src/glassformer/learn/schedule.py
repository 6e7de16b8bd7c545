"""The learning rate at each step. No torch."""

import math

from glassformer.config.train import Schedule

STEPS = 100_000  # of a training, where the configuration says nothing


def learning_rate(schedule: Schedule, *, step: int, d_model: int, last_step: int | None = None) -> float:
    """Return the rate that a step uses; steps count from 1, and no step has a rate of 0 before the last.

    paper: d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5) (section 5.3, equation 3).

    Args:
        schedule: Which curve.
        step: From 1.
        d_model: For the paper's.
        last_step: Where the cosine ends; None: nobody knows, and it stays at its peak.

    """
    warmup = schedule.warmup_steps
    if schedule.kind == "paper":
        return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    peak = schedule.peak or 0.0  # the configuration has checked that it is set
    if step < warmup:
        return peak * step / warmup
    if schedule.kind == "inverse-sqrt":
        return float(peak * (warmup / step) ** 0.5)
    top = max(1, warmup)  # the step that has the peak
    if schedule.kind == "cosine" and last_step is not None and last_step > top:
        gone = min(1.0, (step - top) / (last_step - top))
        return peak * (schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * gone)) / 2)
    return peak


def peak(schedule: Schedule, *, d_model: int, last_step: int | None = None) -> tuple[int, float]:
    """Return the step with the largest rate, the first of them, and that rate; a short training ends before it."""
    step = max(1, min(schedule.warmup_steps, last_step or schedule.warmup_steps))
    return step, learning_rate(schedule, step=step, d_model=d_model)
