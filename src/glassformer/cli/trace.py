"""`glassformer trace`: every tensor of a run on a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.options import JsonOption, RunArgument
from glassformer.cli.show import number, print_json, table
from glassformer.files import written_whole

if TYPE_CHECKING:
    from glassformer.inspect.trace import Trace, Traced


def trace(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The source.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Option(help="What the decoder reads. \\[default: what the model writes]", show_default=False),
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(help="Only tensors of this name or pattern, with their numbers: 'decoder.*.weights'. Repeatable."),
    ] = None,
    npz: Annotated[Path | None, typer.Option(help="Write the tensors to this NumPy file, by name.")] = None,
    json: JsonOption = False,
) -> None:
    """Run the model once on a text and list every tensor, with its axes, shape and range.

    Axes: B batch, T query positions, S key positions, H heads, G key and value heads, D d_model, K d_head,
    F d_ff, V vocabulary.
    """
    from glassformer.run import load

    seen = load(run).trace(text, target, only=tensor or "*")
    if npz is not None:
        _write(seen, npz)
    summaries = [_summary(traced) for traced in seen.values()]
    tokens = {"source_tokens": seen.source_tokens, "target_tokens": seen.target_tokens}
    if json:
        if tensor:
            for summary, traced in zip(summaries, seen.values(), strict=True):
                summary["values"] = traced.values.tolist()
        print_json({**tokens, "tensors": summaries})
        return
    typer.echo(f"source {' '.join(seen.source_tokens)} · target {' '.join(seen.target_tokens)}\n")
    rows = [
        (
            row["name"],
            " ".join(row["axes"]),
            str(row["shape"]),
            *(number(row[key]) for key in ("min", "max", "mean")),
        )
        for row in summaries
    ]
    table(("tensor", "axes", "shape", "min", "max", "mean"), rows, align="lllrrr")
    if tensor:
        _print_values(seen)
    if npz is not None:
        typer.echo(f"wrote {len(seen)} tensors to {npz}")


def _summary(traced: "Traced") -> dict[str, Any]:
    """Describe a tensor; the range and mean are those of its finite numbers (a mask writes -inf)."""
    values = traced.values.double()
    finite = values[values.isfinite()]
    return {
        "name": traced.name,
        "axes": list(traced.axes),
        "shape": traced.shape,
        "min": finite.min().item() if len(finite) else 0.0,
        "max": finite.max().item() if len(finite) else 0.0,
        "mean": finite.mean().item() if len(finite) else 0.0,
    }


def _print_values(seen: "Trace") -> None:
    import numpy as np

    for traced in seen.values():
        typer.echo(f"\n{traced.name}  ({' '.join(traced.axes)})")
        typer.echo(np.array2string(np.asarray(traced), precision=3, suppress_small=True, max_line_width=110))


def _write(seen: "Trace", path: Path) -> None:
    import numpy as np

    arrays: dict[str, Any] = {name: np.asarray(traced) for name, traced in seen.items()}
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
