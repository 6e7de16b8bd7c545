"""Which known deviations, one or two at a time, make our machine compute what theirs does."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from torch import Tensor

from glassformer.model.transformer import Transformer
from glassformer.verification.align import Orders
from glassformer.verification.catalogue import CATALOGUE
from glassformer.verification.ours import Machine, Variant, tapped
from glassformer.verification.prints import Prints
from glassformer.verification.probes import Probe
from glassformer.verification.structure import structures

SECONDS = 24.0  # of computing, for what two and more deviations explain
NEAR = 1e-5  # of the first probe's logits: others are worth a look
ROUNDING = 1e-12  # what float64 makes of two ways to compute the same
MUCH = 10  # times less is left to rounding
BEFORE_ORDERS = {"normed", "q", "k", "v", "gate", "up"}
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
    gain: float  # how well its parts fit theirs


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
        return tuple(self._difference(probe.ours(model), i) for i, probe in enumerate(self._probes))

    def _difference(self, ours: Tensor, i: int) -> float:
        return difference(ours.log_softmax(-1) if self._is_normal else ours, self._logits[i], self._probes[i])

    def equals(self, differences: Sequence[float]) -> bool:
        """Whether logits are equal, but for rounding."""
        return max(differences) <= self.tolerance

    def look(self, variant: Variant) -> Found | None:
        """Build a variant and compare it; None where it cannot be built."""
        model = self._machine.model(variant)
        if model is None:
            return None
        tensors = tapped(model, self._probes[0])
        first = self._difference(tensors["logits"], 0)
        others = range(1, len(self._probes))  # which cannot be equal where that is not
        rest = [self._difference(self._probes[i].ours(model), i) if first <= NEAR else math.inf for i in others]
        fit = self._machine.fit(variant)
        return Found(variant, (first, *rest), self._reached(tensors), fit.gain if fit else 0.0)

    def _reached(self, tensors: Mapping[str, Tensor]) -> Reached:
        """Return how far a model's tensors are found among theirs."""
        parts: dict[str, list[tuple[str, Tensor]]] = {}
        for name, tensor in tensors.items():
            parts.setdefault(part_of(name), []).append((name, tensor))
        for n, (part, named) in enumerate(parts.items()):
            there = [len(self._prints.find(tensor)) > 0 for _, tensor in named]
            if not there[-1]:
                last = max((i for i, is_there in enumerate(there) if is_there), default=-1)
                return Reached(n, sum(there), part, named[last + 1][0])
        return Reached(len(parts), 0, None, None)

    def settled(self, found: Found) -> Found:
        """Try the orders in which theirs may have the members of the group where it differs; keep what helps."""
        before = None
        while found is not before:  # then another group may be next
            before = found
            for variant in _with_other_orders(before):
                other = self.look(variant)
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
        bases = self._bases(base)
        best = base
        for one in bases:
            if self.equals(one.differences):
                return self._least([one])
        for one in bases:
            equal = list(self._equal(one.variant))
            if equal:
                return self._least(equal)
        explained = []
        for some in self._alternatives(bases):
            equal, nearest = self._joined(some)
            explained += [self._least(equal)] if equal else []
            best = nearest if _mends(nearest, best) else best
        return min(explained, key=lambda one: len(one[1].variant.ways)) if explained else ([], best)

    def _bases(self, base: Found) -> list[Found]:
        """Return where to begin: as it is, without orders that a deviation may feign, and what theirs is built of."""
        found = [base]
        for variant in (Variant(), *structures(self._machine)):
            other = None if variant in [one.variant for one in found] else self.look(variant)
            if other is not None:
                found.append(self.settled(other) if variant.ways else other)
        return found

    @staticmethod
    def _alternatives(bases: Sequence[Found]) -> list[list[Found]]:
        """Return the bases together; of two ways in which theirs may be built, one in each."""
        plain = [one for one in bases if not one.variant.ways]
        built = [one for one in bases if one.variant.ways]
        return [[*plain, one] for one in built] or [plain]

    def _least(self, equal: Sequence[Found]) -> tuple[list[Found], Found]:
        """Return the equal ones that are alike, and the best of them without what it can do without.

        Where constants are in float32, one more deviation may hide in the rounding: it is one if it leaves much less.
        """
        best = min(equal, key=_left)
        for way in best.variant.ways:
            fewer = self.look(Variant(tuple(one for one in best.variant.ways if one is not way), best.variant.orders))
            if fewer is not None and self._is_like(fewer, best):
                best = fewer
        if _left(best) > ROUNDING:
            finer = [one for one in self._equal(best.variant) if _left(one) < _left(best) / MUCH]
            if finer:
                return self._least(finer)
        return [one for one in equal if self._is_like(one, best)], best

    @staticmethod
    def _is_like(one: Found, best: Found) -> bool:
        return _left(one) <= max(ROUNDING, 3 * _left(best))

    def _equal(self, variant: Variant) -> Iterator[Found]:
        """Yield what equals theirs with one more deviation."""
        for other in _with_one(variant):
            found = self.look(other)
            if found is not None and self.equals(found.differences):
                yield found

    def _joined(self, bases: Sequence[Found]) -> tuple[list[Found], Found]:
        """Join deviations, one after the other, to what has come furthest, as long as there is time."""
        best, waiting, seen = bases[0], list(bases), set()
        ends = time.thread_time() + SECONDS
        while waiting and time.thread_time() < ends:
            first = max(waiting, key=_promise)
            waiting.remove(first)
            nearer = [self.settled(found) for found in self._next(first, ends)]
            equal = [found for found in nearer if self.equals(found.differences)]
            if equal:
                return equal, equal[0]
            for found in nearer:
                key = (frozenset(found.variant.ways), found.variant.orders)
                if key not in seen:
                    seen.add(key)
                    waiting.append(found)
                    best = found if _mends(found, best) else best
        return [], best

    def _next(self, first: Found, ends: float) -> Iterator[Found]:
        """Yield what brings us nearer with one more deviation; the orders in later parts are yet to be settled.

        Where nothing does, the order in the very part may hide it.
        """
        is_nearer = False
        for variant in (first.variant, *_with_other_orders(first)):
            for other in _with_one(variant):
                if time.thread_time() > ends:
                    return
                found = self.look(other)
                if found is None or found.gain < first.gain:  # what is left out of the machine cannot differ
                    continue
                if _further(found, first) or _closer(found, first) or self.equals(found.differences):
                    is_nearer = True
                    yield found
            if is_nearer:
                return


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
    """Yield a variant with each way of each other deviation, and with the other ways of those that it has."""
    taken = {deviation.name for deviation in variant.causes}
    for deviation in CATALOGUE:
        if deviation.name not in taken:
            yield from (variant.and_(deviation, way) for way in deviation.ways)
    for place, (deviation, way) in enumerate(variant.ways):
        for other in deviation.ways:
            if other is not way:
                yield Variant((*variant.ways[:place], (deviation, other), *variant.ways[place + 1 :]), variant.orders)


def _with_other_orders(found: Found) -> Iterator[Variant]:
    """Yield a variant with the other orders of the group where it first differs, after its members have worked."""
    variant, group = found.variant, (found.reached.part or "").rpartition(".")[2]
    if (found.reached.tensor or "").rpartition(".")[2] in BEFORE_ORDERS:
        return
    for name, order in ORDERS:
        fits = name == group or (name == "by_head" and group.endswith("attention"))
        if fits and order != getattr(variant.orders, name):
            orders: Orders = replace(variant.orders, **{name: order})  # type: ignore[arg-type]
            yield Variant(variant.ways, orders)


def _left(one: Found) -> float:
    """Return the largest difference that is left."""
    return max(one.differences)


def _further(one: Found, other: Found) -> bool:
    return _progress(one)[:2] > _progress(other)[:2]


def _closer(one: Found, other: Found) -> bool:
    """Whether some probe that differed is equal now."""
    return sum(d <= NEAR for d in one.differences) > sum(d <= NEAR for d in other.differences)


def _mends(one: Found, other: Found) -> bool:
    """Whether one goes on after the part where the other differs: what reaches its end alone may do so by chance."""
    return one.reached.parts > other.reached.parts and one.reached.tensors > 0


def _promise(one: Found) -> tuple[float, ...]:
    """Say what to go on from: what has come furthest; of these what is built like theirs, in few and broad ways."""
    narrow = sum(deviation.ways.index(way) for deviation, way in one.variant.ways)  # the first way is the broadest
    return (*_progress(one)[:2], one.gain, -len(one.variant.ways), -narrow, -max(one.differences))


def _progress(one: Found) -> tuple[int, int, float]:
    return one.reached.parts, one.reached.tensors, -max(one.differences)
