"""`glassformer positions`: the position table, its waves, and the rotation by k."""

from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.options import LARGEST, ConfigArgument, JsonOption, SetOption, numbers
from glassformer.cli.show import print_json, table
from glassformer.config import ModelConfig, load_config

if TYPE_CHECKING:
    from glassformer.inspect.positions import Shift, Wave


def positions(
    x: ConfigArgument,
    at: Annotated[str, typer.Option(help="Positions, with commas between.")] = "0,1,2",
    columns: Annotated[int, typer.Option(min=1, max=LARGEST, help="How many columns of the table to print.")] = 8,
    shift: Annotated[
        int | None,
        typer.Option(
            min=-LARGEST,
            max=LARGEST,
            help="k: show that k positions later is a rotation. \\[default: 3]",
            show_default=False,
        ),
    ] = None,
    pair: Annotated[
        int | None, typer.Option(min=0, help="The pair of columns that is rotated. \\[default: 5]", show_default=False)
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show how a model knows the order of its tokens: PE at given positions, wavelengths, and the rotation by k.

    Positions are those of the formula; the first token of a text has the position positions.first, mostly 0.
    """
    config = load_config(x, set_ or ()).model
    places = numbers(at, "--at", smallest=0)
    from glassformer.inspect import positions as looking

    kind = config.positions.kind
    if kind in ("learned", "none"):
        _show_without_formula(config, json=json)
        return
    waves, rows = looking.waves(config), [row[:columns] for row in looking.table(config, places)]
    shown = None
    if kind == "sinusoidal" or shift is not None or pair is not None:
        pair = min(5, len(waves) - 1) if pair is None else pair
        shown = looking.shift(config, pair=pair, by=3 if shift is None else shift, at=places)
    if json:
        name = "angles" if kind == "rotary" else "table"
        print_json({"kind": kind, "at": places, name: rows, "waves": waves, "shift": shown})
        return
    _show_table(kind, places, rows)
    _show_waves(waves)
    if shown is not None:
        _show_shift(shown)


def _show_without_formula(config: ModelConfig, *, json: bool) -> None:
    kind, size = config.positions.kind, config.positions.size
    if json:
        print_json({"kind": kind, "size": size})
    elif kind == "learned":
        typer.echo(f"The positions are learned: one row of {config.d_model} numbers for each of {size} positions.")
    else:
        typer.echo("The model has no positions: it sees its tokens as a set, but for what the causal mask tells.")


def _show_table(kind: str, places: list[int], rows: list[list[float]]) -> None:
    rotary, n = kind == "rotary", len(rows[0])
    first = "angle of pair 0" if rotary else "column 0"
    body = [(str(place), *(f"{value:.3f}" for value in row)) for place, row in zip(places, rows, strict=True)]
    title = "Angles in radians, by pair" if rotary else "PE(position, column)"
    table(("position", first, *map(str, range(1, n))), body, align="r" * (n + 1), title=title)


def _show_waves(waves: "list[Wave]") -> None:
    marks = sorted({0, min(1, len(waves) - 1), len(waves) // 2, len(waves) - 1})
    body = [(str(i), f"{waves[i].frequency:.6g}", f"{waves[i].wavelength:,.1f}") for i in marks]
    title = f"Some of the {len(waves)} pairs"
    table(("pair", "radians a position", "wavelength in positions"), body, align="rrr", title=title)


def _show_shift(shown: "Shift") -> None:
    (a, b), (c, d) = shown.matrix
    typer.echo(
        f"{shown.by} positions later, pair {shown.pair} is turned by [[{a:.4f}, {b:.4f}], [{c:.4f}, {d:.4f}]], "
        "wherever it starts:\n"
    )
    body = [(str(p), f"({t[0]:.4f}, {t[1]:.4f})", f"({e[0]:.4f}, {e[1]:.4f})") for p, t, e in shown.rows]
    table(("position", "the pair, turned", f"the pair {shown.by} later"), body, align="rrr")
