"""The runs that are looked at: their weights at each snapshot, and the tensors of the inputs, kept while there is room.

Nothing here is computed twice while it is in use: a page asks for many tensors of one input.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar

from torch import Tensor

from glassformer.checkpoint import load_weights
from glassformer.errors import DataError
from glassformer.inspect.shapes import Shape, shapes
from glassformer.inspect.trace import Traced, UnknownTensorError, taps, trace
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, load

ROOM = 256 * 2**20  # bytes of tensors that are kept
WHOLE = 32 * 2**20  # a forward pass of at most so many bytes is recorded as a whole, a larger one layer by layer
MODELS = 3  # snapshots that are kept
INPUTS = 64  # texts of which the ids are kept, and what the model wrote
# the most likely token each time, even if the run's own settings say otherwise
GREEDY = {"beam_size": 1, "n_best": 1, "sample": False, "temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}
LONGEST = 2048  # tokens of one side

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by key; those that were used least lately leave when there is no more room."""

    def __init__(self, room: float, size: Callable[[Value], float]) -> None:
        self.room, self._size = room, size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, which is made if it is not there."""
        if key not in self._values:
            self._values[key] = make()
            while len(self._values) > 1 and sum(map(self._size, self._values.values())) > self.room:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


@dataclass(frozen=True)
class Input:
    """What a model reads, as ids; None where it has no such side."""

    source: tuple[int, ...] | None
    target: tuple[int, ...] | None
    n_cut: int = 0  # tokens of the source that the run leaves out, as it learnt to


class Shelved:
    """One run, with its snapshots."""

    def __init__(self, run: Run, name: str, files: RunFiles | None = None, *, example: str = "") -> None:
        """Take a run; `example` is the text that the page begins with, instead of the one of its task."""
        self.run, self.name, self.files, self.example = run, name, files, example
        self._models: Kept[Transformer] = Kept(MODELS, lambda _: 1)
        self._tensors: Kept[dict[str, Traced]] = Kept(
            ROOM, lambda tensors: sum(one.values.numel() * one.values.element_size() for one in tensors.values())
        )
        self._inputs: Kept[Input] = Kept(INPUTS, lambda _: 1)
        self._shapes: Kept[list[Shape]] = Kept(INPUTS, lambda _: 1)
        self.lock = RLock()  # a page asks for several things at once, and hooks see whatever passes

    @cached_property
    def snapshots(self) -> list[int]:
        """The steps of training of which the weights are there."""
        return [] if self.files is None else self.files.snapshot_steps()

    def model(self, snapshot: int | None) -> Transformer:
        """Return the model as it is in the end, or as it was after a step of its training.

        Raises:
            DataError: There is no such snapshot.
            CheckpointError: It is damaged.

        """
        if snapshot is None:
            return self.run.model
        if snapshot not in self.snapshots:
            there = ", ".join(map(str, self.snapshots)) or "none"
            raise DataError(f"{self.name} has no snapshot of step {snapshot}; there are: {there}")

        def made() -> Transformer:
            assert self.files is not None
            model = Transformer(self.run.config)
            load_weights(model, self.files.snapshot(snapshot))
            return model.to(self.run.model.device).eval()

        with self.lock:
            return self._models.get(snapshot, made)

    def input(self, source: str, target: str | None = None, snapshot: int | None = None) -> Input:
        """Turn texts into what the model reads.

        Args:
            source: The source, or the text that a decoder alone reads.
            target: What the decoder of an encoder–decoder has so far; None: what the model writes, greedily.
            snapshot: Which of its models writes.

        Raises:
            DataError: A text is blank, too long, or cannot be read; or a target is given to a model that has none.

        """
        with self.lock:
            return self._inputs.get((source, target, snapshot), lambda: self._read(source, target, snapshot))

    def _read(self, source: str, target: str | None, snapshot: int | None) -> Input:
        run = self.run
        model = self.model(snapshot)
        if run.config.model.kind != "encoder-decoder" and target is not None:
            raise DataError("only an encoder–decoder has a target beside its source")
        if run.config.model.kind == "encoder":
            ids, n_cut = run.read(source)
            self._check(ids, "text")
            return Input(tuple(ids), None, n_cut)
        writer = run.writer(GREEDY)
        writer.models = [model]
        prompt = writer.prompt(source)
        self._check([] if prompt.is_blank else [*(prompt.source or prompt.read)], "text")
        if prompt.source is None:
            return Input(None, tuple(prompt.read))
        if target is None:  # as many as can be read again: the last token that is written is not
            longest = min(LONGEST, run.config.model.longest or LONGEST)
            written = writer.write([prompt])[0][0].ids[: longest - len(prompt.read)]
        else:
            written = run.tokenizer.encode(target)
        self._check([*prompt.read, *written], "target")
        return Input(tuple(prompt.source), (*prompt.read, *written), prompt.n_cut)

    def shapes(self, read: Input) -> list[Shape]:
        """Return the shape of every tensor of an input."""
        return self.shapes_of(len(read.source or ()) or 1, len(read.target or ()) or 1)

    def shapes_of(self, n_source: int, n_target: int) -> list[Shape]:
        """Return the shape of every tensor for given lengths.

        Raises:
            DataError: A length is past the end of the model's learned positions, or more than the explorer shows.

        """
        if not (1 <= n_source <= LONGEST and 1 <= n_target <= LONGEST):
            raise DataError(f"{n_source} and {n_target} tokens are not to be had: 1 to {LONGEST} of each side")
        with self.lock:
            return self._shapes.get(
                (n_source, n_target),
                lambda: shapes(self.run.config, source_length=n_source, target_length=n_target),
            )

    def tensor(self, read: Input, name: str, snapshot: int | None = None) -> Traced:
        """Return one tensor of an input; those that are likely to be asked for next are recorded with it.

        Raises:
            UnknownTensorError: There is no such tensor.

        """
        model = self.model(snapshot)
        found = self.shapes(read)
        names = {shape.name for shape in found}
        if name not in names:
            raise UnknownTensorError(f"this model has no tensor {name!r}")
        size = sum(4 * math.prod(shape.shape) for shape in found)
        group = "*" if size <= WHOLE else _group(name)

        def made() -> dict[str, Traced]:
            only = [one for one in names if group == "*" or _group(one) == group]
            source, target = (None if ids is None else [list(ids)] for ids in (read.source, read.target))
            # attention that nobody watches takes a fused way, which rounds in another order: so all are watched, and
            # the parts of a large model, recorded one after the other, fit together
            weights = [tap for name, tap in taps(model).items() if name.endswith("attention.weights")]
            hooks = [tap.register_forward_hook(_nothing) for tap in weights]
            try:
                return dict(trace(model, source, target, only=only))
            finally:
                for hook in hooks:
                    hook.remove()

        with self.lock:
            return self._tensors.get((snapshot, read, group), made)[name]

    def parameter(self, name: str, snapshot: int | None = None) -> Tensor:
        """Return a weight by any of its names.

        Raises:
            UnknownTensorError: There is none of this name.

        """
        for own, parameter in self.model(snapshot).named_parameters(remove_duplicate=False):
            if own == name:
                return parameter.detach()
        raise UnknownTensorError(f"this model has no weight {name!r}")

    def _check(self, ids: Sequence[int], what: str) -> None:
        if not ids:
            raise DataError(f"the {what} is blank: there is nothing to read")
        if len(ids) > LONGEST:
            raise DataError(f"the {what} has {len(ids)} tokens; the explorer shows {LONGEST} at most")


def open_run(directory: str | Path) -> Shelved:
    """Open a finished run.

    Raises:
        CheckpointError: There is none, or it is damaged.

    """
    return Shelved(load(directory), Path(directory).resolve().name, RunFiles(directory))


def _nothing(*_: object) -> None:
    pass


def _group(name: str) -> str:
    """Return which tensors are recorded together: those of one attention or network of one layer, or all outside."""
    parts = name.split(".")
    return ".".join(parts[:4]).removesuffix("_residual") if parts[1:2] == ["layers"] else ""
