"""A model as ONNX graphs: an encoder, and a decoder whose cache goes in and comes out as tensors.

Axes: B sequences · S source tokens · T new target tokens · P target tokens that the cache holds · G key and value
heads · K numbers of a head · D d_model · V vocabulary. Flags are True at real tokens; padding may stand anywhere.

encoder.onnx
    in: source (B, S), source_is_real (B, S); token_types (B, S) where the model has them
    out: memory (B, S, D); with a decoder memory.I.keys and memory.I.values (B, G, S, K) of its layer I;
    of a classifier logits instead
decoder.onnx
    in: target (B, T), target_is_real (B, T), past_is_real (B, P), past.I.keys and past.I.values (B, G, P, K);
    with an encoder source_is_real (B, S), memory.I.keys and memory.I.values
    out: logits (B, T, V), present_is_real (B, P + T), present.I.keys and present.I.values (B, G, P + T, K):
    what the next call takes as its past. The first call has P = 0.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.model.cache import KeyValues
from glassformer.model.transformer import Memory, Transformer

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
OPSET = 20
LARGEST = 2**30  # bytes of weights within the graph's file, which must end before 2 GiB; more lie beside it
EXAMPLE = {"batch": 2, "source": 5, "target": 3, "past": 4}  # the graph takes any sizes


@dataclass(frozen=True)
class Graph:
    """What goes into a graph, with its axes, and what comes out, in order."""

    inputs: dict[str, tuple[str | int, ...]]
    outputs: list[str]


def graphs(config: ModelConfig) -> dict[str, Graph]:
    """Return the graphs of a model by the names of their files."""
    found = {}
    rows = ("batch", "source")
    memory = _pairs("memory", config, "source") if config.has_encoder else {}
    if config.has_encoder:
        types = {"token_types": rows} if config.embedding.token_types else {}
        first = "memory" if config.classifier is None else "logits"
        found[ENCODER] = Graph({"source": rows, "source_is_real": rows, **types}, [first, *memory])
    if config.has_decoder:
        new, past = ("batch", "target"), _pairs("past", config, "past")
        read = {"source_is_real": rows, **memory} if config.has_encoder else {}
        inputs = {"target": new, "target_is_real": new, "past_is_real": ("batch", "past"), **past, **read}
        found[DECODER] = Graph(inputs, ["logits", "present_is_real", *_pairs("present", config, "past")])
    return found


def _pairs(what: str, config: ModelConfig, length: str) -> dict[str, tuple[str | int, ...]]:
    axes = ("batch", config.kv_heads, length, config.d_k)
    return {f"{what}.{i}.{kind}": axes for i in range(config.n_decoder_layers or 0) for kind in ("keys", "values")}


def write(model: Transformer, out: Path) -> None:
    """Write the graphs of a model, which is in eval mode and of float32.

    Raises:
        CheckpointError: The packages are not installed.

    """
    try:
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise CheckpointError("writing ONNX needs its packages: pip install 'glassformer[onnx]'") from error
    out.mkdir(parents=True, exist_ok=True)
    for name, graph in graphs(model.config).items():
        module = (_Encoder if name == ENCODER else _Decoder)(model, list(graph.inputs)).eval()
        _write(module, graph, out / name)


class _Traced(nn.Module):
    """A part of a model that takes its inputs in the order of their names."""

    def __init__(self, model: Transformer, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names


class _Encoder(_Traced):
    """The encoder, and what the decoder's layers make of its memory."""

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        given = dict(zip(self.names, inputs, strict=True))
        source, is_real = given["source"], given["source_is_real"]
        if not self.model.config.has_decoder:
            return [self.model(source, source_is_real=is_real, token_types=given.get("token_types"))]
        memory, cache = self.model.encode(source, is_real=is_real), self.model.new_cache()
        self.model.decode(source[:, :1], memory, cache=cache)  # the graph keeps what is returned, and no more of it
        return [memory.states, *(tensor for one in cache.cross_attention for tensor in one.read())]


class _Decoder(_Traced):
    """The decoder, with the cache as tensors."""

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        given = dict(zip(self.names, inputs, strict=True))
        layers, cache, memory = range(self.model.config.n_decoder_layers or 0), self.model.new_cache(), None
        cache.is_real, cache.length = given["past_is_real"], given["past_is_real"].shape[1]
        cache.self_attention = [_held(given, f"past.{i}") for i in layers]
        if self.model.config.has_encoder:
            cache.cross_attention = [_held(given, f"memory.{i}") for i in layers]
            states = given["memory.0.keys"][:, 0]  # with all keys at hand, only the length of the memory is asked
            memory = Memory(states, given["source_is_real"])
        logits = self.model.decode(given["target"], memory, cache=cache, is_real=given["target_is_real"])
        present = [tensor for one in cache.self_attention for tensor in one.read()]
        return [logits, torch.cat([given["past_is_real"], given["target_is_real"]], dim=1), *present]


class _Held(KeyValues):
    """Keys and values that are given; what is added makes new tensors, not parts of a buffer."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.length, self._pair = 1, (keys, values)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self._pair = torch.cat([self._pair[0], keys], dim=2), torch.cat([self._pair[1], values], dim=2)
        return self._pair

    def read(self) -> tuple[Tensor, Tensor]:
        return self._pair


def _held(given: dict[str, Tensor], name: str) -> KeyValues:
    return _Held(given[f"{name}.keys"], given[f"{name}.values"])


def _write(module: nn.Module, graph: Graph, path: Path) -> None:
    sizes = {name: Dim(name) for name in EXAMPLE}
    example, shapes = [], []
    for name, axes in graph.inputs.items():
        shape = [EXAMPLE[axis] if isinstance(axis, str) else axis for axis in axes]
        kind = torch.bool if name.endswith("_is_real") else torch.float32 if "." in name else torch.int64
        example.append(torch.ones(shape, dtype=torch.bool) if kind == torch.bool else torch.zeros(shape, dtype=kind))
        shapes.append({i: sizes[axis] for i, axis in enumerate(axes) if isinstance(axis, str)})
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            tuple(example),
            input_names=list(graph.inputs),
            output_names=graph.outputs,
            dynamic_shapes=(tuple(shapes),),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # it has the paths of the machine that wrote it
    n_bytes = sum(value.const_value.nbytes for value in program.model.graph.initializers.values() if value.const_value)
    program.save(path, external_data=n_bytes > LARGEST)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch says to its own developers from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
