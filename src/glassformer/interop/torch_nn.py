"""PyTorch's own nn.Transformer and nn.TransformerEncoder: weights both ways.

They have no embedding, positions or output in them: those stand beside. What one cannot see from the modules is said by
fields of [model], such as `{"embedding": {"scale": False}}`.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.checkpoint import fill
from glassformer.config.files import validated
from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.interop.layout import Layout, Part, embedding_names, give, layers, take, with_bias
from glassformer.model.transformer import Transformer

Stack = nn.Transformer | nn.TransformerEncoder
OWN_NAMES = {
    "source": "encoder.embedding.tokens.weight", "target": "decoder.embedding.tokens.weight", "output": "output.weight",
}  # fmt: skip


def from_torch(
    stack: Stack,
    *,
    source: nn.Embedding,
    target: nn.Embedding | None = None,
    output: nn.Linear | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Transformer:
    """Return our model with the weights of theirs.

    Args:
        stack: nn.Transformer, or nn.TransformerEncoder for an encoder alone.
        source: The embedding of what the encoder reads.
        target: Of what the decoder reads; the same module where it is one.
        output: To the target vocabulary; of an encoder alone to the classes of every token, if it has such a thing.
        settings: Fields of [model] that modules do not show. Unset: sinusoids in turn, and an embedding times √d_model.

    Raises:
        CheckpointError: It has something that we do not have.
        ConfigError: The settings do not exist, or contradict the modules.

    """
    if isinstance(stack, nn.Transformer) and (target is None or output is None):
        raise CheckpointError("nn.Transformer writes: say which modules are its target's embedding and its output")
    fields = {**_read(stack), **_tables(source, target, output), **(settings or {})}
    config = validated({"model": fields}, "the modules: ").model
    modules = {"transformer": stack, "source": source, "target": target, "output": output}
    theirs = {
        f"{key}.{name}": p.detach()
        for key, module in modules.items()
        if module is not None
        for name, p in module.named_parameters()
        if f"{key}.{name}" not in _tied(config)
    }
    model = Transformer(config)
    fill(model, take(layout(config), theirs, config, "the module"))
    return model.eval()


def to_torch(model: Transformer) -> nn.ModuleDict:
    """Return "transformer" (nn.Transformer or nn.TransformerEncoder), "source", "target" and "output" with our weights.

    Raises:
        CheckpointError: PyTorch's modules have no equal of this model.

    """
    config = model.config
    if reason := refusal(config):
        raise CheckpointError(f"nn.Transformer is no equal of this model: it needs {reason}")
    modules = nn.ModuleDict({"transformer": _built(config), "source": _table(config.source_vocabulary, config)})
    if config.has_decoder:
        modules["target"] = _table(config.target_vocabulary, config)
    if model.output is not None:
        modules["output"] = nn.Linear(config.d_model, model.output.out_features, bias=model.output.bias is not None)
    names = embedding_names(config)
    for side in ("target", "output"):
        if f"{side}.weight" in _tied(config):
            modules[side].weight = modules[next(one for one, name in OWN_NAMES.items() if name == names[side])].weight
    theirs = give(layout(config), {name: p.detach() for name, p in model.named_parameters()})
    with torch.no_grad():
        for name, p in modules.named_parameters():  # tied ones once, by their first name
            p.copy_(theirs[name])
    return modules.eval()


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""
    table: dict[str, Part] = {}
    for part, theirs in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
        for kind in ("weight", "bias"):
            for i, letter in enumerate("qkv"):
                table[f"{part}.w_{letter}.{kind}"] = Part(f"{theirs}.in_proj_{kind}", i)
            table[f"{part}.w_o.{kind}"] = Part(f"{theirs}.out_proj.{kind}")
    plain = with_bias({"ffn.w_1": "linear1", "ffn.w_2": "linear2"})
    found: dict[str, Part] = {}
    for side, n, norms in (
        ("encoder", config.n_encoder_layers, ("self_attention", "ffn")),
        ("decoder", config.n_decoder_layers, ("self_attention", "cross_attention", "ffn")),
    ):
        prefix = f"transformer.{side}" if config.has_decoder else "transformer"
        of_norms = {f"{one}_residual.norm": f"norm{i}" for i, one in enumerate(norms, start=1)}
        found |= layers(n, {**plain, **with_bias(of_norms)}, side, f"{prefix}.layers")
        own = {name: part for name, part in table.items() if name.split(".")[0] in norms}
        for i in range(n or 0):
            found |= {
                f"{side}.layers.{i}.{name}": Part(f"{prefix}.layers.{i}.{part.name}", part.i)
                for name, part in own.items()
            }
        found |= {f"{side}.norm.{kind}": Part(f"{prefix}.norm.{kind}") for kind in ("weight", "bias")}
    found |= {name: Part(f"{side}.weight") for side, name in OWN_NAMES.items()}
    return {**found, "output.bias": Part("output.bias")}


def refusal(config: ModelConfig) -> str | None:
    """Say what a model lacks to be PyTorch's; None: it is one."""
    needs = {
        "an encoder": config.has_encoder,
        "LayerNorm": config.norm.kind == "layernorm" and not config.norm.embedding,
        "biases everywhere": config.biases == "all",
        "relu or gelu without a gate": config.ffn.activation in ("relu", "gelu") and not config.ffn.gated,
        "as many key as query heads, d_model / n_heads wide": config.kv_heads == config.n_heads
        and config.d_k * config.n_heads == config.d_model,
        "positions that are added": config.positions.kind != "rotary",
        "no learned positions, no token types": config.positions.kind != "learned" and not config.embedding.token_types,
    }
    return next((need for need, holds in needs.items() if not holds), None)


def _tied(config: ModelConfig) -> set[str]:
    """Return the names of theirs that are another tensor's, too."""
    return {f"{side}.weight" for side, name in embedding_names(config).items() if name != OWN_NAMES[side]}


def _table(vocabulary: int | None, config: ModelConfig) -> nn.Embedding:
    return nn.Embedding(vocabulary or 0, config.d_model)


def _built(config: ModelConfig) -> nn.Module:
    sizes: dict[str, Any] = {
        "d_model": config.d_model, "nhead": config.n_heads, "dim_feedforward": config.d_ff,
        "dropout": config.dropout.residual, "activation": config.ffn.activation, "layer_norm_eps": config.norm.eps,
        "batch_first": True, "norm_first": config.norm.placement == "pre",
    }  # fmt: skip

    def norm() -> nn.LayerNorm | None:
        return nn.LayerNorm(config.d_model, eps=config.norm.eps) if config.final_norm else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes), config.n_encoder_layers or 0, norm(), enable_nested_tensor=False
    )
    if not config.has_decoder:
        return encoder
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.n_decoder_layers or 0, norm())
    return nn.Transformer(**sizes, custom_encoder=encoder, custom_decoder=decoder)


def _read(stack: Stack) -> dict[str, Any]:
    """Return the fields of [model] that the stack shows."""
    stacks = [stack.encoder, stack.decoder] if isinstance(stack, nn.Transformer) else [stack]
    found = [_read_stack(one) for one in stacks]
    if any(one != found[0] for one in found):
        raise CheckpointError("the encoder and the decoder differ in more than their depth, which we do not have")
    sizes = {"n_encoder_layers": len(stacks[0].layers)}
    if len(stacks) > 1:
        sizes["n_decoder_layers"] = len(stacks[1].layers)
    return {"kind": "encoder-decoder" if len(stacks) > 1 else "encoder", **sizes, **found[0]}


def _read_stack(stack: Any) -> dict[str, Any]:
    layer = stack.layers[0]
    if layer.linear1.bias is None or layer.self_attn.in_proj_weight is None:
        raise CheckpointError("its layers have no biases, or keys of another size, which we do not have in this form")
    activations: dict[Any, str] = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
    modules = {nn.ReLU: "relu", nn.GELU: "gelu", nn.SiLU: "silu"}
    activation = activations.get(layer.activation, modules.get(type(layer.activation)))
    if getattr(layer.activation, "approximate", "none") == "tanh":
        activation = "gelu-tanh"
    if activation is None:
        raise CheckpointError(f"its activation is {layer.activation}, which we do not have; we have relu, gelu, silu")
    return {
        "d_model": layer.self_attn.embed_dim,
        "d_ff": layer.linear1.out_features,
        "n_heads": layer.self_attn.num_heads,
        "norm": {
            "eps": layer.norm1.eps,
            "placement": "pre" if layer.norm_first else "post",
            "final": stack.norm is not None,
        },
        "ffn": {"activation": activation},
        "dropout": {
            "residual": layer.dropout1.p, "attention": layer.self_attn.dropout, "ffn": layer.dropout.p,
        },
    }  # fmt: skip


def _tables(source: nn.Embedding, target: nn.Embedding | None, output: nn.Linear | None) -> dict[str, Any]:
    """Return the fields that the modules beside the stack show, sizes and tying."""
    fields: dict[str, Any] = {"source_vocabulary": source.num_embeddings, "tying": "none"}
    if target is None:
        if output is not None:
            fields["classifier"] = {"classes": output.out_features, "pooling": "none"}
        return fields
    assert output is not None
    sides, ends = source.weight is target.weight, output.weight is target.weight
    fields["tying"] = "all" if sides and ends else "source-target" if sides else "target-output" if ends else "none"
    return {**fields, "target_vocabulary": target.num_embeddings, "output_bias": output.bias is not None}
