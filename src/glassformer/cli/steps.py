"""`glassformer steps`: one word at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.options import LARGEST, JsonOption, MaxLengthOption, RunArgument
from glassformer.cli.show import print_json, table

if TYPE_CHECKING:
    from glassformer.run import WrittenToken


def steps(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The source.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, max=LARGEST, help="How many of the most likely tokens to show.")] = 3,
    max_length: MaxLengthOption = None,
    json: JsonOption = False,
) -> None:
    """Write one word at a time: what the decoder has, what it chooses, and the most likely tokens."""
    from glassformer.run import load

    loaded = load(run)
    written = loaded.steps(text, top=top, max_length=max_length)
    if written[-1].chosen.token != loaded.tokenizer.tokens([loaded.tokenizer.end_id])[0]:
        typer.echo(f"cut at the length limit of {len(written)} tokens", err=True)
    if json:
        print_json({"source": text, "steps": written})
    else:
        show_steps(written)


def show_steps(written: Sequence["WrittenToken"]) -> None:
    """Print a table with a row for each step."""
    top = len(written[0].candidates)
    table(
        (
            "decoder input so far",
            "chosen",
            "probability",
            f"the {top} most likely" if top > 1 else "the most likely",
        ),
        [
            (
                " ".join(step.so_far),
                step.chosen.token,
                f"{step.chosen.probability:.3f}",
                " · ".join(f"{candidate.token} {candidate.probability:.3f}" for candidate in step.candidates),
            )
            for step in written
        ],
        align="llrl",
    )
