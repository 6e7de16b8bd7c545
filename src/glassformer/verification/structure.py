"""What theirs is built of, before any number is compared: other sizes, norms in other places, a gate, more matrices."""

from collections.abc import Collection, Sequence

from glassformer.verification.catalogue import CATALOGUE
from glassformer.verification.catalogue_sizes import sizes
from glassformer.verification.deviation import Deviation, Way
from glassformer.verification.ours import Machine, Variant

ROUNDS = 3  # one size may show only when another is right


def structures(machine: Machine) -> list[Variant]:
    """Return the variants whose parts fit theirs best.

    There may be two: with a norm on the embedding, a post-norm machine has the parts of a pre-norm one, in their order.
    """
    known = (*CATALOGUE, *sizes(machine.config, machine.theirs))
    ways = [(deviation, way) for deviation in known for way in deviation.ways if way.makes_parameters]
    first = _grown(machine, ways, ())
    if not first.ways:
        return []
    second = _grown(machine, ways, first.causes[:1])
    fits = [machine.fit(variant) for variant in (first, second)]
    return [first, second] if fits[0] == fits[1] else [first]


def _grown(machine: Machine, ways: Sequence[tuple[Deviation, Way]], without: Collection[Deviation]) -> Variant:
    """Join ways, each of which fits better than all before it."""
    variant = Variant()
    fit = machine.fit(variant)
    for _ in range(ROUNDS):
        if fit is None or fit.is_whole:
            break
        start = variant
        left = [pair for pair in ways if pair[0] not in (*start.causes, *without)]
        fits = [(machine.fit(start.and_(*pair)), pair) for pair in left]
        better = [(one.gain, pair) for one, pair in fits if one is not None and one.gain > fit.gain]
        for _, pair in sorted(better, key=lambda one: one[0], reverse=True):
            other = None if pair[0] in variant.causes else machine.fit(variant.and_(*pair))
            if other is not None and other.gain > fit.gain:
                variant, fit = variant.and_(*pair), other
        if variant is start:
            break
    return variant
