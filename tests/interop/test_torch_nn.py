"""PyTorch's own modules become our model and the other way round."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig, Positions
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.torch_nn import from_torch, to_torch
from glassformer.model.position import Sinusoidal
from glassformer.model.transformer import Transformer

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
SIZES: dict[str, Any] = {"d_model": 16, "n_heads": 4, "d_ff": 24, "source_vocabulary": 11, "n_encoder_layers": 2}
PAIR = {**SIZES, "target_vocabulary": 11, "n_decoder_layers": 3}
ALONE = {"kind": "decoder", "d_model": 16, "n_heads": 4, "d_ff": 24, "target_vocabulary": 11, "n_decoder_layers": 2}
CASES: dict[str, dict[str, Any]] = {
    "as the paper": PAIR,
    "three tables, with a bias": {**PAIR, "tying": "none", "output_bias": True, "target_vocabulary": 13},
    "output tied": {**PAIR, "tying": "target-output", "target_vocabulary": 13},
    "sides tied": {**PAIR, "tying": "source-target"},
    "pre-norm, gelu, ε": {**PAIR, "norm": {"placement": "pre", "eps": 1e-6}, "ffn": {"activation": "gelu"}},
    "with PyTorch's last norms": {**PAIR, "norm": {"final": True}},
    "encoder": {**SIZES, "kind": "encoder", "tying": "none"},
    "learned positions": {**PAIR, "positions": {"kind": "learned", "size": 9}},
    "decoder": {**ALONE, "tying": "target-output"},
    "decoder, learned positions": {
        **ALONE,
        "positions": {"kind": "learned", "size": 9},
        "tying": "none",
        "output_bias": True,
        "norm": {"placement": "pre"},
        "ffn": {"activation": "gelu"},
    },
    "tagger": {**SIZES, "kind": "encoder", "tying": "none", "classifier": {"classes": 5, "pooling": "none"}},
}


def ours(name: str) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**CASES[name])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def theirs(modules: nn.ModuleDict, source: Tensor, target: Tensor, source_is_real: Tensor) -> Tensor:
    """What people write around nn.Transformer."""

    def embedded(side: str, ids: Tensor) -> Tensor:
        table, places = modules[side], torch.arange(ids.shape[1])[None]
        if f"{side}_positions" in modules:
            positions = modules[f"{side}_positions"](places)
        else:
            positions = Sinusoidal(Positions(), table.embedding_dim)(places, torch.float32)
        return table(ids) * table.embedding_dim**0.5 + positions

    stack = modules["transformer"]
    x = embedded("source" if "source" in modules else "target", source if "source" in modules else target)
    hidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
    if "source" not in modules:
        x = stack(x, mask=hidden, is_causal=True)
    elif "target" in modules:
        x = stack(x, embedded("target", target), tgt_mask=hidden, src_key_padding_mask=~source_is_real,
                  memory_key_padding_mask=~source_is_real, tgt_is_causal=True)  # fmt: skip
    else:
        x = stack(x, src_key_padding_mask=~source_is_real)
    return modules["output"](x) if "output" in modules else x


@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_both_ways(name: str) -> None:
    model = ours(name)
    modules = to_torch(model)
    source, target = torch.randint(11, (3, 7)), torch.randint(11, (3, 5))
    is_real = torch.arange(7) < torch.tensor([[7], [4], [6]])
    kind = model.config.kind
    with torch.no_grad():
        expected = theirs(modules.train(False).requires_grad_(True), source, target, is_real)
        found = model.decode(target) if kind == "decoder" else model(source, target, source_is_real=is_real)
    if kind == "encoder":  # rows of padding are anything
        expected, found = expected[is_real], found[is_real]
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    back = from_torch(
        modules["transformer"], **{name: module for name, module in modules.items() if name != "transformer"}
    )
    assert back.config.model_copy(update={"dropout": model.config.dropout, "norm": model.config.norm}) == model.config
    assert back.config.final_norm == model.config.final_norm
    for (a, x), (b, y) in zip(model.named_parameters(), back.named_parameters(), strict=True):
        assert a == b
        assert torch.equal(x, y)


def test_dropout_is_read() -> None:
    stack = nn.Transformer(16, 4, 1, 1, 24, dropout=0.3)
    table = nn.Embedding(9, 16)
    model = from_torch(stack, source=table, target=table, output=nn.Linear(16, 9))
    assert model.config.dropout.model_dump() == {"residual": 0.3, "attention": 0.3, "ffn": 0.3}
    assert model.config.final_norm


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": {"kind": "rmsnorm"}}, "LayerNorm"),
        ({"biases": "ffn"}, "biases everywhere"),
        ({"ffn": {"activation": "silu"}}, "relu or gelu without a gate"),
        ({"n_kv_heads": 2}, "as many key as query heads"),
        ({"positions": {"kind": "rotary"}}, "positions that are added"),
    ],
)
def test_no_equal_there(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        to_torch(Transformer(ModelConfig(**{**PAIR, **changes})))


def test_no_equal_here() -> None:
    table, output = nn.Embedding(9, 16), nn.Linear(16, 9)
    with pytest.raises(CheckpointError, match="have no biases"):
        from_torch(nn.Transformer(16, 4, 1, 1, 24, bias=False), source=table, target=table, output=output)
    with pytest.raises(CheckpointError, match="its activation is"):
        from_torch(nn.Transformer(16, 4, 1, 1, 24, activation=torch.tanh), source=table, target=table, output=output)
    whole, alone = nn.Transformer(16, 4, 1, 1, 24), nn.TransformerEncoderLayer(16, 4, 24)
    with pytest.raises(CheckpointError, match="say which modules are its source's and target's embedding"):
        from_torch(whole, source=table)
    with pytest.raises(CheckpointError, match="say which module is its output"):
        from_torch(whole, source=table, target=table)
    with pytest.raises(ConfigError, match="x"):
        from_torch(whole, source=table, target=table, output=output, settings={"x": 1})
    for both in ({}, {"source": table, "target": table, "output": output}):
        with pytest.raises(CheckpointError, match="one stack is an encoder or, with a causal mask, a decoder"):
            from_torch(alone, **both)
    with pytest.raises(CheckpointError, match="the layers differ in norm"):
        from_torch([alone, nn.TransformerEncoderLayer(16, 4, 24, norm_first=True)], source=table)
    with pytest.raises(
        CheckpointError, match=r"a Linear is not nn\.Transformer, nn\.TransformerEncoder or one of its layers"
    ):
        from_torch([alone, output], source=table)
    with pytest.raises(CheckpointError, match="there is no layer"):
        from_torch([], source=table)


def test_layers_alone() -> None:
    """One layer, or several in a list, with their tables: an encoder, or a decoder."""
    layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 4, 24, batch_first=True) for _ in range(2)).eval()
    table, output, ids = nn.Embedding(9, 16), nn.Linear(16, 9), torch.randint(9, (2, 5))
    settings = {"embedding": {"scale": False}, "positions": {"kind": "none"}}
    with torch.no_grad():
        one = from_torch(layers[0], source=table, settings=settings)
        torch.testing.assert_close(one(ids), layers[0](table(ids)), rtol=0, atol=1e-5)
        two = from_torch(layers, target=table, output=output, settings=settings)
        hidden = nn.Transformer.generate_square_subsequent_mask(5)
        expected = output(layers[1](layers[0](table(ids), hidden), hidden))
        torch.testing.assert_close(two.decode(ids), expected, rtol=0, atol=1e-5)


def test_what_would_change_the_numbers() -> None:
    """Modules that compute something else than they seem to, and settings that contradict them."""
    layer, table = nn.TransformerEncoderLayer(16, 4, 24, activation="gelu", norm_first=True), nn.Embedding(9, 16)
    for settings, message in (
        ({"norm": {"placement": "post"}}, "the settings say norm.placement='post', but the modules 'pre'"),
        ({"norm": {"final": True}}, "the settings say norm.final=True, but the modules False"),
        ({"ffn": {"activation": "relu"}}, "the settings say ffn.activation='relu', but the modules 'gelu'"),
        ({"n_heads": 8}, "the settings say n_heads=8, but the modules 4"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_torch(layer, source=table, settings=settings)
    with pytest.raises(CheckpointError, match=r"has nothing for encoder\.embedding\.norm\.weight"):
        from_torch(layer, source=table, settings={"norm": {"embedding": True}})
    model = from_torch(layer, source=table, settings={"ffn": {"gated": False}, "norm": {"kind": "layernorm"}})
    assert (model.config.ffn.activation, model.config.norm.placement) == ("gelu", "pre")
    learned = from_torch(
        layer, source=table, source_positions=nn.Embedding(7, 16), settings={"positions": {"first": 1}}
    )
    assert (learned.config.positions.kind, learned.config.positions.first) == ("learned", 1)

    class Other(nn.TransformerEncoderLayer):
        def forward(self, src: Tensor, *_: Any, **__: Any) -> Tensor:
            return src

    uneven, zeros = nn.TransformerEncoderLayer(16, 4, 24), nn.TransformerEncoderLayer(16, 4, 24)
    uneven.norm2.eps = 0.5
    zeros.self_attn = nn.MultiheadAttention(16, 4, add_zero_attn=True)
    for stack, message in (
        (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24), 2, norm=nn.LayerNorm(16, eps=0.5)),
            "different ε",
        ),
        (uneven, "different ε"),
        (zeros, "add_zero_attn"),
        (Other(16, 4, 24), "Other has a forward of its own"),
        (nn.TransformerDecoderLayer(16, 4, 24), "a TransformerDecoderLayer is not nn.Transformer"),
        (None, "a NoneType is not nn.Transformer"),
    ):
        with pytest.raises(CheckpointError, match=message):
            from_torch(stack, source=table)
    with pytest.raises(CheckpointError, match=r"source has max_norm=1\.0"):
        from_torch(layer, source=nn.Embedding(9, 16, max_norm=1.0))
    with pytest.raises(CheckpointError, match=r"output is a Sequential, where an nn\.Linear belongs"):
        from_torch(layer, target=table, output=nn.Sequential(nn.Linear(16, 9)))
