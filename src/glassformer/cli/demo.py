"""`glassformer demo`: a Transformer learns to reverse letters before one's eyes."""

import sys
from itertools import count
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.options import JsonOption
from glassformer.cli.show import print_json, shaded_map
from glassformer.cli.steps import show_steps
from glassformer.config import preset

if TYPE_CHECKING:
    from glassformer.run import Run

EXAMPLE = "c a b e d"


def demo(
    run: Annotated[
        Path | None,
        typer.Option(
            help="Where to put the run. \\[default: runs/reversal, or the next free number]", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another run.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 3000,
    json: JsonOption = False,
) -> None:
    """Train the toy model of the 2017 paper's recipe, show its table, and decode one example word by word."""
    config = preset("reversal", [f"train.seed={seed}", f"train.steps={steps}"])
    # as long as its preset says in a run of full length
    small = preset("microscope", [f"train.seed={seed}", f"train.epochs={max(1, steps // 10)}"])
    directory = _free(Path("runs/reversal")) if run is None else run
    from glassformer.cli.progress import TrainingDisplay, train_and_show
    from glassformer.inspect.count import count as count_parameters
    from glassformer.learn.loss import smoothing_floor
    from glassformer.learn.trainer import Trainer

    assert config.train is not None
    assert config.model.target_vocabulary is not None
    floor = smoothing_floor(config.train.label_smoothing, config.model.target_vocabulary)
    if not json:
        typer.echo(
            f"An encoder–decoder of {count_parameters(config.model).total:,} parameters, built as in the 2017 paper,\n"
            f"learns to write letters backwards: {steps:,} steps of {config.train.batch_size} sequences of 3 to 8\n"
            f"letters. With label smoothing the loss cannot fall below {floor:.3f}.\n"
        )
    # rows at the steps of the 2017 page's table, in a run of its length: 1, 500, 1000, 2000, 3000
    display = TrainingDisplay(config.train, table_on_stdout=not json, tells_start=False, shares=(1 / 6, 2 / 6, 4 / 6))
    trained, report = train_and_show(Trainer(config, directory, lambda _: None), display)
    microscope = _free(directory.parent / "microscope")
    Trainer(small, microscope, lambda _: None).train()
    written = trained.steps(EXAMPLE)
    rows, weights = last_cross_attention(trained)
    if json:
        attention = {"rows": rows, "columns": EXAMPLE.split(), "weights": weights}
        print_json({**report.as_json(), "source": EXAMPLE, "steps": written, "cross_attention": attention})
        return
    if len(report.averaged.steps) > 1:
        typer.echo("\nThe paper averages its last checkpoints, and so does this run. Its weights:")
        typer.echo(f"{trained.notes['weights']}.")
    typer.echo(f"\n{EXAMPLE}, one word at a time:\n")
    show_steps(written)
    typer.echo(
        f"Where decoder layer {config.model.n_decoder_layers} looks while it writes (cross-attention, mean of "
        f"{config.model.n_heads} heads;\neach row is what was read and what is written, each column a source letter):\n"
    )
    typer.echo(shaded_map(weights, rows, EXAMPLE.split()))
    _offer(directory, microscope, count_parameters(small.model).total)


def _offer(directory: Path, microscope: Path, n_parameters: int) -> None:
    """Say what to do next with the two runs."""
    from glassformer.explorer.server import has_page

    program = sys.argv[0] if which("glassformer") is None and sys.argv[0].endswith("glassformer") else "glassformer"
    how = (
        "Walk through both, in a browser"
        if has_page()
        else "make web (it needs Node 20) builds the page to walk through both"
    )
    typer.echo(
        f"\nThe run is in {directory}. It knows words of 3 to 8 letters. In {microscope} is a model of\n"
        f"{n_parameters} numbers, which writes numbers in words and fits on one screen. {how}:\n"
        f"  {program} explore {directory} {microscope}\n"
        "Or try:\n"
        f"  {program} translate {directory} 'h i j a b'\n"
        f"  {program} steps {directory} 'a b b a'\n"
        f"  {program} trace {directory} 'c a b e d' --tensor 'decoder.layers.1.cross_attention.weights'\n"
        f"  {program} compare paper-base smollm2-135m\n"
        f"  {program} --help"
    )


def last_cross_attention(run: "Run") -> tuple[list[str], list[list[float]]]:
    """Return the row names and weights (T, S) of the last decoder layer on the example, mean of the heads."""
    last = (run.config.model.n_decoder_layers or 0) - 1
    name = f"decoder.layers.{last}.cross_attention.weights"
    seen = run.trace(EXAMPLE, only=[name, "logits"])
    best = seen["logits"].select(B=0).values.argmax(dim=-1).tolist()
    rows = [f"{read} → {write}" for read, write in zip(seen.target_tokens, run.tokenizer.tokens(best), strict=True)]
    weights: list[list[float]] = seen[name].select(B=0).mean("H").values.tolist()
    return rows, weights


def _free(directory: Path) -> Path:
    """Return the directory, or the first of its name with a number that does not exist: runs/reversal-2."""
    candidates = (directory.with_name(f"{directory.name}-{n}") for n in count(2))
    return directory if not directory.exists() else next(path for path in candidates if not path.exists())
