"""`glassformer shapes`: the shape of every tensor for given lengths."""

import re
from typing import Annotated

import typer

from glassformer.cli.options import ConfigArgument, JsonOption, SetOption
from glassformer.cli.show import print_json, table
from glassformer.config import load_config


def shapes(
    x: ConfigArgument,
    source_length: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Tokens of the source. \\[default: 5]", show_default=False)
    ] = None,
    target_length: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, help="Tokens that the decoder reads. \\[default: 6]", show_default=False),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show the shape of every tensor, with named axes, for one source and one target of these lengths.

    Axes: B batch, T query positions, S key positions, H heads, G key and value heads, D d_model, K d_head,
    F d_ff, V vocabulary. In an encoder T and S are both the source.
    """
    config = load_config(x, set_ or ()).model
    for option, given, there in (
        ("--source-length", source_length, config.has_encoder),
        ("--target-length", target_length, config.has_decoder),
    ):
        if given is not None and not there:
            raise typer.BadParameter(f"a model of kind {config.kind!r} has no such side", param_hint=option)
    from glassformer.inspect import shapes as shaping

    lengths = {"source_length": source_length or 5, "target_length": target_length or 6}
    found = shaping.shapes(config, **lengths)
    if json:
        sides = {"source_length": config.has_encoder, "target_length": config.has_decoder}
        print_json({**{name: lengths[name] if there else None for name, there in sides.items()}, "shapes": found})
        return
    rows = []
    for shape in found:
        layer = re.match(r"(encoder|decoder)\.layers\.(\d+)\.", shape.name)
        if layer and layer[2] != "0":
            continue  # every layer has the shapes of the first
        hidden = shape.hidden_cells_per_head
        note = "" if hidden is None else f"{hidden} hidden cells a head"
        rows.append((shape.name, " ".join(shape.axes), str(shape.shape), note))
    table(("tensor", "axes", "shape", ""), rows, align="llll")
    for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        if n_layers and n_layers > 1:
            typer.echo(f"{side}.layers.0 stands for {n_layers} equal layers, 0 to {n_layers - 1}.")
