"""`glassformer schedule`: the learning rate at given steps."""

from typing import Annotated

import typer

from glassformer.cli.options import LARGEST, ConfigArgument, JsonOption, SetOption, numbers
from glassformer.cli.show import print_json, table
from glassformer.config import TrainConfig, load_config
from glassformer.errors import ConfigError
from glassformer.learn.schedule import STEPS, learning_rate, peak

FORMULAS = {
    "paper": "d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)",
    "inverse-sqrt": "peak · min(step / warmup_steps, (warmup_steps / step)^0.5)",
    "cosine": "peak · step / warmup_steps, then from the peak down to final · peak along a cosine",
    "constant": "peak, after a rise of warmup_steps",
}


def schedule(
    x: ConfigArgument,
    at: Annotated[
        str | None,
        typer.Option(help="Steps, with commas between. \\[default: some of the whole training]", show_default=False),
    ] = None,
    last_step: Annotated[
        int | None,
        typer.Option(
            metavar="STEP",
            min=1,
            max=LARGEST,
            help="Where training ends, if that is set in epochs.",
            show_default=False,
        ),
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
    end = _end(x, config.train) if last_step is None else last_step
    if at is None:
        marks = (1, settings.warmup_steps // 4, settings.warmup_steps, end // 2, end)
        steps = sorted({step for step in marks if step >= 1})
    else:
        steps = numbers(at, "--at", smallest=1)
    rates = [learning_rate(settings, step=step, d_model=d_model, last_step=end) for step in steps]
    peak_step, peak_rate = peak(settings, d_model=d_model, last_step=end)
    if json:
        print_json(
            {
                **settings.model_dump(exclude_none=True),
                "d_model": d_model,
                "last_step": end,
                "peak": {"step": peak_step, "rate": peak_rate},
                "rates": [{"step": step, "rate": rate} for step, rate in zip(steps, rates, strict=True)],
            }
        )
        return
    typer.echo(f"rate = {FORMULAS[settings.kind]}, d_model {d_model}, warmup_steps {settings.warmup_steps:,}")
    rows = [(f"{step:,}", f"{rate:.3e}", f"{rate / peak_rate:.1%}") for step, rate in zip(steps, rates, strict=True)]
    table(("step", "rate", "of the peak"), rows, align="rrr")
    typer.echo(f"The peak is {peak_rate:.3e}, at step {peak_step:,}.")


def _end(x: str, settings: TrainConfig) -> int:
    """Return the last step of a training."""
    if settings.epochs is not None and settings.steps is None:
        raise ConfigError(
            f"{x} trains for {settings.epochs} epochs, and how many steps that is depends on the data: give --last-step"
        )
    return settings.steps or STEPS
