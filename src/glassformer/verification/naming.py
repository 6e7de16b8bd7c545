"""What is wrong though the numbers agree: parts that do another's work, by their names or their places in a row.

A model whose second layer works first computes what ours does with the layers the other way round. No number shows it;
but weights that are loaded by name, or were trained elsewhere, are then in the wrong place.
"""

import re
from collections import Counter
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
    kinds: Counter[str] = Counter()
    rows: dict[str, dict[int, Place]] = {}
    for name, place in at.items():
        match = re.match(r"(.*layers\.)(\d+)(\..*)", name)
        if match:
            rows.setdefault(f"{match[1]}#{match[3]}", {})[int(match[2])] = place
    first = last = ""
    left_over = {Place(name, 0).frame for name in unused}
    for row in rows.values():
        places = [row[i] for i in sorted(row)]
        kind = _kind(places, left_over)
        kinds[kind] += 1
        if kind == "reversed":
            first, last = places[0].name, places[-1].name
    if kinds["reversed"] > len(rows) / 2:
        says = f"applies its last layer first ({first} works before {last})"
        yield Misplaced("layers-reversed", says, "apply the layers in the order of their numbers")
    if kinds["one"] > len(rows) / 2:
        says = f"uses one layer's weights in the place of all; others are never read ({', '.join(unused[:2])}, …)"
        yield Misplaced("one-layer-for-all", says, "call each layer once; a name in a loop may be bound to the first")
    if kinds["shared"] > len(rows) / 2:
        says = "has one set of weights for all its layers"
        yield Misplaced("layers-share-weights", says, "give each layer weights of its own")


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
    """Queries, keys and values, or gate and up, that do one another's work."""
    groups: dict[str, dict[str, Place]] = {}
    for name, place in at.items():
        parent, _, leaf = name.removesuffix(".weight").rpartition(".")
        if name.endswith(".weight") and leaf in MEMBERS:
            groups.setdefault(parent, {})[MEMBERS[leaf]] = place
    swapped = {}
    for one, other in SWAPS:
        pairs = [(group[one], group[other]) for group in groups.values() if one in group and other in group]
        turned = [pair for pair in pairs if _swapped(one, pair[0], other, pair[1])]
        if len(turned) > len(pairs) / 2:
            swapped[one, other] = turned[0]
    if len(swapped) == len([pair for pair in SWAPS if "v" in pair or "q" in pair]):
        swapped = {("q", "v"): swapped["q", "v"]}  # the first and the last of three: so all three stand the wrong way
    for (one, other), (first, second) in swapped.items():
        says = (
            f"has {WORDS[one]} and {WORDS[other]} the other way round: {first} does the work of {WORDS[one]}, "
            f"{second} that of {WORDS[other]}"
        )
        fix = "swap the two where they are used, or where they are loaded"
        yield Misplaced(f"{one}-and-{other}-swapped", says, fix)


def _swapped(one: str, first: Place, other: str, second: Place) -> bool:
    """Whether names say that the first is the other and the second the one; without such names, their order does."""
    said = (_hint(first.name), _hint(second.name))
    if None not in said and said[0] != said[1]:
        return said == (other, one)
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
