"""BERT's encoder (Devlin et al. 2018, arXiv:1810.04805): post-norm, learned positions, token types."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.interop.foreign import Settings
from glassformer.interop.layout import Layout, Part, layers, with_bias

ARCHITECTURES = ("BertModel", "BertForTokenClassification", "BertForMaskedLM", "BertForPreTraining")
LEFT_OUT = {  # what may stand beside an encoder; the states of the tokens pass through none of it
    "pooler.": "the pooler, which the states of the tokens do not pass through",
    "cls.": "the heads that predict hidden tokens and next sentences",
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
}
LAYER = {
    "self_attention.w_q": "attention.self.query", "self_attention.w_k": "attention.self.key",
    "self_attention.w_v": "attention.self.value", "self_attention.w_o": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "ffn.w_1": "intermediate.dense", "ffn.w_2": "output.dense", "ffn_residual.norm": "output.LayerNorm",
}  # fmt: skip


def read(settings: Settings) -> dict[str, Any]:
    """Return the fields of [model]."""
    settings.only("position_embedding_type", "absolute")
    settings.only("is_decoder", False)
    settings.only("add_cross_attention", False)
    (architecture,) = settings.get("architectures")
    labels = settings.get("id2label", {})
    fields: dict[str, Any] = {
        "kind": "encoder",
        "source_vocabulary": settings.count("vocab_size"),
        "n_encoder_layers": settings.count("num_hidden_layers"),
        "d_model": settings.count("hidden_size"),
        "d_ff": settings.count("intermediate_size"),
        "n_heads": settings.count("num_attention_heads"),
        "norm": {"eps": settings.number("layer_norm_eps", 1e-12), "embedding": True},
        "positions": {"kind": "learned", "size": settings.count("max_position_embeddings")},
        "ffn": {"activation": settings.choice("hidden_act", ACTIVATIONS, "gelu")},
        "embedding": {"scale": False, "token_types": settings.count("type_vocab_size")},
        "tying": "none",
        "initialisation": "normal",
        "dropout": {
            "residual": settings.number("hidden_dropout_prob", 0.1),
            "attention": settings.number("attention_probs_dropout_prob", 0.1),
        },
    }
    settings.ignore("classifier_dropout", "tie_word_embeddings")
    if architecture == "BertForTokenClassification":
        fields["classifier"] = {"classes": len(labels), "pooling": "none"}
    return fields


def own_weights(theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of the encoder and a classifier on it, by today's names; and in words what was left out."""
    is_classifier = any(name.startswith("classifier.") for name in theirs)
    found, left_out = {}, []
    for name, tensor in theirs.items():
        plain = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        plain = plain.replace("LayerNorm.beta", "LayerNorm.bias")
        extra = next((start for start in LEFT_OUT if plain.startswith(start)), None)
        if extra is None:
            found[f"bert.{plain}" if is_classifier and not plain.startswith("classifier.") else plain] = tensor
        elif LEFT_OUT[extra] not in left_out:
            left_out.append(LEFT_OUT[extra])
    return found, left_out


def layout(config: ModelConfig) -> Layout:
    """Return where each parameter stands."""
    embedding = {
        "tokens.weight": "word_embeddings.weight",
        "position_table.table.weight": "position_embeddings.weight",
        "token_types.weight": "token_type_embeddings.weight",
        **with_bias({"norm": "LayerNorm"}),
    }
    before = "" if config.classifier is None else "bert."
    found = {f"encoder.embedding.{ours}": Part(f"{before}embeddings.{theirs}") for ours, theirs in embedding.items()}
    found |= layers(config.n_encoder_layers, with_bias(LAYER), "encoder", f"{before}encoder.layer")
    if config.classifier is not None:
        found |= {f"output.{kind}": Part(f"classifier.{kind}") for kind in ("weight", "bias")}
    return found


def refusal(config: ModelConfig) -> str | None:
    """Say what a model lacks to be a BERT; None: it is one."""
    norm, classifier = config.norm, config.classifier
    needs = {
        "an encoder alone": config.kind == "encoder",
        "LayerNorm after each sublayer, with none at the end": norm.kind == "layernorm"
        and norm.placement == "post"
        and not config.final_norm,
        "a norm on the embedding": norm.embedding,
        "learned positions from 0": config.positions.kind == "learned" and not config.positions.first,
        "a network without a gate": not config.ffn.gated,
        "biases everywhere": config.biases == "all",
        "an embedding that is not scaled": not config.embedding.scale,
        "a table of token types": config.embedding.token_types > 0,
        "as many key as query heads, d_model / n_heads wide": config.kv_heads == config.n_heads
        and config.d_k * config.n_heads == config.d_model,
        "no classifier, or one for every token": classifier is None or classifier.pooling == "none",
    }
    return next((need for need, holds in needs.items() if not holds), None)


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    spelt = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "architectures": ["BertModel" if config.classifier is None else "BertForTokenClassification"],
        "model_type": "bert",
        "vocab_size": config.source_vocabulary,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_encoder_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": spelt[config.ffn.activation],
        "hidden_dropout_prob": config.dropout.residual,
        "attention_probs_dropout_prob": config.dropout.attention,
        "max_position_embeddings": config.positions.size,
        "type_vocab_size": config.embedding.token_types,
        "layer_norm_eps": config.norm.eps,
        "position_embedding_type": "absolute",
    }
