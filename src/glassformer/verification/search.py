"""Which known deviations, one or two at a time, make our machine compute what theirs does."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from torch import Tensor

from glassformer.model.transformer import Transformer
from glassformer.verification.align import Orders
from glassformer.verification.catalogue import CATALOGUE
from glassformer.verification.ours import Machine, Variant, tapped
from glassformer.verification.prints import Prints
from glassformer.verification.probes import Probe

SECONDS = 25.0  # for what two and more deviations explain
MOST = 4  # deviations at a time
FOLLOWED = 12  # single deviations that bring us nearer, each to be joined with all others
ORDERS = [
    *(("self_attention", order) for order in permutations(range(3))),
    *(("cross_attention", order) for order in permutations(range(3))),
    ("ffn", (0, 1)), ("ffn", (1, 0)), ("by_head", False), ("by_head", True),
]  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """How far a variant is like theirs: whole parts of the machine, in order, and then tensors of the next part."""

    parts: int
    tensors: int
    part: str | None  # the first that differs; None: all are alike
    tensor: str | None  # the first tensor of it that theirs does not have


@dataclass(frozen=True)
class Found:
    """A variant, and how far from theirs its logits are, at most, on each probe."""

    variant: Variant
    differences: tuple[float, ...]
    reached: Reached


class Search:
    """Compares variants of our machine with theirs on some probes."""

    def __init__(
        self,
        machine: Machine,
        probes: Sequence[Probe],
        logits: Sequence[Tensor],
        prints: Prints,
        tolerance: float,
        *,
        is_normal: bool = False,
    ) -> None:
        """Take what is known of theirs; `is_normal`: their logits are log-probabilities."""
        self._is_normal = is_normal
        self._machine, self._probes, self._logits, self._prints = machine, probes, logits, prints
        self.tolerance = tolerance

    def differences(self, model: Transformer) -> tuple[float, ...]:
        """Return the largest difference of the logits on each probe, as a share of the largest logit."""
        found = []
        for probe, theirs in zip(self._probes, self._logits, strict=True):
            ours = probe.ours(model)
            found.append(difference(ours.log_softmax(-1) if self._is_normal else ours, theirs, probe))
        return tuple(found)

    def equals(self, differences: Sequence[float]) -> bool:
        """Whether logits are equal, but for rounding."""
        return max(differences) <= self.tolerance

    def look(self, variant: Variant) -> Found | None:
        """Build a variant and compare it; None where it cannot be built."""
        model = self._machine.model(variant)
        if model is None:
            return None
        differences = self.differences(model)
        reached = self.reached(model)
        return Found(variant, differences, reached)

    def reached(self, model: Transformer) -> Reached:
        """Return how far a model's tensors are found among theirs."""
        parts: dict[str, list[tuple[str, Tensor]]] = {}
        for name, tensor in tapped(model, self._probes[0]).items():
            parts.setdefault(part_of(name), []).append((name, tensor))
        for n, (part, tensors) in enumerate(parts.items()):
            there = [len(self._prints.find(tensor)) > 0 for _, tensor in tensors]
            if not there[-1]:
                last = max((i for i, is_there in enumerate(there) if is_there), default=-1)
                return Reached(n, sum(there), part, tensors[last + 1][0])
        return Reached(len(parts), 0, None, None)

    def settled(self, found: Found) -> Found:
        """Try the orders in which theirs may have the members of a group; keep what reaches further."""
        before = None
        while found is not before:  # one order may show only when another is right
            before = found
            for name, value in ORDERS:
                if getattr(found.variant.orders, name) == value:
                    continue
                orders: Orders = replace(found.variant.orders, **{name: value})  # type: ignore[arg-type]
                other = self.look(Variant(found.variant.ways, orders))
                if other is not None and _further(other, found):
                    found = other
        return found

    def base(self) -> Found:
        """Return our machine as it is, with the members of groups in their order in theirs, as far as that shows."""
        plain = self.look(Variant())
        assert plain is not None
        return self.settled(plain)

    def run(self, base: Found) -> tuple[list[Found], Found]:
        """Search; return what equals theirs, with as few deviations as can be, and what comes nearest."""
        if self.equals(base.differences):
            return [base], base
        plain = base if base.variant == Variant() else self.look(Variant())
        assert plain is not None
        bases = [base] if base is plain else [base, plain]  # an order that seems to fit may be a deviation's doing
        for one in bases:
            equal = list(self._equal(_with_one(one.variant)))
            if equal:
                return equal, equal[0]
        for one in bases:
            singles = [found for found in map(self.look, _with_one(one.variant)) if found is not None]
            equal, best = self._joined(one, singles)
            if equal:
                return equal, best
        return [], best

    def _equal(self, variants: Iterable[Variant], ends: float = math.inf) -> Iterator[Found]:
        """Yield those of the variants that equal theirs, as many as can be tried until some time."""
        for variant in variants:
            if time.monotonic() > ends:
                return
            model = self._machine.model(variant)
            if model is not None and self.equals(differences := self.differences(model)):
                yield Found(variant, differences, self.reached(model))

    def _joined(self, base: Found, singles: Sequence[Found]) -> tuple[list[Found], Found]:
        """Join deviations that bring us nearer with all others, and those with all others again."""
        ends = time.monotonic() + SECONDS
        nearer = [one for one in singles if _further(one, base) or _closer(one, base)]
        best, followed = base, [self.settled(one) for one in _best(nearer, FOLLOWED)]
        for _ in range(MOST - 1):
            followed = _best(followed, FOLLOWED)
            for first in followed:
                equal = [first] if self.equals(first.differences) else list(self._equal(_with_one(first.variant), ends))
                if equal:
                    return equal, equal[0]
            if followed and _mends(followed[0], best):
                best = followed[0]
            nexts = []
            for second in (second for first in followed for second in self._next(first, ends)):
                nexts.append(self.settled(second))
                if self.equals(nexts[-1].differences):
                    return nexts[-1:], nexts[-1]
            followed = nexts
        return [], best

    def _next(self, first: Found, ends: float) -> Iterator[Found]:
        """Yield what mends whole parts with one more deviation; the orders in later parts are yet to be settled."""
        for variant in _with_one(first.variant):
            if time.monotonic() > ends:
                return
            found = self.look(variant)
            if found is not None and found.reached.parts > first.reached.parts:
                yield found


def difference(ours: Tensor, theirs: Tensor, probe: Probe) -> float:
    """Return the largest difference of two logits at real places, as a share of the largest logit."""
    if ours.shape != theirs.shape:
        return math.inf
    found = (ours - theirs)[probe.real].abs().max() / theirs[probe.real].abs().max().clamp(min=1e-30)
    return float(found.nan_to_num(math.inf))


def part_of(name: str) -> str:
    """Return the part of the machine that a tensor belongs to: "encoder.layers.0.self_attention"."""
    words = name.split(".")
    if "layers" in words:
        at = words.index("layers")
        leaf = words[at + 2].removesuffix("_residual")
        return ".".join([*words[: at + 2], leaf]) if leaf != "output" else ".".join([*words[: at + 2], "ffn"])
    if len(words) > 1:
        return ".".join(words[:2])
    return "memory" if name == "memory" else "output"


def _with_one(variant: Variant) -> Iterator[Variant]:
    """Yield a variant with each way of each other deviation."""
    taken = {deviation.name for deviation in variant.causes}
    for deviation in CATALOGUE:
        if deviation.name not in taken:
            yield from (variant.and_(deviation, way) for way in deviation.ways)


def _further(one: Found, other: Found) -> bool:
    return _progress(one)[:2] > _progress(other)[:2]


def _closer(one: Found, other: Found) -> bool:
    """Whether some probe that differed is equal now."""
    return sum(d <= 1e-6 for d in one.differences) > sum(d <= 1e-6 for d in other.differences)


def _mends(one: Found, other: Found) -> bool:
    """Whether one goes on after the part where the other differs: what reaches its end alone may do so by chance."""
    return one.reached.parts > other.reached.parts and one.reached.tensors > 0


def _best(found: Sequence[Found], n: int) -> list[Found]:
    return sorted(found, key=_progress, reverse=True)[:n]


def _progress(one: Found) -> tuple[int, int, float]:
    return one.reached.parts, one.reached.tensors, -max(one.differences)
