"""`glassformer positions`: the position table, its waves, and the rotation by k."""

from typing import Annotated

import typer

from glassformer.cli.options import ConfigArgument, JsonOption, SetOption, numbers
from glassformer.cli.show import print_json, table
from glassformer.config import load_config


def positions(
    x: ConfigArgument,
    at: Annotated[str, typer.Option(help="Positions, with commas between.")] = "0,1,2",
    columns: Annotated[int, typer.Option(min=1, help="How many columns of the table to print.")] = 8,
    shift: Annotated[int, typer.Option(help="k: show that k positions later is a rotation.")] = 3,
    pair: Annotated[int, typer.Option(min=0, help="The pair of columns that is rotated.")] = 5,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show how a model knows the order of its tokens: PE at given positions, wavelengths, and the rotation by k."""
    config = load_config(x, set_ or ()).model
    places = numbers(at, "--at", smallest=0)
    from glassformer.inspect import positions as position_views

    kind, rotary = config.positions.kind, config.positions.kind == "rotary"
    if kind in ("learned", "none"):
        size = config.positions.size
        if json:
            print_json({"kind": kind, "size": size})
        elif kind == "learned":
            typer.echo(f"The positions are learned: one row of {config.d_model} numbers for each of {size} positions.")
        else:
            typer.echo("The model has no positions: it sees its tokens as a set, but for what the causal mask tells.")
        return
    waves = position_views.waves(config)
    rows = position_views.table(config, places)
    pair = min(pair, len(waves) - 1)
    shown = None if rotary else position_views.shift(config, pair=pair, by=shift, at=places)
    if json:
        name = "angles" if rotary else "table"
        print_json(
            {
                "kind": kind,
                "at": places,
                name: [row[:columns] for row in rows],
                "waves": waves,
                "shift": shown,
            }
        )
        return
    what = "angle of pair" if rotary else "column"
    titled = "Angles in radians, by pair" if rotary else "PE(position, column)"
    n = min(columns, len(rows[0]))
    body = [(str(place), *(f"{value:.3f}" for value in row[:n])) for place, row in zip(places, rows, strict=True)]
    table(
        ("position", *(f"{what} {i}" if i == 0 else str(i) for i in range(n))),
        body,
        align="r" * (n + 1),
        title=titled,
    )
    marks = sorted({0, 1, len(waves) // 2, len(waves) - 1} & set(range(len(waves))))
    body = [(str(i), f"{waves[i].frequency:.6g}", f"{waves[i].wavelength:,.1f}") for i in marks]
    table(
        ("pair", "radians a position", "wavelength in positions"),
        body,
        align="rrr",
        title=f"Some of the {len(waves)} pairs",
    )
    if shown is not None:
        (a, b), (c, d) = shown.matrix
        typer.echo(
            f"{shift} positions later, pair {pair} is turned by [[{a:.4f}, {b:.4f}], [{c:.4f}, {d:.4f}]], "
            "wherever it starts:\n"
        )
        body = [(str(p), f"({t[0]:.4f}, {t[1]:.4f})", f"({e[0]:.4f}, {e[1]:.4f})") for p, t, e in shown.rows]
        table(("position", "the pair, turned", f"the pair {shift} later"), body, align="rrr")
