"""What a model computes, seen from below: every operation on tensors, and which parameters it uses.

Nothing is asked of the model: PyTorch's dispatcher tells each operation, whatever classes or functions it stands in.
Parameters are known by their numbers, which are drawn so that no two are equal: so a matrix is found again when it is
transposed, cut out of a larger one, or joined with others.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Places = NDArray[np.int64]  # where each number of a tensor stands among all numbers of all parameters
TORCH = str(Path(torch.__file__).parent)
OWN = str(Path(__file__).parents[1])
# operations that only move numbers; those that return a view say so themselves
MOVES = {"clone", "_to_copy", "_unsafe_view", "contiguous", "cat", "stack", "repeat", "_reshape_copy", "index_select"}


@dataclass(frozen=True)
class Operation:
    """One operation: a result of it, where in the code it stands, and the operations whose results it took."""

    index: int
    name: str  # PyTorch's: "addmm", "_softmax"
    module: str  # path of the submodule in which it ran; "" where there is none
    line: str  # "model.py:57"
    values: Tensor  # a copy, as later operations may work in place
    parents: tuple[int, ...]


@dataclass(frozen=True)
class Use:
    """An operation that takes numbers of parameters."""

    operation: Operation
    argument: int  # which of its tensors holds them
    places: Places
    n_integers: int  # how many of its tensors are indices


class Parameters:
    """All numbers of all parameters in a row, each findable by where it is stored, or by its value."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.names = list(tensors)
        self.starts = np.cumsum([0, *(tensor.numel() for tensor in tensors.values())])
        self._stored: dict[int, Tensor] = {}  # storage -> the place of each number in it; -1: none of ours
        for tensor, start in zip(tensors.values(), self.starts[:-1], strict=True):
            size = tensor.untyped_storage().nbytes() // tensor.element_size()
            index = self._stored.setdefault(storage_of(tensor), torch.full((size,), -1))
            _strided(index, tensor).copy_(torch.arange(tensor.numel()).view(tensor.shape) + int(start))
        flat = [tensor.detach().double().cpu().flatten().numpy() for tensor in tensors.values()]
        self.values: NDArray[np.float64] = np.concatenate(flat) if flat else np.zeros(0)

    def places(self, tensor: Tensor) -> Places | None:
        """Return where each number of a tensor stands, or None: not all of them are parameters'."""
        if not len(self.values) or not tensor.numel() or not tensor.is_floating_point():
            return None
        if storage_of(tensor) in self._stored:
            found: Places = _strided(self._stored[storage_of(tensor)], tensor).numpy().copy()
            return found if (found >= 0).all() else None
        return None if self._by_value(tensor.flatten()[:1]) is None else self._by_value(tensor)

    def _by_value(self, tensor: Tensor) -> Places | None:
        wanted = tensor.detach().double().cpu().numpy()
        order, ranked = self._ranked
        found = np.searchsorted(ranked, wanted).clip(max=len(ranked) - 1)
        return order[found] if (ranked[found] == wanted).all() else None

    @cached_property
    def _ranked(self) -> tuple[Places, NDArray[np.float64]]:
        order = np.argsort(self.values, kind="stable")
        return order, self.values[order]

    def name_of(self, place: int) -> tuple[str, int]:
        """Return the parameter that a number belongs to, and where in it the number stands."""
        i = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.names[i], place - int(self.starts[i])


@dataclass
class Record:
    """All operations of one call, in order, and the uses of parameters among them."""

    operations: list[Operation] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    result: int | None = None  # the operation that made what the call returned; None: it is not known

    @cached_property
    def live(self) -> set[int]:
        """Operations without which the result would be another: some models compute what they never use."""
        if self.result is None:
            return set(range(len(self.operations)))
        found, todo = {self.result}, [self.result]
        while todo:
            new = set(self.operations[todo.pop()].parents) - found
            found |= new
            todo += new
        return found


def record(call: Callable[[], Tensor], parameters: Parameters, module: nn.Module | None = None) -> Record:
    """Call a model once and return what it did.

    Args:
        call: Runs the model.
        parameters: Of the model, with the numbers that it has now.
        module: The model, if it is one: then operations know in which of its submodules they ran.

    """
    recorder = _Recorder(parameters)
    with recorder.submodules(module), torch.no_grad(), recorder:
        out = call()
    recorder.found.result = recorder.maker(out)
    return recorder.found


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, parameters: Parameters) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = Record()
        self._parameters = parameters
        self._weights: set[int] = set()  # storages that hold numbers of parameters and nothing else
        self._others: set[int] = set()  # storages that hold something else
        self._makers: dict[int, int] = {}  # storage -> the operation that wrote it
        self._alive: list[Tensor] = []  # so that no storage is given out twice
        self._path: list[str] = []

    @contextlib.contextmanager
    def submodules(self, module: nn.Module | None) -> Iterator[None]:
        """Keep track of the submodule that runs."""
        handles = []
        for name, part in module.named_modules() if module is not None else ():

            def enter(_: nn.Module, __: object, name: str = name) -> None:
                self._path.append(name)

            def leave(_: nn.Module, __: object, ___: object) -> None:
                self._path.pop()

            handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = [tensor for value in (*args, *(kwargs or {}).values()) for tensor in _tensors(value)]
        holds = [self._holds_weights(tensor) for tensor in inputs]  # before the operation, which may work in place
        places = [
            self._parameters.places(tensor) if is_weight else None
            for tensor, is_weight in zip(inputs, holds, strict=True)
        ]
        parents = tuple(self._makers[key] for key in map(storage_of, inputs) if key in self._makers)
        out = func(*args, **(kwargs or {}))
        results = _tensors(out)
        self._alive += [*inputs, *results]
        name = func._schema.name.split("::")[1]
        is_move = name in MOVES or _is_view(func)
        if is_move and inputs and all(holds):
            self._weights |= {storage_of(result) for result in results}
            return out
        floats = [result for result in results if result.is_floating_point() or result.is_complex()]
        for result in floats:
            values = (torch.view_as_real(result) if result.is_complex() else result).clone()
            operation = Operation(
                len(self.found.operations), name, self._path[-1] if self._path else "", _line(), values, parents
            )
            self.found.operations.append(operation)
            self._others.add(storage_of(result))
            self._makers[storage_of(result)] = operation.index
        if floats:
            first, n_integers = self.found.operations[-len(floats)], sum(not t.is_floating_point() for t in inputs)
            uses = [Use(first, i, at, n_integers) for i, at in enumerate(places) if at is not None]
            self.found.uses += uses
        return out

    def maker(self, tensor: Any) -> int | None:
        """Return the operation that wrote a tensor."""
        return self._makers.get(storage_of(tensor)) if isinstance(tensor, Tensor) else None

    def _holds_weights(self, tensor: Tensor) -> bool:
        key = storage_of(tensor)
        if key in self._weights:
            return True
        if key in self._others or not tensor.is_floating_point():
            return False
        known = self._parameters.places(tensor) is not None and tensor.numel() > 0
        (self._weights if known else self._others).add(key)
        self._alive.append(tensor)
        return known


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _strided(index: Tensor, tensor: Tensor) -> Tensor:
    """Return the part of a storage's index that a tensor sees."""
    return index.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def storage_of(tensor: Tensor) -> int:
    """Return what tells one storage from another, as long as both live."""
    return int(tensor.untyped_storage().data_ptr())


def _is_view(func: Any) -> bool:
    infos = [returned.alias_info for returned in func._schema.returns]
    return bool(infos) and all(info is not None and not info.is_write for info in infos)


def _line() -> str:
    """Return where the user's code is: the innermost frame that is not PyTorch's, unless that is ours, the caller."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, __file__)):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(OWN):
        return ""  # a module of PyTorch's as it comes
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
