"""GGUF files of Llamas: quantised weights, read as float32, with the vocabulary and the chat template inside.

Query and key rows are laid out for "interleaved", so they are taken as they are.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config.files import validated
from glassformer.config.run import Config
from glassformer.errors import CheckpointError
from glassformer.interop.foreign import Foreign
from glassformer.interop.layout import Layout, Part, embedding_names, layers, take, with_bias
from glassformer.interop.vocabulary import from_gguf
from glassformer.text.vocabularies import Vocabularies

MAGIC = b"GGUF"
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_0")
LAYER = {
    "self_attention.w_q": "attn_q", "self_attention.w_k": "attn_k", "self_attention.w_v": "attn_v",
    "self_attention.w_o": "attn_output", "self_attention_residual.norm": "attn_norm",
    "ffn.w_gate": "ffn_gate", "ffn.w_1": "ffn_up", "ffn.w_2": "ffn_down", "ffn_residual.norm": "ffn_norm",
}  # fmt: skip


def is_file(path: Path) -> bool:
    """Whether this is a file of that kind."""
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def read(path: Path) -> Foreign:
    """Read a model with its vocabulary.

    Raises:
        CheckpointError: The file is damaged, or of a model that we do not have; or the package gguf is not installed.

    """
    reader = _opened(path)
    fields = {name: _guarded(path, field.contents) for name, field in reader.fields.items()}
    tokenizer = from_gguf(fields, str(path))
    model = validated(
        {"model": _model(fields, {tensor.name for tensor in reader.tensors}, str(path))}, f"{path}: "
    ).model
    theirs = {tensor.name: _numbers(path, tensor) for tensor in reader.tensors}
    tensors = take(layout(model), theirs, model, str(path))
    name = fields.get("general.name")
    about = f"{name}." if isinstance(name, str) else f"{path.stem}."
    template = fields.get("tokenizer.chat_template")
    vocabularies = Vocabularies.one(tokenizer)
    return Foreign(
        Config(about=about, model=model), tensors, vocabularies, (), template if isinstance(template, str) else None
    )


def layout(config: Any) -> Layout:
    """Return where each parameter stands."""
    names = embedding_names(config)
    found = {
        names["target"]: Part("token_embd.weight"),
        **layers(config.n_decoder_layers, with_bias(LAYER, ("weight",)), "decoder", "blk"),
        "decoder.norm.weight": Part("output_norm.weight"),
    }
    if names["output"] != names["target"]:
        found[names["output"]] = Part("output.weight")
    return found


def _model(fields: dict[str, Any], tensors: set[str], where: str) -> dict[str, Any]:
    """Return the fields of [model]."""
    if fields.get("general.architecture") != "llama":
        raise CheckpointError(f"{where} is of architecture {fields.get('general.architecture')!r}; we read 'llama'")

    def field(name: str, default: Any = None) -> Any:
        value = fields.get(f"llama.{name}", default)
        if not isinstance(value, int | float):
            raise CheckpointError(f"{where} has llama.{name}={value!r}, where a number belongs")
        return value

    for name in ("rope.scaling.type", "rope.scale_linear", "expert_count", "attention.sliding_window"):
        if fields.get(f"llama.{name}") not in (None, 0, "none", 1.0):
            raise CheckpointError(f"{where} has llama.{name}={fields[f'llama.{name}']!r}, which we do not have")
    d_model, heads = field("embedding_length"), field("attention.head_count")
    turned = field("rope.dimension_count", d_model // max(heads, 1))
    if turned * heads != d_model:
        raise CheckpointError(f"{where} turns {turned} numbers of each head, not all of them, which we do not have")
    return {
        "kind": "decoder",
        "target_vocabulary": len(fields["tokenizer.ggml.tokens"]),
        "n_decoder_layers": field("block_count"),
        "d_model": d_model,
        "d_ff": field("feed_forward_length"),
        "n_heads": heads,
        "n_kv_heads": field("attention.head_count_kv", heads),
        "norm": {"kind": "rmsnorm", "eps": _decimal(field("attention.layer_norm_rms_epsilon")), "placement": "pre"},
        "positions": {
            "kind": "rotary",
            "base": _decimal(field("rope.freq_base", 10000.0)),
            "convention": "interleaved",
        },
        "ffn": {"activation": "silu", "gated": True},
        "biases": "none",
        "embedding": {"scale": False},
        "tying": "none" if "output.weight" in tensors else "target-output",
        "initialisation": "normal",
        "dropout": {"residual": 0.0},
    }


def _decimal(value: float) -> float:
    """Return the shortest decimal that is this number in float32, which is what was meant: 1e-05."""
    return float(str(np.float32(value)))


def _opened(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise CheckpointError(f"reading {path} needs the package gguf: pip install 'glassformer[gguf]'") from error
    return _guarded(path, lambda: GGUFReader(path))


def _numbers(path: Path, tensor: Any) -> Tensor:
    """Return a tensor's numbers as float32."""
    from gguf.quants import dequantize

    name = tensor.tensor_type.name
    if name not in TYPES:
        raise CheckpointError(f"{tensor.name} is {name} in {path}, which we do not read; we read {', '.join(TYPES)}")
    values = _guarded(path, lambda: dequantize(tensor.data, tensor.tensor_type))
    return torch.from_numpy(np.array(values, dtype=np.float32)).view([int(n) for n in reversed(tensor.shape)])


def _guarded(path: Path, function: Callable[[], Any]) -> Any:
    """Call the library, and say in one sentence what is wrong with a file that it stumbles over."""
    try:
        return function()
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, OSError, UnicodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is no GGUF file that can be read, or damaged: {reason}") from error
