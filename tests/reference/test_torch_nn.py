"""A post-norm encoder–decoder equals PyTorch's own nn.Transformer, with trained weights, once its two traps are disarmed."""

import math

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import load_config, preset
from glassformer.data.batch import pad
from glassformer.model.attention import Mask, MultiHeadAttention
from glassformer.model.layer import FeedForward, Layer
from glassformer.model.position import token_positions
from glassformer.model.transformer import Transformer
from glassformer.run import Run
from tests.reference import formulas

SOURCES = [[5, 3, 4, 7, 6], [9, 12, 3], [10, 4, 8, 3, 3, 7, 12, 5]]
TARGETS = [[1, 6, 7, 4, 3, 5], [1, 3, 12, 9], [1, 5, 12, 7, 3, 3, 8, 4, 10]]

# what PyTorch says of its own fast path, which is the second trap
pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    for name in ("weight", "bias"):
        stacked = torch.cat([getattr(w, name) for w in (ours.w_q, ours.w_k, ours.w_v)])
        getattr(theirs, f"in_proj_{name}").copy_(stacked)
        getattr(theirs.out_proj, name).copy_(getattr(ours.w_o, name))


def copy_ffn(theirs: nn.Module, ours: FeedForward) -> None:
    theirs.get_submodule("linear1").load_state_dict(ours.w_1.state_dict())
    theirs.get_submodule("linear2").load_state_dict(ours.w_2.state_dict())


def copy_layer(theirs: nn.Module, ours: Layer) -> None:
    residuals = [ours.self_attention_residual, ours.ffn_residual]
    copy_attention(theirs.self_attn, ours.self_attention)
    if ours.cross:
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        residuals.insert(1, ours.cross_attention_residual)
    for i, residual in enumerate(residuals, start=1):
        theirs.get_submodule(f"norm{i}").load_state_dict(residual.norm.state_dict())
    copy_ffn(theirs, ours.ffn)


@torch.no_grad()
def torch_twin(ours: Transformer, *, keep_final_norms: bool = False, nested: bool = False) -> nn.Transformer:
    """Return nn.Transformer with our weights. As it comes, it has both traps; without the arguments, neither."""
    config = ours.config
    twin = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.n_encoder_layers or 0,
        config.n_decoder_layers or 0,
        config.d_ff,
        activation=config.ffn.activation,
        norm_first=config.norm.placement == "pre",
        batch_first=True,
    ).eval()
    assert ours.encoder is not None
    assert ours.decoder is not None
    for theirs, stack in ((twin.encoder, ours.encoder), (twin.decoder, ours.decoder)):
        for their_layer, layer in zip(theirs.layers, stack.layers, strict=True):
            copy_layer(their_layer, layer)
        if stack.norm is not None:
            theirs.norm.load_state_dict(stack.norm.state_dict())
        elif not keep_final_norms:
            theirs.norm = None
    twin.encoder.use_nested_tensor = nested
    return twin


def embedded(ours: Transformer, ids: Tensor, is_real: Tensor) -> Tensor:
    assert ours.encoder is not None
    d_model = ours.config.d_model
    places = torch.from_numpy(formulas.positional_encoding(ids.shape[1], d_model)).to(torch.float32)
    table: Tensor = ours.encoder.embedding.tokens.weight
    positions = token_positions(ids.shape[1], is_real, first=0, device=ids.device)  # at padding any will do
    return table[ids] * math.sqrt(d_model) + places[positions]


@torch.no_grad()
def difference(ours: Transformer, twin: nn.Transformer) -> float:
    """Return the largest difference of the logits on a padded batch with both masks, padded rows included."""
    (source, source_is_real), (target, target_is_real) = pad(SOURCES), pad(TARGETS)
    assert source_is_real is not None
    assert target_is_real is not None
    mine = ours(source, target, source_is_real=source_is_real, target_is_real=target_is_real)
    states = twin(
        embedded(ours, source, source_is_real),
        embedded(ours, target, target_is_real),
        tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
        src_key_padding_mask=~source_is_real,
        tgt_key_padding_mask=~target_is_real,
        memory_key_padding_mask=~source_is_real,
    )
    assert ours.encoder is not None
    return float((mine - states @ ours.encoder.embedding.tokens.weight.T).abs().max())


def fresh() -> Transformer:
    torch.manual_seed(0)
    return Transformer(preset("reversal")).eval()


def test_equal_after_training(run: Run) -> None:
    assert difference(run.model, torch_twin(run.model)) <= 2e-6


def test_equal_before_training() -> None:
    model = fresh()
    assert difference(model, torch_twin(model)) <= 2e-6


def test_trap_1_the_final_norms_hide_before_training_and_bite_after(run: Run) -> None:
    model = fresh()
    assert difference(model, torch_twin(model, keep_final_norms=True)) <= 1e-4
    assert difference(run.model, torch_twin(run.model, keep_final_norms=True)) > 0.1


def test_trap_2_the_fast_path_returns_zeros_at_padding(run: Run) -> None:
    source, is_real = pad(SOURCES)
    assert is_real is not None
    with torch.no_grad():
        ours = run.model.encode(source, is_real=is_real).states
        apart = {}
        for nested in (True, False):
            twin = torch_twin(run.model, nested=nested)
            theirs = twin.encoder(embedded(run.model, source, is_real), src_key_padding_mask=~is_real)
            apart[nested] = (ours - theirs).abs()
    assert apart[True][~is_real].max() > 1.0
    assert apart[True][is_real].max() <= 1e-5
    assert apart[False].max() <= 1e-5


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_random_models_of_both_placements(placement: str, activation: str) -> None:
    overrides = [
        f"model.norm.placement={placement}",
        f"model.ffn.activation={activation}",
        "model.norm.eps=1e-5",
    ]
    torch.manual_seed(0)
    model = Transformer(load_config("reversal", overrides)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert difference(model, torch_twin(model)) <= 1e-5


def test_one_encoder_layer() -> None:
    model = fresh()
    assert model.encoder is not None
    theirs = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()
    ours = model.encoder.layers[0]
    assert isinstance(ours, Layer)
    with torch.no_grad():
        copy_layer(theirs, ours)
        x = torch.randn(1, 5, 64)
        assert (ours(x, Mask(None), None) - theirs(x)).abs().max() <= 1e-6


def test_gradients_through_padding_are_torchs_own() -> None:
    model = fresh()
    twin = torch_twin(model).train()
    for module in twin.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    (source, is_real), (target, target_is_real) = pad(SOURCES), pad(TARGETS)
    assert is_real is not None
    assert target_is_real is not None
    assert model.encoder is not None
    model(source, target, source_is_real=is_real)[target_is_real].square().mean().backward()
    states = twin(
        embedded(model, source, is_real).detach(),
        embedded(model, target, target_is_real).detach(),
        tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
        src_key_padding_mask=~is_real,
        memory_key_padding_mask=~is_real,
    )
    logits = states @ model.encoder.embedding.tokens.weight.detach().T
    logits[target_is_real].square().mean().backward()
    theirs = twin.encoder.layers[0].self_attn.in_proj_weight.grad
    ours = model.encoder.layers[0].self_attention
    mine = torch.cat([w.weight.grad for w in (ours.w_q, ours.w_k, ours.w_v)])
    assert (mine - theirs).abs().max() <= 1e-5 * float(theirs.abs().max())
