"""`glassformer schedule`: the learning rate at given steps."""

from typing import Annotated

import typer

from glassformer.cli.options import ConfigArgument, JsonOption, SetOption, numbers
from glassformer.cli.show import print_json, table
from glassformer.config import load_config
from glassformer.errors import ConfigError
from glassformer.learn.schedule import learning_rate


def schedule(
    x: ConfigArgument,
    at: Annotated[
        str | None,
        typer.Option(help="Steps, with commas between. \\[default: some of the whole training]", show_default=False),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show the learning rate that training uses at given steps, and its peak."""
    config = load_config(x, set_ or ())
    if config.train is None:
        raise ConfigError(
            f"{x} has no [train] part, so it has no schedule; presets with one: reversal, paper-base, paper-big"
        )
    settings, d_model = config.train.schedule, config.model.d_model
    if at is None:
        marks = (
            1,
            settings.warmup_steps // 4,
            settings.warmup_steps,
            config.train.steps // 2,
            config.train.steps,
        )
        steps = sorted({step for step in marks if step >= 1})
    else:
        steps = numbers(at, "--at", smallest=1)
    rates = [learning_rate(settings, step=step, d_model=d_model) for step in steps]
    peak = learning_rate(settings, step=settings.warmup_steps, d_model=d_model)
    if json:
        print_json(
            {
                "kind": settings.kind,
                "d_model": d_model,
                "warmup_steps": settings.warmup_steps,
                "peak": {"step": settings.warmup_steps, "rate": peak},
                "rates": [{"step": step, "rate": rate} for step, rate in zip(steps, rates, strict=True)],
            }
        )
        return
    typer.echo(
        f"rate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), "
        f"d_model {d_model}, warmup_steps {settings.warmup_steps:,}"
    )
    rows = [(f"{step:,}", f"{rate:.3e}", f"{rate / peak:.1%}") for step, rate in zip(steps, rates, strict=True)]
    table(("step", "rate", "of the peak"), rows, align="rrr")
    typer.echo(f"The peak is {peak:.3e}, at step {settings.warmup_steps:,}.")
