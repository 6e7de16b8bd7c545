"""A run in CTranslate2's format: encoder–decoders, and decoders alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config
from glassformer.errors import CheckpointError
from glassformer.interop.ctranslate2 import layout
from glassformer.interop.layout import embedding_names, give
from glassformer.model.position import Sinusoidal
from glassformer.text.vocabularies import Vocabularies

LONGEST = 2048  # positions that are written; without a table CTranslate2 makes those of tensor2tensor


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
        from ctranslate2 import specs
    except ImportError as error:
        raise CheckpointError(
            "writing CTranslate2's format needs its package: pip install 'glassformer[ctranslate2]'"
        ) from error
    spec = _form(specs, model)
    for name, tensor in _variables(model, ours).items():
        _set(spec, name.split("/"), tensor.float().clone().numpy())  # it is written over when it is rounded
    for side in _sides(model):
        getattr(spec, side).scale_embeddings = model.embedding.scale
    _name_tokens(spec, model, vocabularies)
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    out.mkdir(parents=True, exist_ok=True)
    spec.save(str(out))


def refusal(config: ModelConfig) -> str | None:
    """Say what a model lacks to be CTranslate2's; None: it is one."""
    needs = {
        "a decoder": config.has_decoder,
        "no last norm with post-norm": config.norm.placement == "pre" or not config.final_norm,
        "positions": config.positions.kind != "none",
    }
    return next((need for need, holds in needs.items() if not holds), None)


def _sides(config: ModelConfig) -> list[str]:
    return ["encoder", "decoder"] if config.has_encoder else ["decoder"]


def _form(specs: Any, config: ModelConfig) -> Any:
    """Return the model without its numbers."""
    names = {"relu": "RELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "gelu": "GELU"}
    common = {
        "num_heads": config.n_heads,
        "pre_norm": config.norm.placement == "pre",
        "no_final_norm": not config.final_norm,
        "activation": specs.Activation[names[config.ffn.activation]],
        "layernorm_embedding": config.norm.embedding,
        "ffn_glu": config.ffn.gated,
        "rms_norm": config.norm.kind == "rmsnorm",
        "rotary_dim": 0 if config.positions.kind == "rotary" else None,  # 0: all of a head
        "rotary_interleave": config.positions.convention == "interleaved",
        "rotary_base": config.positions.base,
        "num_heads_kv": config.kv_heads,
        "head_dim": config.d_k,
    }
    decoder = specs.transformer_spec.TransformerDecoderSpec(
        config.n_decoder_layers, with_encoder_attention=config.has_encoder, **common
    )
    if config.has_encoder:
        encoder = specs.transformer_spec.TransformerEncoderSpec(config.n_encoder_layers, **common)
        spec = specs.TransformerSpec(encoder, decoder)
    else:
        spec = specs.TransformerDecoderModelSpec(decoder)
    spec.config.layer_norm_epsilon = config.norm.eps
    return spec


def _variables(config: ModelConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of theirs; a matrix that is several in ours stands in each place."""
    theirs = give(layout(config), ours)
    theirs.pop("encoder/embeddings/weight", None)
    names, places = (
        embedding_names(config),
        {"target": "decoder/embeddings/weight", "output": "decoder/projection/weight"},
    )
    if config.has_encoder:
        places["source"] = "encoder/embeddings_0/weight"
    theirs |= {place: ours[names[side]] for side, place in places.items()}
    for side in _sides(config):
        place = f"{side}/position_encodings/encodings"
        if config.positions.kind == "sinusoidal":
            numbers = torch.arange(LONGEST) + config.positions.first
            theirs[place] = Sinusoidal(config.positions, config.d_model)(numbers, torch.float32)
        elif config.positions.kind == "learned":
            theirs[place] = theirs[place][config.positions.first :]
    return theirs


def _name_tokens(spec: Any, config: ModelConfig, vocabularies: Vocabularies) -> None:
    target = vocabularies.target
    start, end = target.tokens([target.start_id or 0, target.end_id])
    spec.config.bos_token, spec.config.eos_token = start, end
    spec.config.unk_token = "<unk>" if target.unknown_id is None else target.tokens([target.unknown_id])[0]
    names = target.tokens(range(config.target_vocabulary or 0))
    if not config.has_encoder:
        spec.register_vocabulary(names)
        return
    spec.config.decoder_start_token = start
    source = vocabularies.source
    before, after = source.tokens(source.before), source.tokens(source.after)
    spec.config.add_source_bos, spec.config.add_source_eos = before == [start], after == [end]
    spec.register_source_vocabulary(vocabularies.source.tokens(range(config.source_vocabulary or 0)))
    spec.register_target_vocabulary(names)


def _set(place: Any, path: Sequence[str], value: NDArray[Any]) -> None:
    """Set a variable of a specification; "layer_3" is the fourth of its "layer"."""
    for step in path[:-1]:
        stem, _, number = step.rpartition("_")
        is_one_of = number.isdigit() and isinstance(getattr(place, stem, None), list)
        place = getattr(place, stem)[int(number)] if is_one_of else getattr(place, step)
    setattr(place, path[-1], value)
