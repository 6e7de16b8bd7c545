"""Models as Hugging Face makes them, small and drawn at random."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForTokenClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
)

from glassformer.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.letters("abcdefghijklmnopqrs")
V = TOKENIZER.size
SIZES = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
ENDS = {"eos_token_id": 2, "bos_token_id": 1}


def llama(**changes: Any) -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **ENDS, "num_key_value_heads": 2, **changes}))


def bert(**changes: Any) -> BertModel:
    return BertModel(BertConfig(**{**SIZES, "max_position_embeddings": 40, **changes}))


def tagger(**changes: Any) -> BertForTokenClassification:
    labels = {"id2label": {0: "noun", 1: "verb", 2: "other"}, "label2id": {"noun": 0, "verb": 1, "other": 2}}
    return BertForTokenClassification(BertConfig(**{**SIZES, "max_position_embeddings": 40, **labels, **changes}))


def marian(**changes: Any) -> MarianMTModel:
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))}  # fmt: skip
    config = MarianConfig(
        **{
            **sides,
            "vocab_size": V,
            "decoder_vocab_size": V,
            "d_model": 32,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "forced_eos_token_id": None,
            "activation_function": "swish",
            "scale_embedding": True,
            **changes,
        }
    )
    model = MarianMTModel(config)
    model.final_logits_bias.normal_()
    return model


CASES: dict[str, Callable[[], torch.nn.Module]] = {
    "llama": llama,
    "llama, tied": lambda: llama(tie_word_embeddings=True),
    "llama, biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama, heads of another size": lambda: llama(head_dim=10, num_key_value_heads=1),
    "llama, another base and activation": lambda: llama(
        rope_parameters={"rope_type": "default", "rope_theta": 5e5}, hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-5
    ),
    "bert": bert,
    "bert, relu": lambda: bert(hidden_act="relu", layer_norm_eps=1e-5),
    "bert, a tagger": tagger,
    "marian": marian,
    "marian, two tables": lambda: marian(share_encoder_decoder_embeddings=False),
    "marian, three tables": lambda: marian(share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
    "marian, relu, not scaled": lambda: marian(activation_function="relu", scale_embedding=False),
}


def drawn(name: str) -> Any:
    """Return a model of which no number is what it is in a fresh one."""
    torch.manual_seed(len(name))
    model = CASES[name]()
    with torch.no_grad():
        for one, parameter in model.named_parameters():
            if "embed_positions" not in one:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def saved(model: Any, directory: Path) -> Path:
    model.save_pretrained(directory)
    TOKENIZER.save(directory / "tokenizer.json")
    return directory


def results(model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return what a model of theirs makes of ids: logits, or the states of an encoder alone."""
    with torch.no_grad():
        if isinstance(model, MarianMTModel):
            return model(source, decoder_input_ids=target).logits
        out = model(source)
    return out.last_hidden_state if isinstance(model, BertModel) else out.logits
