"""Models that others wrote and many use: what they are is known, and the report must say it."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassformer as gf
from glassformer.verification.report import Report

transformers = pytest.importorskip("transformers")

V = 17
SIZES = {"d_model": 32, "d_ff": 64, "n_heads": 4, "n_decoder_layers": 2}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": 2,
}  # fmt: skip


def decoder(**fields: Any) -> gf.ModelConfig:
    return gf.ModelConfig.model_validate({"kind": "decoder", "target_vocabulary": V} | SIZES | fields)


def encoder_decoder(**fields: Any) -> gf.ModelConfig:
    sizes = SIZES | {"source_vocabulary": V, "target_vocabulary": V, "n_encoder_layers": 2}
    return gf.ModelConfig.model_validate(sizes | fields)


def names(found: Report) -> list[str]:
    assert found.explained, str(found)
    return sorted(cause.name for cause in found.causes)


@pytest.mark.parametrize(("activation", "causes"), [("gelu-tanh", []), ("gelu", ["activation-gelu-tanh"])])
def test_gpt2(activation: str, causes: list[str]) -> None:
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=V, n_positions=32, n_embd=32, n_layer=2, n_head=4, n_inner=64, **TOKENS)
    )
    ours = decoder(
        norm={"placement": "pre"}, positions={"kind": "learned", "size": 32}, ffn={"activation": activation},
        embedding={"scale": False}, tying="target-output",
    )  # fmt: skip
    found = gf.verify(theirs, ours)
    assert names(found) == causes
    if causes:  # the place is that of the formula, which works in several operations, not of what goes in
        assert found.first is not None
        assert found.first.theirs.startswith("transformer.h.0.mlp.act, ")
        assert found.first.largest is not None
        assert found.first.largest < 1e-2


@pytest.mark.parametrize(
    ("changed", "causes"),
    [
        ({"norm": {"eps": 1e-6}, "positions": {"convention": "halves"}}, []),
        ({}, ["epsilon-1e-06", "rope-halves"]),
        ({"norm": {"eps": 1e-6}, "positions": {"kind": "sinusoidal"}}, ["positions-rotary", "rope-halves"]),
    ],
)
def test_llama(changed: dict[str, Any], causes: list[str]) -> None:
    """Its gate stands before the other branch, its norms and angles are computed in float32."""
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, **TOKENS,
        )
    )  # fmt: skip
    norm, positions = ({"kind": "rmsnorm", "placement": "pre"}, {"kind": "rotary"})
    ours = decoder(
        n_kv_heads=2, norm=norm | changed.get("norm", {}), positions=positions | changed.get("positions", {}),
        ffn={"activation": "silu", "gated": True}, biases="none", embedding={"scale": False}, tying="none",
    )  # fmt: skip
    assert names(gf.verify(theirs, ours)) == causes


def test_settings_that_make_them_equal(tmp_path: Path) -> None:
    """What the report says of our fields, taken at its word, leaves no difference."""
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=V, n_positions=32, n_embd=32, n_layer=2, n_head=4, n_inner=64, **TOKENS)
    )
    file = tmp_path / "paper.toml"
    sizes = "\n".join(f"{name} = {value}" for name, value in SIZES.items())
    file.write_text(f'[model]\nkind = "decoder"\ntarget_vocabulary = {V}\ntying = "target-output"\n{sizes}\n')
    found = gf.verify(theirs, file)
    assert names(found) == ["activation-gelu-tanh", "no-embedding-scale", "positions-learned", "pre-for-post"]
    settings = tuple(setting for cause in found.causes for setting in cause.settings)
    assert "model.norm.placement=pre" in settings
    assert f"Ours     does so with {settings[0]}\n" in str(found)
    assert gf.verify(theirs, file, overrides=settings).equal


def told(model: nn.Module, source: Tensor, target: Tensor, source_is_real: Tensor, target_is_real: Tensor) -> Tensor:
    logits: Tensor = model(
        input_ids=source, attention_mask=source_is_real.long(), decoder_input_ids=target,
        decoder_attention_mask=target_is_real.long(),
    ).logits  # fmt: skip
    return logits


@pytest.mark.parametrize(("ladder", "causes"), [("halves", []), ("interleaved", ["ladder-halves"])])
def test_marian(ladder: str, causes: list[str]) -> None:
    """Its sinusoids stand in a frozen parameter, in float32."""
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(**SEQ2SEQ, scale_embedding=True, activation_function="relu")
    )
    found = gf.verify(told, encoder_decoder(positions={"ladder": ladder}), weights=theirs)
    assert names(found) == causes


def test_bart() -> None:
    """Its positions begin with the third row of a table, and a norm follows them."""
    theirs = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SEQ2SEQ, bos_token_id=1, activation_function="gelu")
    )
    ours = encoder_decoder(
        positions={"kind": "learned", "size": 64}, ffn={"activation": "gelu"}, embedding={"scale": False}
    )
    assert names(gf.verify(told, ours, weights=theirs)) == ["first-position-2", "norm-on-embedding"]


class LanguageModel(nn.Module):
    """PyTorch's encoder with a causal mask, which takes (T, B), between sinusoids in a buffer and an output."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(64)[:, None] * torch.exp(torch.arange(0, 32, 2) * (-math.log(10000.0) / 32))
        table = torch.stack([angles.sin(), angles.cos()], dim=2).view(64, 1, 32)
        self.register_buffer("positions", table)
        self.embedding, self.output = nn.Embedding(V, 32), nn.Linear(32, V)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64), 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * 32**0.5 + self.positions[: len(ids)]
        mask = nn.Transformer.generate_square_subsequent_mask(len(ids))
        logits: Tensor = self.output(self.encoder(x, mask))
        return logits


def test_a_language_model_of_pytorchs_encoder() -> None:
    ours = decoder(tying="none", output_bias=True)
    found = gf.verify(lambda model, ids: model(ids.T).transpose(0, 1), ours, weights=LanguageModel())
    assert found.equal
    assert max(found.differences.values()) > 1e-12  # the table is in float32
    assert not any("(T, B)" in note for note in found.notes)
    found = gf.verify(LanguageModel(), ours)
    assert found.equal, str(found)
    assert any("takes its ids as (T, B)" in note for note in found.notes)


class Plain(nn.Module):
    """A decoder of the smallest kind, with what people do in their own way."""

    def __init__(self, *, heads: int = 4, std: bool = False, parallel: bool = False, scaled: bool = False) -> None:
        super().__init__()
        self.heads, self.std, self.parallel, self.scaled = heads, std, parallel, scaled
        self.tokens, self.positions = nn.Embedding(V, 32), nn.Embedding(48, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, V, bias=False)
        self.gammas = nn.ParameterList(torch.ones(32) for _ in range(3))
        self.betas = nn.ParameterList(torch.zeros(32) for _ in range(3))

    def norm(self, x: Tensor, i: int) -> Tensor:
        if not self.std:
            return nn.functional.layer_norm(x, (32,), self.gammas[i], self.betas[i])
        return self.gammas[i] * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.betas[i]

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return attended

    def forward(self, ids: Tensor) -> Tensor:
        x = self.positions(torch.arange(ids.shape[1])) + self.tokens(ids)  # the table of positions is read first
        y = x + self.attend(self.norm(x, 0))
        x = y + self.down(torch.relu(self.up(self.norm(x if self.parallel else y, 1))))
        logits: Tensor = self.head(self.norm(x, 2))
        return logits * 32**-0.5 if self.scaled else logits


@pytest.mark.parametrize(
    ("options", "causes"),
    [
        ({}, []),
        ({"heads": 8}, ["heads-8"]),
        ({"std": True}, ["divided-by-deviation"]),
        ({"parallel": True}, ["sublayers-parallel"]),
        ({"scaled": True}, ["logits-scaled"]),
        ({"std": True, "scaled": True, "heads": 2}, ["divided-by-deviation", "heads-2", "logits-scaled"]),
    ],
)
def test_plain(options: dict[str, Any], causes: list[str]) -> None:
    ours = decoder(
        n_decoder_layers=1, norm={"placement": "pre"}, positions={"kind": "learned", "size": 32},
        embedding={"scale": False}, tying="none",
    )  # fmt: skip
    assert names(gf.verify(Plain(**options), ours)) == causes


def test_other_positions() -> None:
    ours = decoder(n_decoder_layers=1, norm={"placement": "pre"}, embedding={"scale": False}, tying="none")
    assert names(gf.verify(Plain(), ours)) == ["positions-learned"]


class Scaled(nn.Embedding):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.embedding_dim**0.5


class Fixed(Plain):
    """With sinusoids that are kept in float32, and another ε, which counts for less than their rounding."""

    def __init__(self) -> None:
        super().__init__()
        at = torch.arange(48.0)[:, None] / 10000 ** (torch.arange(0, 32, 2) / 32)
        self.register_buffer("waves", torch.stack([at.sin(), at.cos()], dim=-1).flatten(1))
        self.tokens = Scaled(V, 32)
        del self.positions

    def norm(self, x: Tensor, i: int) -> Tensor:
        return nn.functional.layer_norm(x, (32,), self.gammas[i], self.betas[i], 1e-6)

    def positions(self, at: Tensor) -> Tensor:  # type: ignore[override]
        return self.waves[at]  # type: ignore[index]


def test_what_hides_in_the_rounding() -> None:
    ours = decoder(n_decoder_layers=1, norm={"placement": "pre", "eps": 3e-6}, tying="none")
    found = gf.verify(Fixed(), ours)
    assert max(found.differences.values()) < 1e-6
    assert names(found) == ["epsilon-1e-06"]


class Asked(Plain):
    """The same, as others call it or call its parts."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.unread = nn.Linear(3, 3)
        up, down = self.up, self.down
        self.ffn = lambda x: down(torch.relu(up(x)))  # deepcopy leaves it with these very layers

    def forward(self, ids: Tensor) -> Tensor:
        if self.how == "shifts":
            ids = torch.cat([torch.full_like(ids[:, :1], 1), ids[:, :-1]], dim=1)
        x = self.positions(torch.arange(ids.shape[1])) + self.tokens(ids)
        x = x + self.attend(self.norm(x, 0))
        x = x + self.ffn(self.norm(x, 1))
        states = self.norm(x, 2)
        if self.how == "without output":
            return states
        logits: Tensor = self.head(states)
        return {"flat": logits.flatten(0, 1), "last": logits[:, -1]}.get(self.how, logits)


LIKE_PLAIN = {
    "n_decoder_layers": 1, "norm": {"placement": "pre"}, "positions": {"kind": "learned", "size": 32},
    "embedding": {"scale": False}, "tying": "none",
}  # fmt: skip


@pytest.mark.parametrize(("how", "causes"), [("", []), ("flat", []), ("shifts", ["target-shifted-inside"])])
def test_ways_to_be_called(how: str, causes: list[str]) -> None:
    theirs = Asked(how)
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    found = gf.verify(theirs, decoder(**LIKE_PLAIN))
    assert names(found) == causes
    assert found.unused == ("unread.weight", "unread.bias")
    assert "nothing depends on your unread.weight, unread.bias" in found.notes
    assert all(torch.equal(tensor, before[name]) for name, tensor in theirs.state_dict().items())
    assert theirs.ffn.__closure__[1].cell_contents is theirs.up


@pytest.mark.parametrize(
    ("how", "hint"),
    [("last", "of the last position alone"), ("without output", "that is d_model; is the output layer missing?")],
)
def test_no_logits(how: str, hint: str) -> None:
    with pytest.raises(gf.VerifyError, match=re.escape(hint)):
        gf.verify(Asked(how), decoder(**LIKE_PLAIN))


@pytest.mark.parametrize(
    ("changed", "causes"),
    [
        ({"d_ff": 128}, ["d-ff-64"]),
        ({"n_decoder_layers": 3}, ["layers-decoder-1"]),
        ({"d_model": 64, "d_ff": 128}, ["d-ff-64", "d-model-32"]),
        ({"ffn": {"gated": True}}, ["ffn-ungated"]),
    ],
)
def test_other_sizes(changed: dict[str, Any], causes: list[str]) -> None:
    found = gf.verify(Asked(""), decoder(**(LIKE_PLAIN | changed)))
    assert names(found) == causes


def test_heads_of_keys() -> None:
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, rms_norm_eps=1e-5, **TOKENS,
        )
    )  # fmt: skip
    ours = decoder(
        norm={"kind": "rmsnorm", "placement": "pre"}, positions={"kind": "rotary", "convention": "halves"},
        ffn={"activation": "silu", "gated": True}, biases="none", embedding={"scale": False}, tying="none",
    )  # fmt: skip
    assert names(gf.verify(theirs, ours)) == ["kv-heads-2"]


def test_padding_on_the_left() -> None:
    """Models that number positions by column, and let the targets see padding, are told apart from others."""
    (note,) = (note for note in gf.verify(Asked(""), decoder(**LIKE_PLAIN)).notes if "on the left" in note)
    assert note.endswith(
        "its positions count columns, padding too, and ours real tokens; and its decoder sees the padding"
    )
