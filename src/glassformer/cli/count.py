"""`glassformer count`: the parameters of a model, by group, against the closed form."""

import typer

from glassformer.cli.options import ConfigArgument, JsonOption, SetOption
from glassformer.cli.show import print_json, table
from glassformer.config import load_config


def count(x: ConfigArgument, set_: SetOption = None, json: JsonOption = False) -> None:
    """Count the parameters of a model: by part, with the formula, tied matrices once.

    The base model with separate vocabularies, as a translator into German would have them:

    glassformer count paper-base --set model.source_vocabulary=32000 --set model.target_vocabulary=32000
    --set model.tying=target-output
    """
    config = load_config(x, set_ or ()).model
    from glassformer.inspect import count as counting

    counted = counting.count(config)
    if json:
        parts = [
            {
                "name": part.name,
                "formula": part.formula,
                "each": part.each,
                "times": part.times,
                "total": part.total,
                "inside": part.inside,
            }
            for part in counted.parts
        ]
        print_json({"total": counted.total, "closed_form": counted.closed_form, "parts": parts, "tied": counted.tied})
        return
    rows = [
        (
            ("  of which " if part.inside else "") + part.name,
            part.formula,
            f"{part.each:,}",
            f"× {part.times}" if part.times > 1 else "",
            "" if part.inside else f"{part.total:,}",
        )
        for part in counted.parts
    ]
    rows.append(("total", "", "", "", f"{counted.total:,}"))
    table(("part", "formula", "each", "", "parameters"), rows, align="llrrr")
    typer.echo(
        f"d = d_model = {config.d_model}, f = d_ff = {config.d_ff}, H = n_heads = {config.n_heads}, "
        f"G = n_kv_heads = {config.kv_heads}, K = d_head = {config.d_k}"
    )
    agrees = (
        "which the formulas give too"
        if counted.total == counted.closed_form
        else f"but the formulas give {counted.closed_form:,}"
    )
    typer.echo(f"The built model holds {counted.total:,} parameters, {agrees}.")
    for names in counted.tied:
        typer.echo(f"One matrix, counted once: {' = '.join(names)}")
