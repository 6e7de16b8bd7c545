"""The parts of a model that hold weights, in the order in which they work: tables, products, norms, added vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from glassformer.verification.record import MOVES, Operation, Places, Record, Use

Kind = Literal["table", "linear", "norm", "shift"]
LOOKUPS = {"embedding", "index", "index_select", "gather", "take"}
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "linear": 0, "matmul": 0}  # which argument is the left one
NORMS = {"native_layer_norm", "_fused_rms_norm"}


@dataclass(frozen=True)
class Unit:
    """One part that holds weights, where it works."""

    kind: Kind
    operation: Operation  # its last one
    weight: Places  # table (V, D); linear (out, in); norm (D,) or (1,), γ; shift (D,), or (T, D) of positions
    bias: Places | None = None  # linear (out,); norm (D,), β

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its weight."""
        return self.weight.shape


def units(record: Record) -> list[Unit]:
    """Return the parts of a model in the order in which a call used them."""
    found: list[Unit] = []
    by_operation: dict[int, list[Use]] = {}
    for use in record.uses:
        if use.operation.index not in record.live:
            continue
        by_operation.setdefault(use.operation.index, []).append(use)
    for uses in by_operation.values():
        unit = _unit(uses)
        if unit is None:
            continue
        before = _added_to(unit, found, record.operations)
        if before is None:
            found.append(unit)
        else:
            found[before] = replace(found[before], bias=unit.weight, operation=unit.operation)
    return found


def _unit(uses: Sequence[Use]) -> Unit | None:
    """Make a part of what one operation takes, or nothing, where that is no part of a Transformer."""
    operation, name = uses[0].operation, uses[0].operation.name.rstrip("_")
    at = {use.argument: use.places for use in uses}
    if name in LOOKUPS:
        table = uses[0].places
        return Unit("table", operation, table) if table.ndim == 2 and uses[0].n_integers else None
    if name in PRODUCTS:
        left = PRODUCTS[name]
        bias = _vector(at[0]) if left and 0 in at else None
        if left in at:
            return Unit("linear", operation, _matrix(at[left], is_left=True), bias)
        if left + 1 in at:
            return Unit("linear", operation, _matrix(at[left + 1], is_left=name == "linear"), bias)
    if name == "convolution" and 1 in at and at[1].ndim == 3 and at[1].shape[2] == 1:
        return Unit("linear", operation, at[1][:, :, 0], at.get(2))
    if name in NORMS and 1 in at:
        return Unit("norm", operation, at[1], at.get(2))
    if name in ("mul", "add", "sub"):
        places = _vector(uses[0].places)
        if places is not None:
            return Unit("norm" if name == "mul" else "shift", operation, places)
    return None


def _matrix(places: Places, *, is_left: bool) -> Places:
    """Turn the operand of a product into (out, in)."""
    if places.ndim == 3:
        if (places == places[:1]).all():  # one matrix, spread out over a batch
            places = places[0]
        elif is_left:
            return places.reshape(-1, places.shape[2])  # a matrix a head, side by side
        else:
            return places.transpose(0, 2, 1).reshape(-1, places.shape[1])
    return places if is_left else places.T


def _vector(places: Places) -> Places | None:
    """Return what is added or multiplied without its axes of size 1 and without repetitions: (D,) or (T, D)."""
    places = np.atleast_1d(places.squeeze())
    while places.ndim > 1 and (places == places[:1]).all():
        places = places[0]
    return places if places.ndim <= 2 else None


def _added_to(unit: Unit, found: Sequence[Unit], operations: Sequence[Operation]) -> int | None:
    """Return the place of the part whose bias an added vector is, or None."""
    if unit.kind != "shift":
        return None
    for i in range(len(found) - 1, max(-1, len(found) - 4), -1):
        fits = found[i].kind in ("linear", "norm") and found[i].bias is None and unit.shape == found[i].shape[:1]
        if fits and _comes_from(unit.operation, found[i].operation.index, operations):
            return i
    return None


def _comes_from(operation: Operation, index: int, operations: Sequence[Operation]) -> bool:
    """Whether an operation works on the result of another one, perhaps moved or divided by something."""
    todo = [parent for parent in operation.parents if parent >= index]
    while todo:
        one = todo.pop()
        if one == index:
            return True
        if operations[one].name.rstrip("_") in MOVES | {"div", "view"}:
            todo += [parent for parent in operations[one].parents if parent >= index]
    return False
