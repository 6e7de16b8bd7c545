"""Which of their parameters are ours: in words, and as a user may say it in a file.

A file names, for each of our parameters that the proposal has wrong, theirs, and the part of it:

    "encoder.layers.0.self_attention.w_q.weight" = "enc.0.attn.q.weight"
    "encoder.layers.0.self_attention.w_k.weight" = { name = "enc.0.attn.qkv", rows = [64, 128], transposed = true }

`rows` and `columns` are of theirs, the end not included; `transposed`: theirs is (in, out).
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from glassformer.errors import VerifyError, nearest
from glassformer.verification.record import Parameters, Places
from glassformer.verification.report import Mapped

Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]


class Part(BaseModel):
    """A part of one of their parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    rows: Range | None = None
    columns: Range | None = None
    transposed: bool = False


def places_of(
    mapping: Mapping[str, object],
    ours_by_name: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    parameters: Parameters,
) -> dict[str, Places]:
    """Return where the numbers of our parameters stand, as a file says.

    Raises:
        VerifyError: There is no such parameter, or no such part of it, or it has another shape.

    """
    found = {}
    for ours, value in mapping.items():
        if ours not in ours_by_name:
            raise VerifyError(f"the mapping names {ours!r}, which ours does not have{nearest(ours, ours_by_name)}")
        try:
            part = Part.model_validate({"name": value} if isinstance(value, str) else value)
        except ValidationError as error:
            raise VerifyError(f"the mapping of {ours}: {error.errors()[0]['msg']}") from error
        if part.name not in theirs:
            raise VerifyError(
                f"the mapping of {ours}: your model has no parameter {part.name!r}{nearest(part.name, theirs)}"
            )
        start = int(parameters.starts[parameters.names.index(part.name)])
        places = np.arange(start, start + theirs[part.name].numel()).reshape(tuple(theirs[part.name].shape))
        if part.rows is not None:
            places = places[slice(*part.rows)]
        if part.columns is not None:
            places = places[:, slice(*part.columns)]
        found[ours] = places.T if part.transposed else places
        shape = tuple(ours_by_name[ours].shape)
        if found[ours].shape != shape:
            raise VerifyError(
                f"the mapping of {ours}: {ours} has the shape {shape}, but what it names in {part.name} has "
                f"{found[ours].shape}"
            )
    return found


def mapped(ours: str, places: Places | None, theirs: Mapping[str, Tensor], parameters: Parameters) -> Mapped:
    """Say where a parameter of ours stands in theirs."""
    if places is None or not places.size or int(places.max()) < 0:
        return Mapped(ours, "", "not there")
    names = list(
        dict.fromkeys(
            parameters.name_of(int(place))[0] for place in places[places >= 0].flat[:: max(1, places.size // 64)]
        )
    )
    if len(names) > 1:
        return Mapped(ours, ", ".join(names), "joined")
    name = names[0]
    start = int(parameters.starts[parameters.names.index(name)])
    whole = np.arange(start, start + theirs[name].numel()).reshape(tuple(theirs[name].shape))
    if np.array_equal(whole, places):
        return Mapped(ours, name, "as it is")
    if whole.ndim == 2 and np.array_equal(whole.T, places):
        return Mapped(ours, name, "transposed")
    for is_transposed, view in ((False, whole), (True, whole.T if whole.ndim == 2 else whole)):
        part = _part(view, places)
        if part:
            return Mapped(ours, name, f"{part}, transposed" if is_transposed else part)
    return Mapped(ours, name, "a part, in another order")


def _part(whole: Places, places: Places) -> str:
    """Return which rows of a matrix or numbers of a vector these are; "" where they are no run of them."""
    if whole.ndim != places.ndim or whole.shape[1:] != places.shape[1:]:
        return ""
    first = np.flatnonzero((whole == places[:1]).reshape(len(whole), -1).all(axis=1))
    if not len(first) or not np.array_equal(whole[first[0] : first[0] + len(places)], places):
        return ""
    return f"{'rows' if whole.ndim == 2 else 'numbers'} {first[0]} to {first[0] + len(places) - 1}"
