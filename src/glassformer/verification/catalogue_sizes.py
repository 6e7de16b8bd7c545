"""Other sizes than the configuration's, as far as the shapes of their weights tell them."""

from collections import Counter
from collections.abc import Iterator, Sequence

from glassformer.config.model import ModelConfig
from glassformer.verification.deviation import SIDES, Deviation, always, deviation, has, parameters
from glassformer.verification.units import Unit

TABLE = "table 3 has the paper's sizes"


def sizes(config: ModelConfig, theirs: Sequence[Unit]) -> Iterator[Deviation]:
    """Yield the sizes that theirs may have.

    Args:
        config: What theirs should be.
        theirs: Its parts.

    """
    widths = Counter(unit.shape[0] for unit in theirs if unit.kind == "norm")
    d_model = widths.most_common(1)[0][0] if widths else config.d_model
    if d_model != config.d_model:
        yield _size("d_model", d_model, f"has d_model = {d_model}")
    linear = Counter(unit.shape for unit in theirs if unit.kind == "linear")
    for d_ff in sorted({shape[0] for shape in linear if shape[1] == d_model and linear[shape[::-1]]} - {config.d_ff}):
        yield _size("d_ff", d_ff, f"has d_ff = {d_ff}")
    numbers = sum(unit.weight.size for unit in theirs if unit.kind == "linear")
    for side in SIDES:
        for n in _n_layers(config, side, numbers):
            yield deviation(
                f"layers-{side}-{n}", f"has {n} {side} layer{'s' * (n > 1)}", TABLE,
                f"give both as many (n_{side}_layers)", parameters(has(side), **{f"n_{side}_layers": n}),
            )  # fmt: skip
    for n in range(1, config.n_heads + 1):
        if config.n_heads % n == 0:
            yield _size("n_kv_heads", n, f"has {n} head{'s' * (n > 1)} of keys and values")


def _n_layers(config: ModelConfig, side: str, numbers: int) -> Iterator[int]:
    """Yield how many layers one side may have, if the matrices of all hold so many numbers."""
    attention = 2 * config.d_model * config.d_k * (config.n_heads + config.kv_heads)
    ffn = (3 if config.ffn.gated else 2) * config.d_model * config.d_ff
    layer = {"encoder": attention + ffn, "decoder": attention * (2 if config.has_encoder else 1) + ffn}
    own = {"encoder": config.n_encoder_layers or 0, "decoder": config.n_decoder_layers or 0}
    expected = sum(own[one] * layer[one] for one in SIDES) + (config.target_vocabulary or 0) * config.d_model
    nearest = own[side] + round((numbers - expected) / layer[side])
    yield from (n for n in (nearest, nearest - 1, nearest + 1) if 0 < n != own[side])


def _size(field: str, value: int, says: str) -> Deviation:
    name = f"{field.removeprefix('n_').replace('_', '-')}-{value}"
    return deviation(name, says, TABLE, f"give both the same ({field})", parameters(always, **{field: value}))
