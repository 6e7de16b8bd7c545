"""CTranslate2's format, and reading it: model.bin, vocabularies, config.json.

Its layers are ours with a few matrices stacked. Older files leave out what was then fixed: 8 heads, pre-norm, ReLU, an
embedding times √d_model, and sines and cosines as in tensor2tensor, from position 1.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, models, pre_tokenizers
from torch import Tensor

from glassformer.config.files import validated
from glassformer.config.model import ModelConfig, Positions
from glassformer.config.run import Config, DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.interop.ctranslate2_file import read_variables
from glassformer.interop.foreign import Foreign, Settings
from glassformer.interop.layout import Layout, Part, embedding_names, take
from glassformer.interop.vocabulary import with_frame
from glassformer.model.position import Sinusoidal
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies

FILE = "model.bin"
ACTIVATIONS = ("relu", "gelu-tanh", "silu", "gelu")
ATTENTION_WIDTH = 8  # heads, where a file does not say
NORM = {"gamma": "weight", "beta": "bias"}
KNOWN = (  # settings among the variables: of a side, and of each of its layers
    "num_heads", "pre_norm", "activation", "scale_embeddings", "embeddings_merge", "alignment_layer", "alignment_heads",
)  # fmt: skip
COUNTS = ("num_heads_kv", "head_dim")
KNOWN_IN_LAYERS = (*COUNTS, "rotary_dim", "rotary_interleave", "rotary_base")


def is_directory(path: Path) -> bool:
    """Whether this is a directory of that kind."""
    return (path / FILE).is_file()


def read(path: Path) -> Foreign:
    """Read a model with its vocabularies; texts are its tokens with blanks between.

    Raises:
        CheckpointError: Something of it is missing, damaged, or not to be had here; the message names it.

    """
    where = str(path / FILE)
    variables = read_variables(path / FILE)
    settings, tensors = {}, {}
    for name, value in variables.items():
        if value.ndim == 0:
            settings[name] = value.item()
        elif not name.endswith("_scale"):
            tensors[name] = _numbers(name, value, variables)
    said = _config(path / "config.json")
    model, tensors = _model(settings, tensors, said.number("layer_norm_epsilon", 1e-5), where)
    found = take(layout(model), tensors, model, where)
    vocabularies = _vocabularies(path, said, alone=not model.has_encoder)
    decode = DecodeConfig(length_penalty="power", alpha=1.0, min_length=2 if model.has_encoder else 0)  # its own
    config = Config(about=f"A CTranslate2 model, {path.resolve().name}.", model=model, decode=decode)
    return Foreign(config, found, vocabularies)


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""

    def part(ours: str, theirs: str, i: int = 0) -> dict[str, Part]:
        return {f"{ours}.{kind}": Part(f"{theirs}/{kind}", i) for kind in ("weight", "bias")}

    def norm(ours: str, theirs: str) -> dict[str, Part]:
        return {f"{ours}.{kind}": Part(f"{theirs}/{name}") for name, kind in NORM.items()}

    found: dict[str, Part] = {}
    for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        for i in range(n_layers or 0):
            ours, theirs = f"{side}.layers.{i}", f"{side}/layer_{i}"
            for place, letter in enumerate("qkv"):
                found |= part(f"{ours}.self_attention.w_{letter}", f"{theirs}/self_attention/linear_0", place)
            found |= part(f"{ours}.self_attention.w_o", f"{theirs}/self_attention/linear_1")
            found |= norm(f"{ours}.self_attention_residual.norm", f"{theirs}/self_attention/layer_norm")
            found |= part(f"{ours}.cross_attention.w_q", f"{theirs}/attention/linear_0")
            for place, letter in enumerate("kv"):
                found |= part(f"{ours}.cross_attention.w_{letter}", f"{theirs}/attention/linear_1", place)
            found |= part(f"{ours}.cross_attention.w_o", f"{theirs}/attention/linear_2")
            found |= norm(f"{ours}.cross_attention_residual.norm", f"{theirs}/attention/layer_norm")
            gated = config.ffn.gated  # then what is activated is the gate
            found |= part(f"{ours}.ffn.w_gate", f"{theirs}/ffn/linear_0")
            found |= part(f"{ours}.ffn.w_1", f"{theirs}/ffn/linear_0_noact" if gated else f"{theirs}/ffn/linear_0")
            found |= part(f"{ours}.ffn.w_2", f"{theirs}/ffn/linear_1")
            found |= norm(f"{ours}.ffn_residual.norm", f"{theirs}/ffn/layer_norm")
        found |= norm(f"{side}.norm", f"{side}/layer_norm")
        found |= norm(f"{side}.embedding.norm", f"{side}/layernorm_embedding")
        found[f"{side}.embedding.position_table.table.weight"] = Part(f"{side}/position_encodings/encodings")
    names = embedding_names(config)
    for side, name in (
        ("output", "decoder/projection/weight"),
        ("target", "decoder/embeddings/weight"),
        ("source", "encoder/embeddings/weight"),
    ):
        found[names[side]] = Part(name)
    return {**found, "output.bias": Part("decoder/projection/bias")}


def _model(
    settings: Mapping[str, Any], tensors: dict[str, Tensor], eps: float, where: str
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the architecture, and the tensors that are its parameters."""
    tensors = {name.replace("encoder/embeddings_0/", "encoder/embeddings/"): t for name, t in tensors.items()}
    sides = [side for side in ("encoder", "decoder") if f"{side}/embeddings/weight" in tensors]
    if "decoder" not in sides:
        raise CheckpointError(f"{where} has no decoder/embeddings/weight")
    both = [_side(settings, tensors, side, where) for side in sides]
    one, other = both[0], both[-1]
    if one != other:
        different = [name for name in one if one[name] != other[name]]
        raise CheckpointError(f"the encoder and the decoder of {where} differ in {', '.join(different)}")
    one["norm"]["eps"] = eps
    target = tensors["decoder/embeddings/weight"]
    source, output = tensors.get("encoder/embeddings/weight"), tensors.get("decoder/projection/weight", target)
    sides_tied, ends_tied = source is not None and _same(source, target), _same(output, target)
    for name, is_twice in (("decoder/projection/weight", ends_tied), ("decoder/embeddings/weight", sides_tied)):
        if is_twice:
            tensors.pop(name, None)
    fields = {
        **one,
        "kind": "decoder" if source is None else "encoder-decoder",
        "source_vocabulary": None if source is None else len(source),
        "target_vocabulary": len(target),
        "n_encoder_layers": None if source is None else _depth(tensors, "encoder"),
        "n_decoder_layers": _depth(tensors, "decoder"),
        "output_bias": "decoder/projection/bias" in tensors,
        "tying": "all" if sides_tied and ends_tied else "source-target" if sides_tied
        else "target-output" if ends_tied else "none",
    }  # fmt: skip
    return validated({"model": fields}, f"{where}: ").model, tensors


def _side(settings: Mapping[str, Any], tensors: dict[str, Tensor], side: str, where: str) -> dict[str, Any]:
    """Return the fields of [model] that the encoder, or the decoder, says."""
    own: dict[str, Any] = {}
    layered: dict[str, set[Any]] = {}
    for name, value in settings.items():
        if not name.startswith(f"{side}/"):
            continue
        last = name.rpartition("/")[2]
        if name == f"{side}/{last}" and last in KNOWN:
            own[last] = value
        elif name.startswith(f"{side}/layer_") and last in KNOWN_IN_LAYERS:
            layered.setdefault(last, set()).add(value)
        elif value:
            raise CheckpointError(f"{where} has {name}={value}, which we do not have")
    for name, values in layered.items():
        if len(values) > 1:
            raise CheckpointError(f"the layers of {where} differ in {name}, which ours do not")
    inside = {name: values.pop() for name, values in layered.items()}
    first = f"{side}/layer_0"
    try:
        d_model, n_heads = tensors[f"{side}/embeddings/weight"].shape[-1], own.get("num_heads", ATTENTION_WIDTH)
        d_ff = len(tensors[f"{first}/ffn/linear_0/weight"])
    except KeyError as error:
        raise CheckpointError(f"{where} has no {error.args[0]}") from None
    for name, value in (("num_heads", n_heads), *((one, inside[one]) for one in COUNTS if one in inside)):
        if not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{where} has {side}/{name}={value}, where a whole number above 0 belongs")
    d_k = inside.get("head_dim", d_model // n_heads)
    for name, value, allowed in (
        ("activation", own.get("activation", 0), range(len(ACTIVATIONS))),
        ("scale_embeddings", own.get("scale_embeddings", 1), (0, 1)),
        ("rotary_dim", inside.get("rotary_dim", 0), (0, d_k)),
    ):
        if not isinstance(value, int) or value not in allowed:
            raise CheckpointError(f"{where} has {side}/{name}={value}, which we do not have")
    biases = [f"{first}/{place}/linear_0/bias" in tensors for place in ("self_attention", "ffn")]
    return {
        "d_model": d_model,
        "d_ff": d_ff,
        "n_heads": n_heads,
        "n_kv_heads": inside.get("num_heads_kv"),
        "d_head": None if d_k * n_heads == d_model else d_k,
        "biases": "all" if biases[0] else "ffn" if biases[1] else "none",
        "norm": {
            "kind": "layernorm" if f"{first}/ffn/layer_norm/beta" in tensors else "rmsnorm",
            "placement": "pre" if own.get("pre_norm", 1) else "post",
            "final": f"{side}/layer_norm/gamma" in tensors,
            "embedding": f"{side}/layernorm_embedding/gamma" in tensors,
        },
        "ffn": {
            "activation": ACTIVATIONS[own.get("activation", 0)],
            "gated": f"{first}/ffn/linear_0_noact/weight" in tensors,
        },
        "embedding": {"scale": bool(own.get("scale_embeddings", 1))},
        "positions": _positions(inside, tensors, side),
    }


def _positions(inside: Mapping[str, Any], tensors: dict[str, Tensor], side: str) -> dict[str, Any]:
    """Return the fields of [model.positions], and take the table away if it is one of sines and cosines."""
    if "rotary_dim" in inside:
        convention = "interleaved" if inside.get("rotary_interleave", True) else "halves"
        return {"kind": "rotary", "convention": convention, "base": inside.get("rotary_base", 10000.0)}
    name = f"{side}/position_encodings/encodings"
    if name not in tensors:
        return {"ladder": "tensor2tensor", "first": 1}
    table = tensors[name]
    if table.ndim != 2:
        raise CheckpointError(f"{name} has {table.ndim} axes; a table has two")
    for ladder in ("interleaved", "halves", "tensor2tensor"):
        for first in (0, 1, 2):
            right = Sinusoidal(Positions(ladder=ladder), table.shape[1])(
                torch.arange(len(table)) + first, torch.float32
            )
            if (right - table).abs().max() < 1e-3:
                del tensors[name]
                return {"ladder": ladder, "first": first}
    return {"kind": "learned", "size": len(table)}


def _depth(tensors: Mapping[str, Tensor], side: str) -> int:
    return len({found[0] for found in (re.match(rf"{side}/layer_\d+/", name) for name in tensors) if found})


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def _numbers(name: str, value: NDArray[Any], variables: Mapping[str, NDArray[Any]]) -> Tensor:
    """Return a variable as float32; integers are divided by the scale that stands beside them."""
    scale = variables.get(f"{name}_scale")
    numbers = torch.from_numpy(value.astype(np.float32))
    if scale is None:
        return numbers
    factor = torch.from_numpy(scale.astype(np.float32))
    if factor.shape not in ((), value.shape[:1]):
        raise CheckpointError(f"{name} is {value.shape}, but its scale {tuple(factor.shape)}")
    return numbers / (factor[:, None] if factor.ndim else factor)


def _config(file: Path) -> Settings:
    try:
        values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    found = Settings(values, str(file))
    found.ignore("multi_query_attention", "quantization_bits", "quantization_group_size", "quantization_type")
    return found


def _vocabularies(path: Path, settings: Settings, *, alone: bool) -> Vocabularies:
    """Read the vocabularies of both sides, with what config.json puts around a text."""
    start, end, unknown = (
        settings.text(f"{name}_token", text) for name, text in (("bos", "<s>"), ("eos", "</s>"), ("unk", "<unk>"))
    )
    first = settings.text("decoder_start_token", start)
    before = [start] if settings.get("add_source_bos", False) else []
    after = [end] if settings.get("add_source_eos", False) else []
    settings.check()
    names = {side: tokens_of(path, side) for side in ("source", "target")}
    pad = [name for name in ("<blank>", "<pad>") if name in names["target"]]
    specials = {start, end, first, *pad}
    source, target = (_tokenizer(names[side], specials, unknown) for side in ("source", "target"))
    if alone:  # its prompts are read as they are
        return Vocabularies.one(with_frame(target, [], [target.id_of(end)], str(path)))
    if before or after:
        source = with_frame(source, [source.id_of(i) for i in before], [source.id_of(i) for i in after], str(path))
    return Vocabularies(source, with_frame(target, [target.id_of(first)], [target.id_of(end)], str(path)))


def framed_there(path: Path) -> tuple[bool, bool]:
    """Whether CTranslate2 itself puts a start token before a source, and an end token after it."""
    said = _config(path / "config.json")
    return bool(said.get("add_source_bos", False)), bool(said.get("add_source_eos", False))


def tokens_of(path: Path, side: str) -> list[str]:
    """Return the tokens of a side ("source", "target").

    Raises:
        CheckpointError: There is no such vocabulary, or it is damaged.

    """
    for name in (f"{side}_vocabulary", "shared_vocabulary", "vocabulary"):
        for file in (path / f"{name}.json", path / f"{name}.txt"):
            if file.is_file():
                try:
                    text = file.read_text(encoding="utf-8")
                    found = json.loads(text) if file.suffix == ".json" else text.removesuffix("\n").split("\n")
                except (OSError, ValueError) as error:
                    raise CheckpointError(f"cannot read {file}: {error}") from error
                if not isinstance(found, list) or not all(map(_is_text, found)) or len(set(found)) != len(found):
                    raise CheckpointError(f"{file} is no list of different tokens")
                return found
    raise CheckpointError(f"{path} has no {side}_vocabulary.json, .txt, or shared_vocabulary")


def _is_text(token: Any) -> bool:
    """Whether it is a string without half a character in it."""
    return isinstance(token, str) and token == token.encode(errors="ignore").decode()


def _tokenizer(names: Sequence[str], specials: set[str], unknown: str) -> Tokenizer:
    """Make a vocabulary of tokens with blanks between."""
    known = {name: i for i, name in enumerate(names)}
    inner = tokenizers.Tokenizer(models.WordLevel(known, **({"unk_token": unknown} if unknown in known else {})))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names if name in specials])
    return Tokenizer(inner)
