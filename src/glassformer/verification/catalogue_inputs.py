"""Known deviations of what goes into the first layer: embeddings, and how tokens know their order."""

import math
from collections.abc import Iterator

from glassformer.config.model import ModelConfig
from glassformer.verification import changes as c
from glassformer.verification.deviation import (
    SIDES,
    Deviation,
    Way,
    adds_positions,
    both,
    both_stacks,
    deviation,
    fields,
    has,
    hooks,
    parameters,
    rotary,
)

SCALED = "section 3.4: the embedding layers multiply those weights by √d_model"
SINUSOID = "section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same"
ROPE = "RoPE (Su et al. 2021): queries and keys are turned, in every layer, by pos / base^(2i/d)"


def embeddings() -> Iterator[Deviation]:
    """What goes into the first layer, and the matrix that it shares with the output."""

    def scaled(config: ModelConfig) -> bool:
        return config.embedding.scale

    def unscaled(config: ModelConfig) -> bool:
        return not config.embedding.scale

    yield deviation(
        "no-embedding-scale", "does not multiply its embeddings by √d_model", SCALED,
        "embedding(ids) * math.sqrt(d_model)",
        fields(scaled, embedding__scale=False),
        *(hooks(c.embedding_times(lambda d: d**-0.5, side), both(scaled, both_stacks)) for side in SIDES),
    )  # fmt: skip
    yield deviation(
        "embedding-scaled", "multiplies its embeddings by √d_model", "this configuration does not (embedding.scale)",
        "leave the factor out", fields(unscaled, embedding__scale=True),
    )  # fmt: skip
    yield deviation(
        "embedding-scaled-twice", "multiplies its embeddings by √d_model twice", SCALED, "multiply once",
        hooks(c.embedding_times(math.sqrt), scaled),
    )  # fmt: skip
    yield deviation(
        "scale-on-both", "multiplies the sum of embedding and position by √d_model", SCALED,
        "multiply the embedding alone, then add the position",
        hooks(c.positions_times(math.sqrt), both(scaled, adds_positions)),
        fields(both(unscaled, adds_positions), c.positions_times(math.sqrt), embedding__scale=True),
    )  # fmt: skip
    yield deviation(
        "target-shifted-inside", "shifts the target by one itself, so that each position reads the token before",
        "section 3.1: the output embeddings are offset by one position, once",
        "give it the target without a start token",
        *(hooks(change, has("decoder")) for change in (c.shifted_embedding, *map(c.shifted_ids, (0, 1, 2)))),
    )  # fmt: skip
    yield deviation(
        "untied-output", "has an output matrix of its own", "section 3.4: embeddings and output share one matrix",
        "output.weight = embedding.weight",
        *(parameters(tying=tying) for tying in ("source-target", "none", "target-output")),
    )  # fmt: skip
    yield deviation(
        "output-bias", "adds a bias to its logits", "section 3.4: the output is the embedding's matrix, and no bias",
        "nn.Linear(d_model, vocabulary, bias=False)", parameters(has("decoder"), output_bias=True),
    )  # fmt: skip
    for choice, says in (
        ("all", "has biases in attention"),
        ("ffn", "has no biases in attention"),
        ("none", "has no biases in its layers"),
    ):
        yield deviation(
            f"biases-{choice}", says, "equation 2 has biases; the formulas of attention have none, PyTorch's layers do",
            "give both the same (model.biases)", parameters(biases=choice),
        )  # fmt: skip


def positions() -> Iterator[Deviation]:
    """How tokens know their order."""
    for ladder, says in (
        ("interleaved", "has sine and cosine in turn in its positions"),
        ("halves", "has all sines of its positions first, then all cosines"),
        ("tensor2tensor", "has all sines first, then all cosines, and i / (d/2 - 1) in the exponent"),
    ):
        yield deviation(
            f"ladder-{ladder}", says, SINUSOID, "sines in the even columns, cosines in the odd ones, exponent 2i/d",
            fields(lambda config: config.positions.kind == "sinusoidal", positions__ladder=ladder),
        )  # fmt: skip
    yield deviation(
        "ladder-by-column", "has the number of the column for i in the exponent: 2c/d in column c", SINUSOID,
        "columns 2i and 2i + 1 have the exponent 2i/d",
        hooks(c.sinusoids_by_column, lambda config: config.positions.kind == "sinusoidal"),
    )  # fmt: skip
    for first in (0, 1, 2):
        yield deviation(
            f"first-position-{first}", f"gives its first token the position {first}", SINUSOID + ", pos from 0",
            "count positions from 0: torch.arange(n)",
            fields(lambda config: config.positions.kind != "none", positions__first=first),
        )  # fmt: skip
    for base in (1e3, 1e4, 1e5, 5e5, 1e6):
        yield deviation(
            f"position-base-{base:.0f}", f"has {base:,.0f} as the base of its wavelengths", f"{SINUSOID}; {ROPE}",
            "take the base of the configuration (positions.base)",
            fields(lambda config: config.positions.kind in ("sinusoidal", "rotary"), positions__base=base),
        )  # fmt: skip

    for kind, says, source, fix in (
        ("learned", "has a table of learned positions", "section 3.5: PE is a formula", "compute the sinusoids"),
        ("sinusoidal", "adds sinusoids for its positions", SINUSOID, "take them out"),
        ("rotary", "turns queries and keys for their positions (RoPE)", ROPE, "take it out"),
    ):
        to = {"kind": kind, "size": 64} if kind == "learned" else {"kind": kind}
        yield deviation(
            f"positions-{kind}", says, source, f"{fix}, or set positions.kind = {kind!r}",
            parameters(lambda config, kind=kind: config.positions.kind != kind, positions=to),  # type: ignore[misc]
        )  # fmt: skip

    def on_sides(factor: float) -> Iterator[Way]:
        yield hooks(c.positions_times(lambda _: factor), adds_positions)
        for side in SIDES:
            yield hooks(c.positions_times(lambda _: factor, side), both(adds_positions, both_stacks))

    yield deviation("position-twice", "adds the position twice", SINUSOID, "add it once", *on_sides(2.0))
    yield deviation(
        "position-missing", "does not use positions", "section 3.5: nothing else tells the order of the tokens",
        "add the position to the embedding", *on_sides(0.0),
        hooks(c.both(c.turned("rotated_q", c.unturned), c.turned("rotated_k", c.unturned)), rotary),
    )  # fmt: skip


def rotations() -> Iterator[Deviation]:
    """What rotary positions turn, and by how much."""
    for convention, pairs in (("halves", "(i, i + d/2)"), ("interleaved", "(2i, 2i + 1)")):
        yield deviation(
            f"rope-{convention}", f"turns the pairs {pairs} of queries and keys", ROPE,
            "pair them as the configuration does (positions.convention), or permute the rows of W_Q and W_K",
            fields(rotary, positions__convention=convention),
        )  # fmt: skip
    for name, says, change in (
        ("keys-unrotated", "does not turn its keys", c.turned("rotated_k", c.unturned)),
        ("queries-unrotated", "does not turn its queries", c.turned("rotated_q", c.unturned)),
        ("values-rotated", "turns its values too", c.turned("v", lambda rotation, x: rotation.turn(x))),
        ("opposite", "turns queries and keys by opposite angles", c.turned("rotated_k", c.backwards)),
    ):
        yield deviation(
            f"rope-{name}", says, ROPE, "turn queries and keys alike, and nothing else", hooks(change, rotary)
        )
