"""CTranslate2's format for encoder–decoders: model.bin, vocabularies, config.json.

Its layers are ours with a few matrices stacked. Older files leave out what was then fixed: 8 heads, pre-norm, ReLU, an
embedding times √d_model, and sines and cosines as in tensor2tensor, from position 1.
"""

import json
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
from glassformer.interop.layout import Layout, Part, embedding_names, give, take
from glassformer.interop.vocabulary import with_frame
from glassformer.model.position import Sinusoidal
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies

FILE = "model.bin"
ACTIVATIONS = ("relu", "gelu-tanh", "silu", "gelu")
ATTENTION_WIDTH = 8  # heads, where a file does not say
LONGEST = 2048  # positions that are written; without a table CTranslate2 makes those of tensor2tensor
NORM = {"gamma": "weight", "beta": "bias"}
KNOWN = (  # settings among the variables
    "num_heads", "pre_norm", "activation", "scale_embeddings", "embeddings_merge", "alignment_layer", "alignment_heads",
)  # fmt: skip


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
    model, tensors = _model(settings, tensors, where)
    found = take(layout(model), tensors, model, where)
    vocabularies, decode = _vocabularies(path, model)
    config = Config(about=f"A CTranslate2 model, {path.resolve().name}.", model=model, decode=decode)
    return Foreign(config, found, vocabularies)


def write(config: Config, ours: Mapping[str, Tensor], vocabularies: Vocabularies, out: Path, precision: str) -> None:
    """Write a model that CTranslate2 runs.

    Args:
        config: Of the model.
        ours: Its parameters.
        vocabularies: Of both sides; CTranslate2 takes and gives their tokens.
        out: Where to.
        precision: "float32", or "int8": matrices as integers with a scale for each row.

    Raises:
        CheckpointError: CTranslate2 has no equal of this model, or the package is not installed.

    """
    model = config.model
    if reason := refusal(model):
        raise CheckpointError(f"CTranslate2 has no equal of this model: it needs {reason}")
    try:
        from ctranslate2.specs import Activation, TransformerSpec
    except ImportError as error:
        raise CheckpointError(
            "writing CTranslate2's format needs its package: pip install 'glassformer[ctranslate2]'"
        ) from error
    activations = (Activation.RELU, Activation.GELUTanh, Activation.SWISH, Activation.GELU)
    spec = TransformerSpec.from_config(
        (model.n_encoder_layers, model.n_decoder_layers),
        model.n_heads,
        pre_norm=model.norm.placement == "pre",
        activation=activations[ACTIVATIONS.index(model.ffn.activation)],
    )
    theirs = give(layout(model), ours)
    names, table = embedding_names(model), embedding_names(model.model_copy(update={"tying": "none"}))
    whole = {**ours, **{table[side]: ours[names[side]] for side in table}}
    for name, side in (("encoder/embeddings_0/weight", "source"), ("decoder/embeddings/weight", "target"),
                       ("decoder/projection/weight", "output")):  # fmt: skip
        theirs[name] = whole[table[side]]
    theirs.pop("encoder/embeddings/weight", None)
    if model.positions.kind == "sinusoidal":
        encodings = Sinusoidal(model.positions, model.d_model)(
            torch.arange(LONGEST) + model.positions.first, torch.float32
        )
        theirs |= {f"{side}/position_encodings/encodings": encodings for side in ("encoder", "decoder")}
    for name, tensor in theirs.items():
        _set(spec, name.split("/"), tensor.float().clone().numpy())  # it is written over when it is rounded
    for one in (spec.encoder, spec.decoder):
        one.scale_embeddings = model.embedding.scale
    source, target = vocabularies.source, vocabularies.target
    spec.register_source_vocabulary(source.tokens(range(model.source_vocabulary or 0)))
    spec.register_target_vocabulary(target.tokens(range(model.target_vocabulary or 0)))
    start, end = target.tokens([target.start_id or 0, target.end_id])
    spec.config.bos_token, spec.config.eos_token, spec.config.decoder_start_token = start, end, start
    spec.config.unk_token = "<unk>" if target.unknown_id is None else target.tokens([target.unknown_id])[0]
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    out.mkdir(parents=True, exist_ok=True)
    spec.save(str(out))


def _set(place: Any, path: Sequence[str], value: NDArray[Any]) -> None:
    """Set a variable of a specification; "layer_3" is the fourth of its "layer"."""
    for step in path[:-1]:
        stem, _, number = step.rpartition("_")
        is_one_of = number.isdigit() and isinstance(getattr(place, stem, None), list)
        place = getattr(place, stem)[int(number)] if is_one_of else getattr(place, step)
    setattr(place, path[-1], value)


def refusal(config: ModelConfig) -> str | None:
    """Say what a model lacks to be CTranslate2's; None: it is one."""
    norm = config.norm
    needs = {
        "an encoder and a decoder": config.kind == "encoder-decoder",
        "LayerNorm with ε = 1e-5": norm.kind == "layernorm" and norm.eps == 1e-5 and not norm.embedding,
        "a last norm with pre-norm, and none with post-norm": config.final_norm == (norm.placement == "pre"),
        "sines and cosines for positions": config.positions.kind == "sinusoidal",
        "a network without a gate": not config.ffn.gated,
        "biases everywhere": config.biases == "all",
        "as many key as query heads, d_model / n_heads wide": config.kv_heads == config.n_heads
        and config.d_k * config.n_heads == config.d_model,
    }
    return next((need for need, holds in needs.items() if not holds), None)


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""

    def part(ours: str, theirs: str, i: int = 0, n: int = 1) -> dict[str, Part]:
        return {f"{ours}.{kind}": Part(f"{theirs}/{kind}", i, n) for kind in ("weight", "bias")}

    def norm(ours: str, theirs: str) -> dict[str, Part]:
        return {f"{ours}.{kind}": Part(f"{theirs}/{name}") for name, kind in NORM.items()}

    found: dict[str, Part] = {}
    for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        for i in range(n_layers or 0):
            ours, theirs = f"{side}.layers.{i}", f"{side}/layer_{i}"
            for place, letter in enumerate("qkv"):
                found |= part(f"{ours}.self_attention.w_{letter}", f"{theirs}/self_attention/linear_0", place, 3)
            found |= part(f"{ours}.self_attention.w_o", f"{theirs}/self_attention/linear_1")
            found |= norm(f"{ours}.self_attention_residual.norm", f"{theirs}/self_attention/layer_norm")
            if side == "decoder":
                found |= part(f"{ours}.cross_attention.w_q", f"{theirs}/attention/linear_0")
                for place, letter in enumerate("kv"):
                    found |= part(f"{ours}.cross_attention.w_{letter}", f"{theirs}/attention/linear_1", place, 2)
                found |= part(f"{ours}.cross_attention.w_o", f"{theirs}/attention/linear_2")
                found |= norm(f"{ours}.cross_attention_residual.norm", f"{theirs}/attention/layer_norm")
            found |= part(f"{ours}.ffn.w_1", f"{theirs}/ffn/linear_0") | part(
                f"{ours}.ffn.w_2", f"{theirs}/ffn/linear_1"
            )
            found |= norm(f"{ours}.ffn_residual.norm", f"{theirs}/ffn/layer_norm")
        found |= norm(f"{side}.norm", f"{side}/layer_norm")
    names = embedding_names(config)
    for side, name in (
        ("output", "decoder/projection/weight"),
        ("target", "decoder/embeddings/weight"),
        ("source", "encoder/embeddings/weight"),
    ):
        found[names[side]] = Part(name)
    return {**found, "output.bias": Part("decoder/projection/bias")}


def _model(settings: dict[str, Any], tensors: dict[str, Tensor], where: str) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the architecture, and the tensors that are its parameters."""
    tensors = {name.replace("encoder/embeddings_0/", "encoder/embeddings/"): t for name, t in tensors.items()}
    both: dict[str, dict[str, Any]] = {}
    for side in ("encoder", "decoder"):
        own = {name.removeprefix(f"{side}/"): value for name, value in settings.items() if name.startswith(f"{side}/")}
        for name, value in own.items():
            if name not in KNOWN and value:
                raise CheckpointError(f"{where} has {side}/{name}={value}, which we do not have")
        if not 0 <= own.get("activation", 0) < len(ACTIVATIONS):
            raise CheckpointError(f"{where} has activation {own['activation']}, which we do not have")
        both[side] = {
            "n_heads": int(own.get("num_heads", ATTENTION_WIDTH)),
            "pre": bool(own.get("pre_norm", 1)),
            "activation": ACTIVATIONS[own.get("activation", 0)],
            "scale": bool(own.get("scale_embeddings", 1)),
            "final": f"{side}/layer_norm/gamma" in tensors,
            "positions": _positions(tensors, side, where),
        }
    one = both["encoder"]
    if one != both["decoder"]:
        different = [name for name in one if one[name] != both["decoder"][name]]
        raise CheckpointError(f"the encoder and the decoder of {where} differ in {', '.join(different)}")
    try:
        source, target = tensors["encoder/embeddings/weight"], tensors["decoder/embeddings/weight"]
        d_ff = len(tensors["encoder/layer_0/ffn/linear_0/weight"])
    except KeyError as error:
        raise CheckpointError(f"{where} has no {error.args[0]}") from None
    output = tensors.get("decoder/projection/weight", target)
    sides, ends = _same(source, target), _same(output, target)
    for name, is_twice in (("decoder/projection/weight", ends), ("decoder/embeddings/weight", sides)):
        if is_twice:
            tensors.pop(name, None)
    fields = {
        "source_vocabulary": len(source), "target_vocabulary": len(target), "d_model": source.shape[-1], "d_ff": d_ff,
        "n_encoder_layers": _depth(tensors, "encoder"), "n_decoder_layers": _depth(tensors, "decoder"),
        "n_heads": one["n_heads"], "positions": one["positions"], "ffn": {"activation": one["activation"]},
        "norm": {"placement": "pre" if one["pre"] else "post", "final": one["final"]},
        "embedding": {"scale": one["scale"]}, "output_bias": "decoder/projection/bias" in tensors,
        "tying": "all" if sides and ends else "source-target" if sides else "target-output" if ends else "none",
    }  # fmt: skip
    return validated({"model": fields}, f"{where}: ").model, tensors


def _positions(tensors: dict[str, Tensor], side: str, where: str) -> dict[str, Any]:
    """Return the fields of [model.positions], and take the table away if it is one of sines and cosines."""
    table = tensors.pop(f"{side}/position_encodings/encodings", None)
    if table is None:
        return {"ladder": "tensor2tensor", "first": 1}
    for ladder in ("interleaved", "halves", "tensor2tensor"):
        for first in (0, 1, 2):
            right = Sinusoidal(Positions(ladder=ladder), table.shape[1])(
                torch.arange(len(table)) + first, torch.float32
            )
            if (right - table).abs().max() < 1e-3:
                return {"ladder": ladder, "first": first}
    raise CheckpointError(f"the positions of the {side} of {where} are no sines and cosines, which alone are read")


def _depth(tensors: Mapping[str, Tensor], side: str) -> int:
    return len(
        {
            name.split("/")[1]
            for name in tensors
            if name.startswith(f"{side}/layer_") and "/layer_norm/" not in name[:20]
        }
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def _numbers(name: str, value: NDArray[Any], variables: Mapping[str, NDArray[Any]]) -> Tensor:
    """Return a variable as float32; integers are divided by the scale that stands beside them."""
    scale = variables.get(f"{name}_scale")
    numbers = torch.from_numpy(value.astype(np.float32))
    if scale is None:
        return numbers
    factor = torch.from_numpy(scale.astype(np.float32))
    return numbers / (factor[:, None] if factor.ndim else factor)


def _vocabularies(path: Path, config: ModelConfig) -> tuple[Vocabularies, DecodeConfig]:
    """Read the vocabularies of both sides, with what config.json puts around a text."""
    file = path / "config.json"
    try:
        settings = Settings(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}, str(file))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    start, end, unknown = (
        settings.get(f"{name}_token", text) for name, text in (("bos", "<s>"), ("eos", "</s>"), ("unk", "<unk>"))
    )
    first = settings.get("decoder_start_token", start)
    before = [start] if settings.get("add_source_bos", False) else []
    after = [end] if settings.get("add_source_eos", False) else []
    settings.ignore("layer_norm_epsilon", "multi_query_attention", "quantization_bits", "quantization_group_size",
                    "quantization_type", "decoder_start_token")  # fmt: skip
    if settings.get("layer_norm_epsilon") not in (None, 1e-5, config.norm.eps):
        raise CheckpointError(f"{file} has layer_norm_epsilon={settings.get('layer_norm_epsilon')}")
    settings.check()
    names = {side: _tokens(path, side) for side in ("source", "target")}
    pad = [name for name in ("<blank>", "<pad>") if name in names["target"]]
    specials = {start, end, first, *pad}
    source, target = (_tokenizer(names[side], specials, unknown) for side in ("source", "target"))
    if before or after:
        source = with_frame(source, [source.id_of(i) for i in before], [source.id_of(i) for i in after], str(path))
    target = with_frame(target, [target.id_of(first)], [target.id_of(end)], str(path))
    return Vocabularies(source, target), DecodeConfig(
        length_penalty="power", alpha=1.0, min_length=2
    )  # as CTranslate2 writes


def _tokens(path: Path, side: str) -> list[str]:
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        for file in (path / f"{name}.json", path / f"{name}.txt"):
            if file.is_file():
                try:
                    text = file.read_text(encoding="utf-8")
                    found = json.loads(text) if file.suffix == ".json" else text.removesuffix("\n").split("\n")
                except (OSError, ValueError) as error:
                    raise CheckpointError(f"cannot read {file}: {error}") from error
                if (
                    not isinstance(found, list)
                    or not all(isinstance(one, str) for one in found)
                    or len(set(found)) != len(found)
                ):
                    raise CheckpointError(f"{file} is no list of different tokens")
                return found
    raise CheckpointError(f"{path} has no {side}_vocabulary.json, .txt, or shared_vocabulary")


def _tokenizer(names: Sequence[str], specials: set[str], unknown: str) -> Tokenizer:
    """Make a vocabulary of tokens with blanks between."""
    known = {name: i for i, name in enumerate(names)}
    inner = tokenizers.Tokenizer(models.WordLevel(known, **({"unk_token": unknown} if unknown in known else {})))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names if name in specials])
    return Tokenizer(inner)
