"""Llama-shaped and BERT-shaped models equal the classes of Hugging Face's transformers, with the same random weights."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched: the weights are random

import pytest
import torch
from torch import Tensor, nn

from glassformer.checkpoint import fill
from glassformer.config import Classifier, Dropout, Embedding, FeedForward, ModelConfig, Norm, Positions
from glassformer.data.batch import pad
from glassformer.inspect.trace import trace
from glassformer.model.transformer import Transformer

IDS = [[5, 9, 3, 17, 4, 8, 21, 30, 2], [7, 0, 11, 2], [13, 13, 6, 40, 22, 1]]


def randomised(model: nn.Module) -> dict[str, Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = torch.randn_like(parameter)
            parameter.copy_(1.0 + 0.2 * spread if "norm" in name.lower() and name.endswith("weight") else 0.2 * spread)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def renamed(theirs: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Return their tensors under our names; a part of a name stands for itself in every layer."""
    ours = {}
    for name, tensor in theirs.items():
        for old, new in names.items():
            name = name.replace(old, new)
        ours[name] = tensor
    return ours


LLAMA_NAMES = {
    "model.embed_tokens": "decoder.embedding.tokens",
    "model.layers": "decoder.layers",
    "model.norm": "decoder.norm",
    "lm_head": "output",
    "self_attn.q_proj": "self_attention.w_q",
    "self_attn.k_proj": "self_attention.w_k",
    "self_attn.v_proj": "self_attention.w_v",
    "self_attn.o_proj": "self_attention.w_o",
    "post_attention_layernorm": "ffn_residual.norm",
    "input_layernorm": "self_attention_residual.norm",
    "mlp.gate_proj": "ffn.w_gate",
    "mlp.up_proj": "ffn.w_1",
    "mlp.down_proj": "ffn.w_2",
}


@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
def test_llama(n_kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=50,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=n_kv_heads,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            tie_word_embeddings=False,
        )
    ).eval()
    config = ModelConfig(
        kind="decoder",
        target_vocabulary=50,
        n_decoder_layers=3,
        d_model=48,
        d_ff=80,
        n_heads=6,
        n_kv_heads=n_kv_heads,
        norm=Norm(kind="rmsnorm", eps=1e-5, placement="pre"),
        positions=Positions(kind="rotary", base=100_000.0, convention="halves"),
        ffn=FeedForward(activation="silu", gated=True),
        biases="none",
        embedding=Embedding(scale=False),
        tying="none",
        dropout=Dropout(residual=0.0),
    )
    ours = Transformer(config).eval()
    fill(ours, renamed(randomised(theirs), LLAMA_NAMES))
    ids, is_real = pad(IDS)
    assert is_real is not None
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=is_real.long()).logits
        found = ours(target=ids, target_is_real=is_real)
    assert (found - expected)[is_real].abs().max() <= 1e-5 * float(expected[is_real].abs().max())


def test_llama_conventions_differ_by_a_permutation_of_rows() -> None:
    """Interleaved pairs with permuted query and key rows are the halves."""
    halves = ModelConfig(
        kind="decoder",
        target_vocabulary=50,
        n_decoder_layers=2,
        d_model=32,
        d_ff=48,
        n_heads=4,
        n_kv_heads=2,
        positions=Positions(kind="rotary", convention="halves"),
        tying="none",
    )
    interleaved = halves.model_copy(update={"positions": Positions(kind="rotary")})
    torch.manual_seed(0)
    one, other = Transformer(halves).eval(), Transformer(interleaved).eval()
    weights = {name: parameter.detach().clone() for name, parameter in one.named_parameters()}
    for name, tensor in weights.items():
        if ".w_q." in name or ".w_k." in name:
            rows = tensor.unflatten(0, (-1, 2, 4))  # heads, halves, pairs
            weights[name] = rows.transpose(1, 2).flatten(0, 2)
    fill(other, weights)
    ids = torch.tensor(IDS[0])[None]
    with torch.no_grad():
        assert (one(target=ids) - other(target=ids)).abs().max() <= 1e-5


BERT_NAMES = {
    "embeddings.word_embeddings": "encoder.embedding.tokens",
    "embeddings.position_embeddings": "encoder.embedding.position_table.table",
    "embeddings.token_type_embeddings": "encoder.embedding.token_types",
    "embeddings.LayerNorm": "encoder.embedding.norm",
    "encoder.layer.": "encoder.layers.",
    "attention.self.query": "self_attention.w_q",
    "attention.self.key": "self_attention.w_k",
    "attention.self.value": "self_attention.w_v",
    "attention.output.dense": "self_attention.w_o",
    "attention.output.LayerNorm": "self_attention_residual.norm",
    "intermediate.dense": "ffn.w_1",
    "output.dense": "ffn.w_2",
    "output.LayerNorm": "ffn_residual.norm",
}


def bert(pooling: str | None = None) -> ModelConfig:
    return ModelConfig.model_validate(
        {
            "kind": "encoder",
            "source_vocabulary": 50,
            "n_encoder_layers": 3,
            "d_model": 48,
            "d_ff": 80,
            "n_heads": 6,
            "norm": Norm(eps=1e-12, embedding=True),
            "positions": Positions(kind="learned", size=20),
            "ffn": FeedForward(activation="gelu"),
            "embedding": Embedding(scale=False, token_types=2),
            "tying": "none",
            "classifier": None if pooling is None else Classifier.model_validate({"classes": 4, "pooling": pooling}),
        }
    )


def test_bert() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=50,
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=6,
            intermediate_size=80,
            max_position_embeddings=20,
        ),
        add_pooling_layer=False,
    ).eval()
    ours = Transformer(bert()).eval()
    fill(ours, renamed(randomised(theirs), BERT_NAMES))
    ids, is_real = pad(IDS)
    assert is_real is not None
    token_types = torch.zeros_like(ids)
    token_types[:, 3:] = 1
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=is_real.long(), token_type_ids=token_types).last_hidden_state
        found = ours(ids, source_is_real=is_real, token_types=token_types)
    assert (found - expected)[is_real].abs().max() <= 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("pooling", ["first", "mean", "none"])
def test_pooling(pooling: str) -> None:
    model = Transformer(bert(pooling)).eval()
    assert model.output is not None
    states = [trace(model, row, only="memory")["memory"].values[0] for row in IDS]
    pooled = [{"first": s[0], "mean": s.mean(dim=0), "none": s}[pooling] for s in states]
    ids, is_real = pad(IDS)
    with torch.no_grad():
        found = model(ids, source_is_real=is_real)
        for row, expected, length in zip(found, pooled, map(len, IDS), strict=True):
            row = row[:length] if pooling == "none" else row
            assert (row - model.output(expected)).abs().max() <= 1e-5
