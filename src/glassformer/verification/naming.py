"""What is wrong though the numbers agree: parts that do another's work, by their names or their places in a row.

A model whose second layer works first computes what ours does with the layers the other way round. No number shows it;
but weights that are loaded by name, or were trained elsewhere, are then in the wrong place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from glassformer.verification.record import Parameters, Places

BEFORE, AFTER = r"^(?:(?:to|w|in|c|lin|linear|proj)_?)?", r"(?:_?(?:w|proj|lin|linear|net|layer|b))?$"
HINTS = {
    "q": re.compile(BEFORE + "(?:qs?|query|queries)" + AFTER),
    "k": re.compile(BEFORE + "(?:ks?|keys?)" + AFTER),
    "v": re.compile(BEFORE + "(?:vs?|val|values?)" + AFTER),
    "gate": re.compile("gate"),
    "up": re.compile("(?:^|_)up(?:_|$)"),
}
MEMBERS = {"w_q": "q", "w_k": "k", "w_v": "v", "w_gate": "gate", "w_1": "up"}
WORDS = {"q": "W_Q", "k": "W_K", "v": "W_V", "gate": "the gate", "up": "the other branch"}
SWAPS = (("q", "k"), ("k", "v"), ("q", "v"), ("gate", "up"))


@dataclass(frozen=True)
class Place:
    """Where a parameter of ours stands in theirs: the parameter, and the first of its numbers there."""

    name: str
    start: int

    @property
    def numbers(self) -> list[int]:
        """The numbers in its name: of layers, of items in a list."""
        return [int(digits) for digits in re.findall(r"\d+", self.name)]

    def __str__(self) -> str:
        return f"{self.name}, from its number {self.start} on," if self.start else self.name

    @property
    def frame(self) -> str:
        """Its name without its numbers."""
        return re.sub(r"\d+", "#", self.name)


@dataclass(frozen=True)
class Misplaced:
    """Parts that do another's work, and where that is seen."""

    name: str  # as the catalogue names its deviations
    says: str
    fix: str


def misplaced(assignment: Mapping[str, Places], parameters: Parameters, unused: Sequence[str]) -> list[Misplaced]:
    """Return what names say is in the wrong place.

    Args:
        assignment: Where the numbers of our parameters stand in theirs.
        parameters: Theirs.
        unused: Parameters of theirs that no call reads.

    """
    at = {
        name: Place(*parameters.name_of(int(places.flat[0])))
        for name, places in assignment.items()
        if places.size and int(places.flat[0]) >= 0
    }
    return [*_layers(at, unused), *_members(at)]


def _layers(at: Mapping[str, Place], unused: Sequence[str]) -> Iterator[Misplaced]:
    """Layers that are applied in another order, or one in the place of all."""
    stacks: dict[str, dict[str, dict[int, Place]]] = {}  # of each parameter the places in all layers
    for name, place in at.items():
        match = re.match(r"(\w+)\.layers\.(\d+)\.(.*)", name)
        if match:
            stacks.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = place
    left_over = {Place(name, 0).frame for name in unused}
    found: dict[str, list[str]] = {}
    shown = {"one": ", ".join(unused[:2])}
    for stack, rows in stacks.items():
        by_kind: dict[str, list[list[Place]]] = {}
        for row in rows.values():
            places = [row[i] for i in sorted(row)]
            by_kind.setdefault(_kind(places, left_over), []).append(places)
        for kind, several in by_kind.items():
            if len(several) > len(rows) / 2:
                found.setdefault(kind, []).append(stack)
                shown.setdefault(kind, f"{several[0][0].name} works before {several[0][-1].name}")
    for kind, (name, says, fix) in LAYERS.items():
        if kind in found:
            where = f" ({found[kind][0]})" if len(found[kind]) < len(stacks) else ""
            yield Misplaced(name, says.format(shown[kind]) + where, fix)


LAYERS = {
    "reversed": (
        "layers-reversed",
        "applies its last layer first ({})",
        "apply the layers in the order of their numbers",
    ),
    "one": (
        "one-layer-for-all",
        "uses one layer's weights in the place of all; others are never read ({}, …)",
        "call each layer once; a name in a loop may be bound to the first",
    ),
    "shared": (
        "layers-share-weights",
        "has one set of weights for all its layers",
        "give each layer weights of its own",
    ),
}


def _kind(places: Sequence[Place], left_over: set[str]) -> str:
    """Say how the same parameter of all layers stands in theirs."""
    if len(places) < 2 or len({place.frame for place in places}) > 1:
        return ""
    if len(set(places)) == 1:
        return "one" if places[0].frame in left_over else "shared"
    changing = [
        set(column) for column in zip(*(place.numbers for place in places), strict=True) if len(set(column)) > 1
    ]
    numbers = [place.numbers for place in places]
    return "reversed" if len(changing) == 1 and numbers == sorted(numbers, reverse=True) else ""


def _members(at: Mapping[str, Place]) -> Iterator[Misplaced]:
    """Queries, keys and values, or gate and up, that do one another's work: everywhere, or in one kind of attention."""
    groups: dict[str, dict[str, Place]] = {}
    for name, place in at.items():
        parent, _, leaf = name.removesuffix(".weight").rpartition(".")
        if name.endswith(".weight") and leaf in MEMBERS:
            groups.setdefault(parent, {})[MEMBERS[leaf]] = place
    found: dict[tuple[str, str], dict[str, tuple[Place, Place]]] = {}
    for kind in ("self_attention", "cross_attention", "ffn"):
        alike = [group for path, group in groups.items() if path.endswith(kind)]
        turned = {}
        for one, other in SWAPS:
            pairs = [(group[one], group[other]) for group in alike if one in group and other in group]
            wrong = [pair for pair in pairs if _swapped(one, pair[0], other, pair[1])]
            if len(wrong) > len(pairs) / 2:
                turned[one, other] = wrong[0]
        if len(turned) == 3:
            turned = {("q", "v"): turned["q", "v"]}  # the first and the last of three: so all pairs stand the wrong way
        for pair, places in turned.items():
            found.setdefault(pair, {})[kind] = places
    for (one, other), kinds in found.items():
        first, second = next(iter(kinds.values()))
        only = f" in {next(iter(kinds)).replace('_', '-')}" if len(kinds) == 1 and one != "gate" else ""
        says = (
            f"has {WORDS[one]} and {WORDS[other]} the other way round{only}: {first} does the work of {WORDS[one]}, "
            f"{second} that of {WORDS[other]}"
        )
        fix = "swap the two where they are used, or where they are loaded"
        yield Misplaced(f"{one}-and-{other}-swapped", says, fix)


def _swapped(one: str, first: Place, other: str, second: Place) -> bool:
    """Whether names say that the first is the other and the second the one; without such names, their order does."""
    said = (_hint(first.name), _hint(second.name))
    if said[0] != said[1]:
        return said[0] in (other, None) and said[1] in (one, None)  # one telling name is enough
    if one == "gate":
        return False  # no order of these two is the usual one
    if first.name == second.name:
        return first.start > second.start
    return first.frame == second.frame and first.numbers > second.numbers


def _hint(name: str) -> str | None:
    """Return which member the last telling word of a name says."""
    for word in reversed(name.lower().split(".")):
        for member, pattern in HINTS.items():
            if pattern.search(word):
                return member
    return None
