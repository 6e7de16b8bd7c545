"""Other sizes than the configuration's, as far as the shapes of their weights tell them."""

from collections import Counter
from collections.abc import Iterator, Sequence

from glassformer.config.model import ModelConfig
from glassformer.verification.deviation import SIDES, Deviation, always, deviation, has, parameters
from glassformer.verification.units import Unit

TABLE = "table 3 has the paper's sizes"
MOST_LAYERS = 12


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
    for side in SIDES:
        for n in range(1, MOST_LAYERS + 1):
            yield deviation(
                f"layers-{side}-{n}", f"has {n} {side} layer{'s' * (n > 1)}", TABLE,
                f"give both as many (n_{side}_layers)", parameters(has(side), **{f"n_{side}_layers": n}),
            )  # fmt: skip
    for n in range(1, config.n_heads + 1):
        if config.n_heads % n == 0:
            yield _size("n_kv_heads", n, f"has {n} head{'s' * (n > 1)} of keys and values")


def _size(field: str, value: int, says: str) -> Deviation:
    name = f"{field.removeprefix('n_').replace('_', '-')}-{value}"
    return deviation(name, says, TABLE, f"give both the same ({field})", parameters(always, **{field: value}))
