"""A model that onnxruntime runs, for the searches: in place of a `Transformer`."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError, DecodingError
from glassformer.interop.onnx import DECODER, ENCODER, graphs
from glassformer.model.cache import Cache, KeyValues
from glassformer.model.transformer import Memory


@dataclass(frozen=True, eq=False)
class _Read(Memory):
    """A memory with its keys and values for each layer of the decoder, (B, G, S, K)."""

    pairs: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> "_Read":
        found = super().select(rows)
        return _Read(found.states, found.is_real, tuple(tensor[rows] for tensor in self.pairs))


class OnnxModel:
    """What a search asks of a model, from the graphs in a directory."""

    device = torch.device("cpu")

    def __init__(self, directory: str | Path, config: ModelConfig) -> None:
        """Open the graphs of a model.

        Raises:
            CheckpointError: A graph is missing, damaged, or of another model, or the package is not installed.

        """
        try:
            import onnxruntime
        except ImportError as error:
            raise CheckpointError("the engine needs its package: pip install 'glassformer[onnx]'") from error
        self.config, self._sessions, self._graphs = config, {}, graphs(config)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        for name, graph in self._graphs.items():
            path = Path(directory) / name
            try:
                session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # its errors have no common class of their own
                raise CheckpointError(f"onnxruntime cannot open {path}: {str(error).splitlines()[0]}") from error
            inputs = {one.name: tuple(one.shape) for one in session.get_inputs()}
            if (inputs, [one.name for one in session.get_outputs()]) != (graph.inputs, graph.outputs):
                raise CheckpointError(f"{path} is no graph of the model beside it: it reads {inputs}")
            self._sessions[name] = session

    def new_cache(self) -> Cache:
        """Return an empty cache for `decode`."""
        return Cache(self.config.n_decoder_layers or 0)

    def encode(self, source: Tensor, *, is_real: Tensor | None = None) -> Memory:
        """Read sources (B, S)."""
        flags = torch.ones_like(source, dtype=torch.bool) if is_real is None else is_real
        found = self._run(ENCODER, {"source": source, "source_is_real": flags})
        return _Read(found[0], is_real, tuple(found[1:]))

    def decode(
        self,
        target: Tensor,
        memory: Memory | None = None,
        *,
        cache: Cache | None = None,
        is_real: Tensor | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Read targets (B, T) and return the logits (B, last, V) of what comes next."""
        cache = self.new_cache() if cache is None else cache
        n_past, is_real = cache.length, cache.extend(target, is_real)  # (B, P + T) or None
        flags = target.new_ones(len(target), n_past + target.shape[1], dtype=torch.bool) if is_real is None else is_real
        given = {"target": target, "target_is_real": flags[:, n_past:], "past_is_real": flags[:, :n_past]}
        empty = torch.zeros(len(target), self.config.kv_heads, 0, self.config.d_k)
        past = [tensor for one in cache.self_attention for tensor in (one.read() if n_past else (empty, empty))]
        given |= dict(zip(self._names("past"), past, strict=True))
        if isinstance(memory, _Read):
            n = len(target) // len(memory.states)  # so many rows side by side read one row of the memory
            real = torch.ones(memory.states.shape[:2], dtype=torch.bool) if memory.is_real is None else memory.is_real
            shared = {"source_is_real": real, **dict(zip(self._names("memory"), memory.pairs, strict=True))}
            given |= {name: tensor.repeat_interleave(n, 0) if n > 1 else tensor for name, tensor in shared.items()}
        logits, _, *present = self._run(DECODER, given)
        for i, pair in enumerate(zip(present[::2], present[1::2], strict=True)):
            cache.self_attention[i] = KeyValues()
            cache.self_attention[i].append(*pair)
        cache.length, cache.is_real = flags.shape[1], is_real
        return logits if last is None else logits[:, -last:]

    def classify(self, source: Tensor, *, is_real: Tensor | None = None) -> Tensor:
        """Return what an encoder alone makes of sources (B, S): its scores, or its states (B, S, D)."""
        flags = torch.ones_like(source, dtype=torch.bool) if is_real is None else is_real
        given = {"source": source, "source_is_real": flags}
        if "token_types" in self._graphs[ENCODER].inputs:
            given["token_types"] = torch.zeros_like(source)
        return self._run(ENCODER, given)[0]

    def _names(self, what: str) -> list[str]:
        return [name for name in self._graphs[DECODER].inputs if name.startswith(f"{what}.")]

    def _run(self, name: str, given: dict[str, Tensor]) -> list[Tensor]:
        feed = {key: tensor.contiguous().numpy() for key, tensor in given.items()}
        try:
            found = self._sessions[name].run(None, feed)
        except Exception as error:  # its errors have no common class of their own
            raise DecodingError(f"onnxruntime gave up: {str(error).splitlines()[0]}") from error
        return [torch.from_numpy(one) for one in found]
