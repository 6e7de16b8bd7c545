"""PyTorch's own nn.Transformer, nn.TransformerEncoder and their layers: weights both ways.

They have no embedding, positions or output in them: those stand beside. What one cannot see from the modules is said by
fields of [model], such as `{"embedding": {"scale": False}}`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.checkpoint import fill
from glassformer.config.files import validated
from glassformer.config.model import ModelConfig
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.layout import Layout, Part, embedding_names, give, layers, take, with_bias
from glassformer.model.transformer import Transformer

Stack = nn.Transformer | nn.TransformerEncoder | nn.TransformerEncoderLayer | Sequence[nn.Module] | nn.ModuleList
OWN_NAMES = {
    "source": "encoder.embedding.tokens.weight", "target": "decoder.embedding.tokens.weight", "output": "output.weight",
    "source_positions": "encoder.embedding.position_table.table.weight",
    "target_positions": "decoder.embedding.position_table.table.weight",
}  # fmt: skip


class _Layers(nn.Module):
    """Layers that stand alone, in the form of an nn.TransformerEncoder without a last norm."""

    def __init__(self, layers: Sequence[nn.Module] | nn.ModuleList) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), None


def from_torch(
    stack: Stack,
    *,
    source: nn.Embedding | None = None,
    target: nn.Embedding | None = None,
    output: nn.Linear | None = None,
    source_positions: nn.Embedding | None = None,
    target_positions: nn.Embedding | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Transformer:
    """Return our model with the weights of theirs.

    Args:
        stack: nn.Transformer; or for an encoder or a decoder alone nn.TransformerEncoder, one of its layers, or several
            layers in their order. A decoder alone is one that is called with a causal mask.
        source: The embedding of what the encoder reads; None: there is no encoder.
        target: Of what the decoder reads, the same module where it is one; None: there is no decoder.
        output: To the target vocabulary; of an encoder alone to the classes of every token, if it has such a thing.
        source_positions: The encoder's learned positions.
        target_positions: The decoder's.
        settings: Fields of [model] that modules do not show. Unset: an embedding times √d_model, and sinusoids in turn
            if there are no learned positions.

    Raises:
        CheckpointError: It has something that we do not have.
        ConfigError: The settings do not exist, or contradict the modules.

    """
    whole = _whole(stack)
    _check_beside(source=source, target=target, output=output, source_positions=source_positions,
                  target_positions=target_positions)  # fmt: skip
    if isinstance(whole, nn.Transformer) and (source is None or target is None):
        raise CheckpointError(
            "nn.Transformer reads and writes: say which modules are its source's and target's embedding"
        )
    if not isinstance(whole, nn.Transformer) and (source is None) == (target is None):
        raise CheckpointError(
            "one stack is an encoder or, with a causal mask, a decoder: say the source's embedding, or the target's"
        )
    if target is not None and output is None:
        raise CheckpointError("a model with a target writes: say which module is its output")
    positions = [one for one in (source_positions, target_positions) if one is not None]
    fields: dict[str, Any] = {**_read(whole, target is not None), **_tables(source, target, output)}
    if positions:
        fields["positions"] = {"kind": "learned", "size": min(one.num_embeddings for one in positions)}
    config = validated({"model": _joined(fields, settings or {})}, "the modules: ").model
    modules = {
        "transformer": whole, "source": source, "target": target, "output": output,
        "source_positions": source_positions, "target_positions": target_positions,
    }  # fmt: skip
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
    """Return "transformer" with our weights, and what stands beside it, by the names of `from_torch`'s arguments.

    It is nn.Transformer, or of an encoder or a decoder alone nn.TransformerEncoder: the latter with a causal mask.

    Raises:
        CheckpointError: PyTorch's modules have no equal of this model.

    """
    config = model.config
    if reason := refusal(config):
        raise CheckpointError(f"nn.Transformer is no equal of this model: it needs {reason}")
    modules = nn.ModuleDict({"transformer": _built(config)})
    for side, vocabulary in (("source", config.source_vocabulary), ("target", config.target_vocabulary)):
        if vocabulary is not None:
            modules[side] = nn.Embedding(vocabulary, config.d_model)
            if config.positions.size is not None:
                modules[f"{side}_positions"] = nn.Embedding(config.positions.size, config.d_model)
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
        ("decoder", config.n_decoder_layers, ("self_attention", *["cross_attention"] * config.has_encoder, "ffn")),
    ):
        prefix = f"transformer.{side}" if config.kind == "encoder-decoder" else "transformer"
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
        "LayerNorm": config.norm.kind == "layernorm" and not config.norm.embedding,
        "biases everywhere": config.biases == "all",
        "relu or gelu without a gate": config.ffn.activation in ("relu", "gelu") and not config.ffn.gated,
        "as many key as query heads, d_model / n_heads wide": config.kv_heads == config.n_heads
        and config.d_k * config.n_heads == config.d_model,
        "positions that are added": config.positions.kind != "rotary",
        "no token types": not config.embedding.token_types,
    }
    return next((need for need, holds in needs.items() if not holds), None)


def _tied(config: ModelConfig) -> set[str]:
    """Return the names of theirs that are another tensor's, too."""
    return {f"{side}.weight" for side, name in embedding_names(config).items() if name != OWN_NAMES[side]}


def _built(config: ModelConfig) -> nn.Module:
    sizes: dict[str, Any] = {
        "d_model": config.d_model, "nhead": config.n_heads, "dim_feedforward": config.d_ff,
        "dropout": config.dropout.residual, "activation": config.ffn.activation, "layer_norm_eps": config.norm.eps,
        "batch_first": True, "norm_first": config.norm.placement == "pre",
    }  # fmt: skip

    def norm() -> nn.LayerNorm | None:
        return nn.LayerNorm(config.d_model, eps=config.norm.eps) if config.final_norm else None

    n_layers = config.n_encoder_layers or config.n_decoder_layers or 0
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), n_layers, norm(), enable_nested_tensor=False)
    if config.kind != "encoder-decoder":
        return encoder
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.n_decoder_layers or 0, norm())
    return nn.Transformer(**sizes, custom_encoder=encoder, custom_decoder=decoder)


def _whole(stack: Stack) -> nn.Module:
    """Return something with layers in it, from that or from the layers."""
    if isinstance(stack, nn.Transformer | nn.TransformerEncoder):
        return stack
    layers = list(stack) if isinstance(stack, Sequence | nn.ModuleList | nn.Sequential) else [stack]
    for layer in layers:
        if not isinstance(layer, nn.TransformerEncoderLayer):
            raise CheckpointError(
                f"a {type(layer).__name__} is not nn.Transformer, nn.TransformerEncoder or one of its layers"
            )
    if not layers:
        raise CheckpointError("there is no layer")
    return _Layers(layers)


def _check_beside(**modules: nn.Module | None) -> None:
    """Refuse what stands beside a stack and is no plain table or product."""
    for name, module in modules.items():
        right = nn.Linear if name == "output" else nn.Embedding
        if module is not None and not isinstance(module, right):
            raise CheckpointError(f"{name} is a {type(module).__name__}, where an nn.{right.__name__} belongs")
        if getattr(module, "max_norm", None) is not None:
            raise CheckpointError(f"{name} has max_norm={module.max_norm}, which we do not have")  # type: ignore[union-attr]


def _joined(fields: Mapping[str, Any], settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return what the modules show together with what is said of them.

    Raises:
        ConfigError: They contradict one another.

    """
    joined = dict(fields)
    for name, value in settings.items():
        if isinstance(value, Mapping) and isinstance(fields.get(name), Mapping):
            joined[name] = _joined(fields[name], value, f"{before}{name}.")
        elif name in fields and fields[name] != value:
            raise ConfigError(f"the settings say {before}{name}={value!r}, but the modules {fields[name]!r}")
        else:
            joined[name] = value
    return joined


def _read(stack: nn.Module, writes: bool) -> dict[str, Any]:
    """Return the fields of [model] that the stack shows."""
    if isinstance(stack, nn.Transformer):
        stacks: dict[str, Any] = {"encoder": stack.encoder, "decoder": stack.decoder}
    else:
        stacks = {"decoder" if writes else "encoder": stack}
    found = [_read_layer(layer, one.norm) for one in stacks.values() for layer in one.layers]
    for other in found:
        for name, value in other.items():
            if value != found[0][name]:
                raise CheckpointError(
                    f"the layers differ in {name} ({found[0][name]}, {value}): ours, of both sides, do not"
                )
    fields = found[0]
    return {"kind": "-".join(stacks), **{f"n_{side}_layers": len(one.layers) for side, one in stacks.items()}, **fields}


def _read_layer(layer: Any, last_norm: nn.Module | None) -> dict[str, Any]:
    for plain in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        if isinstance(layer, plain) and type(layer).forward is not plain.forward:
            raise CheckpointError(
                f"{type(layer).__name__} has a forward of its own: it is not PyTorch's layer any more"
            )
    norms = {layer.norm1.eps, *(one.eps for one in layer.children() if isinstance(one, nn.LayerNorm))}
    if last_norm is not None:
        norms.add(getattr(last_norm, "eps", None))
    if len(norms) > 1:
        raise CheckpointError(f"its norms have different ε, {sorted(map(str, norms))}, which we do not have")
    for attention in (one for one in layer.children() if isinstance(one, nn.MultiheadAttention)):
        if attention.add_zero_attn or attention.bias_k is not None:
            raise CheckpointError("its attention has add_zero_attn or add_bias_kv, which we do not have")
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
            "final": last_norm is not None,
        },
        "ffn": {"activation": activation},
        "dropout": {"residual": layer.dropout1.p, "attention": layer.self_attn.dropout, "ffn": layer.dropout.p},
    }


def _tables(source: nn.Embedding | None, target: nn.Embedding | None, output: nn.Linear | None) -> dict[str, Any]:
    """Return the fields that the modules beside the stack show, sizes and tying."""
    fields: dict[str, Any] = {"tying": "none"}
    if source is not None:
        fields["source_vocabulary"] = source.num_embeddings
    if target is None:
        if output is not None:
            fields["classifier"] = {"classes": output.out_features, "pooling": "none"}
        return fields
    assert output is not None
    sides, ends = source is not None and source.weight is target.weight, output.weight is target.weight
    fields["tying"] = "all" if sides and ends else "source-target" if sides else "target-output" if ends else "none"
    return {**fields, "target_vocabulary": target.num_embeddings, "output_bias": output.bias is not None}
