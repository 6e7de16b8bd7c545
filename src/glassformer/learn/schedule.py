"""The learning rate at each step. No torch."""

from glassformer.config.run import Schedule


def learning_rate(schedule: Schedule, *, step: int, d_model: int) -> float:
    """Return d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5) (equation 3); steps count from 1."""
    return float(d_model**-0.5 * min(step**-0.5, step * schedule.warmup_steps**-1.5))
