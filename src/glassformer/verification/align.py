"""Which part of theirs is which of ours: two sequences of parts, aligned by kind, shape and order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.verification.record import Places
from glassformer.verification.units import Unit

# members of ours that read the same rows, which others compute in another order, stacked, or head by head
GROUPS = {"w_q": 0, "w_k": 1, "w_v": 2, "w_1": 0, "w_gate": 1}
SKIPPED = -1.5  # a part of one side that the other has not
MATCHED = 4.0
ALIKE = 0.5  # both with a bias, or both without
SWAPPED = (2, 2)  # two tables whose rows are fetched in the other order


@dataclass(frozen=True)
class Ours:
    """A part of our model with the names of its parameters."""

    unit: Unit
    weight: str
    bias: str | None

    @property
    def path(self) -> str:
        """The module that has the weight."""
        return self.weight.rpartition(".")[0]

    @property
    def group(self) -> str:
        """The attention or feed-forward network of which it is a member; "" for parts that stand alone."""
        parent, _, leaf = self.path.rpartition(".")
        return parent if leaf in GROUPS else ""


@dataclass(frozen=True)
class Orders:
    """In which order theirs has the members of a group: member `self_attention[p]` of ours is their p-th."""

    self_attention: tuple[int, ...] = (0, 1, 2)
    cross_attention: tuple[int, ...] = (0, 1, 2)
    ffn: tuple[int, ...] = (0, 1)
    by_head: bool = False  # in a stack the rows of one head stand together, instead of those of one member

    def of(self, group: str, n: int) -> tuple[int, ...]:
        """Return the order in a group of n members."""
        order: tuple[int, ...] = getattr(self, group.rpartition(".")[2])
        return order if len(order) == n else tuple(range(n))


@dataclass
class Alignment:
    """Pairs of parts, (places of ours, places of theirs), and what has no partner."""

    ours: Sequence[Ours]
    theirs: Sequence[Unit]
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]
    gain: float = 0.0  # the more, the better do they fit

    @property
    def is_whole(self) -> bool:
        """Whether every part has a partner of its own kind, and so have all biases."""
        return self.gain == (MATCHED + ALIKE) * len(self.ours)

    @property
    def missing(self) -> list[Ours]:
        """Parts of ours that theirs has not."""
        found = {i for mine, _ in self.pairs for i in mine}
        return [ours for i, ours in enumerate(self.ours) if i not in found]

    @property
    def extra(self) -> list[Unit]:
        """Parts of theirs that ours has not."""
        found = {j for _, others in self.pairs for j in others}
        return [unit for j, unit in enumerate(self.theirs) if j not in found]


@dataclass
class Assignment:
    """For each parameter of ours, where its numbers stand in theirs; -1: nowhere."""

    places: dict[str, Places] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)  # one matrix of ours that is several in theirs

    def put(self, name: str, places: Places) -> None:
        """Note where a parameter stands; the first use of a shared one counts."""
        if name in self.places and not np.array_equal(self.places[name], places):
            self.conflicts.add(name)
        self.places.setdefault(name, places)


def align(ours: Sequence[Ours], theirs: Sequence[Unit], d_k: int) -> Alignment:
    """Align two sequences of parts so that as many as possible are alike, in order (Needleman and Wunsch 1970)."""
    n, m = len(ours), len(theirs)
    best = np.full((n + 1, m + 1), -np.inf)
    step: dict[tuple[int, int], tuple[int, int]] = {}
    best[0, 0] = 0.0
    for i in range(n + 1):
        for j in range(m + 1):
            if best[i, j] == -np.inf:
                continue
            for di, dj, gain in _steps(ours[i : i + 3], theirs[j:], d_k):
                total, is_left_out = best[i, j] + gain, (di, dj) == (0, 1)  # of several alike, the first is ours
                if total > best[i + di, j + dj] or (is_left_out and total == best[i + di, j + dj]):
                    best[i + di, j + dj] = total
                    step[i + di, j + dj] = (di, dj)
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i, j = n, m
    while i or j:
        di, dj = step[i, j]
        if (di, dj) == SWAPPED:
            pairs += [((i - 1,), (j - 2,)), ((i - 2,), (j - 1,))]
        elif di and dj:
            pairs.append((tuple(range(i - di, i)), tuple(range(j - dj, j))))
        i, j = i - di, j - dj
    return Alignment(ours, theirs, pairs[::-1], float(best[n, m]))


def _steps(ours: Sequence[Ours], theirs: Sequence[Unit], d_k: int) -> Iterator[tuple[int, int, float]]:
    """Yield how many parts of both may go together next, and what that is worth."""
    if ours:  # an output projection is the one of four equal matrices that can be left out
        yield 1, 0, SKIPPED + 0.5 * ours[0].path.endswith("w_o")
    if theirs:
        yield 0, 1, SKIPPED
    if not ours or not theirs:
        return
    gain = _likeness(ours[0], theirs[0])
    if gain:
        yield 1, 1, gain
    if ours[0].unit.kind == "table" and len(ours) > 1 and len(theirs) > 1:
        swapped = _likeness(ours[0], theirs[1]), _likeness(ours[1], theirs[0])
        if all(swapped):
            yield *SWAPPED, sum(swapped)
    if not ours[0].group or theirs[0].kind != "linear":
        return
    group = [one for one in ours if one.group == ours[0].group]
    for k in range(1, len(group) + 1):
        rows, columns = sum(one.unit.shape[0] for one in group[:k]), group[0].unit.shape[1]
        if k > 1 and theirs[0].shape == (rows, columns):
            yield k, 1, sum(MATCHED + _same_bias(one, theirs[0]) for one in group[:k])
        h = rows // d_k  # a matrix for each head
        fits = rows == h * d_k and 1 < h <= len(theirs) and h > k
        if fits and all(unit.kind == "linear" and unit.shape == (d_k, columns) for unit in theirs[:h]):
            yield k, h, sum(MATCHED + _same_bias(one, theirs[0]) for one in group[:k])


def _likeness(mine: Ours, theirs: Unit) -> float:
    """Return what it is worth to take a part for one of ours; 0: it cannot be."""
    ours = mine.unit
    if ours.kind == theirs.kind and ours.shape == theirs.shape:
        return MATCHED + _same_bias(mine, theirs)
    if ours.kind != "table" or len(theirs.shape) != 2:
        return 0.0
    if theirs.kind == "linear" and ours.shape == theirs.shape[::-1]:
        return MATCHED - 1  # rows fetched by a product
    if ours.shape[1] != theirs.shape[1] or "position" not in mine.weight:
        return 0.0
    return MATCHED - 1 if theirs.kind in ("table", "shift") else 0.0  # of positions, as many as there may be


def _same_bias(ours: Ours, theirs: Unit) -> float:
    return ALIKE if (ours.bias is None) == (theirs.bias is None) else 0.0


def assign(alignment: Alignment, orders: Orders, d_k: int) -> Assignment:
    """Say for each parameter of ours where its numbers stand in theirs."""
    found, groups = Assignment(), dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]()
    for mine, others in alignment.pairs:
        ours = alignment.ours[mine[0]]
        if ours.group:
            groups.setdefault(ours.group, []).append((mine, others))
            continue
        unit = alignment.theirs[others[0]]
        weight = unit.weight
        if ours.unit.kind == "table":
            given = weight.T if unit.kind == "linear" else weight[: ours.unit.shape[0]]
            weight = np.full(ours.unit.shape, -1)
            weight[: len(given)] = given
        found.put(ours.weight, weight)
        if ours.bias is not None and unit.bias is not None:
            found.put(ours.bias, unit.bias)
    for group, pairs in groups.items():
        _assign_group(
            alignment, orders.of(group, sum(len(mine) for mine, _ in pairs)), pairs, found, d_k, orders.by_head
        )
    return found


def _assign_group(
    alignment: Alignment,
    order: tuple[int, ...],
    pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    found: Assignment,
    d_k: int,
    by_head: bool,
) -> None:
    """Deal out the matrices of a group to its members, in an order."""
    members = [alignment.ours[i] for mine, _ in pairs for i in mine]
    members = [members[i] for i in order]
    start = 0
    for mine, others in pairs:
        taken, units = members[start : start + len(mine)], [alignment.theirs[j] for j in others]
        start += len(mine)
        weight = np.concatenate([unit.weight for unit in units])
        biases = [unit.bias for unit in units]
        bias = (
            None if any(one is None for one in biases) else np.concatenate([one for one in biases if one is not None])
        )
        sizes = [one.unit.shape[0] for one in taken]
        if sum(sizes) != len(weight):
            continue  # members of different sizes, in another order
        rows = _rows(sizes, d_k, by_head=by_head)
        for member, at in zip(taken, rows, strict=True):
            found.put(member.weight, weight[at])
            if member.bias is not None and bias is not None:
                found.put(member.bias, bias[at])


def _rows(sizes: Sequence[int], d_k: int, *, by_head: bool) -> list[Places]:
    """Return which rows of a stack belong to each member."""
    if not by_head or len(sizes) == 1:
        ends = np.cumsum(sizes)
        return [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    groups = min(sizes) // d_k  # the heads of keys; with each stand the query heads that it serves
    index = np.arange(sum(sizes)).reshape(groups, -1)
    ends = np.cumsum([size // groups for size in sizes])
    return [index[:, end - size // groups : end].ravel() for size, end in zip(sizes, ends, strict=True)]


def named(units: Sequence[Unit], names: Mapping[int, str]) -> list[Ours]:
    """Give the parts of our model their parameters' names; `names` has one for the first number of each parameter."""
    return [
        Ours(
            unit,
            names[int(unit.weight.flat[0])],
            None if unit.bias is None else names[int(unit.bias.flat[0])],
        )
        for unit in units
    ]
