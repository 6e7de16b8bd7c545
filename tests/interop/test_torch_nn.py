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
CASES: dict[str, dict[str, Any]] = {
    "as the paper": PAIR,
    "three tables, with a bias": {**PAIR, "tying": "none", "output_bias": True, "target_vocabulary": 13},
    "output tied": {**PAIR, "tying": "target-output", "target_vocabulary": 13},
    "sides tied": {**PAIR, "tying": "source-target"},
    "pre-norm, gelu, ε": {**PAIR, "norm": {"placement": "pre", "eps": 1e-6}, "ffn": {"activation": "gelu"}},
    "with PyTorch's last norms": {**PAIR, "norm": {"final": True}},
    "encoder": {**SIZES, "kind": "encoder", "tying": "none"},
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
        table = modules[side]
        return table(ids) * table.embedding_dim**0.5 + Sinusoidal(Positions(), table.embedding_dim)(
            torch.arange(ids.shape[1])[None], torch.float32
        )

    stack, x = modules["transformer"], embedded("source", source)
    if "target" in modules:
        hidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
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
    encoder_alone = not model.config.has_decoder
    with torch.no_grad():
        expected = theirs(modules.train(False).requires_grad_(True), source, target, is_real)
        found = model(source, None if encoder_alone else target, source_is_real=is_real)
    if encoder_alone:  # rows of padding are anything
        expected, found = expected[is_real], found[is_real]
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    back = from_torch(
        modules["transformer"],
        source=modules["source"],
        target=modules["target"] if "target" in modules else None,  # noqa: SIM401  no mapping
        output=modules["output"] if "output" in modules else None,  # noqa: SIM401  no mapping
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
        ({"kind": "decoder", "n_encoder_layers": None, "source_vocabulary": None, "tying": "none"}, "an encoder"),
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
    with pytest.raises(CheckpointError, match="say which modules are its target's embedding"):
        from_torch(nn.Transformer(16, 4, 1, 1, 24), source=table)
    with pytest.raises(ConfigError, match="x"):
        from_torch(nn.Transformer(16, 4, 1, 1, 24), source=table, target=table, output=output, settings={"x": 1})
