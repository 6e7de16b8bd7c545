"""The parts of the model, each for what only it can get wrong."""

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig, Positions, load_config, preset
from glassformer.errors import DataError
from glassformer.inspect.trace import watch
from glassformer.model.attention import Mask, MultiHeadAttention, attention_mask
from glassformer.model.cache import KeyValues
from glassformer.model.dropout import Dropout
from glassformer.model.layer import FeedForward, Residual
from glassformer.model.position import Rotary, Sinusoidal, token_positions
from glassformer.model.tap import Tap
from glassformer.model.transformer import Embedding, Transformer
from tests.router import router

CPU = torch.device("cpu")


def decoder(**changes: object) -> ModelConfig:
    values = {
        "kind": "decoder",
        "target_vocabulary": 9,
        "n_decoder_layers": 1,
        "d_model": 16,
        "d_ff": 24,
        "n_heads": 4,
    }
    return ModelConfig.model_validate({**values, "tying": "none", **changes})


class TestMask:
    IDS = torch.zeros(2, 3, dtype=torch.long)

    def test_flags_stand_for_dense_masks_where_nothing_is_padded(self) -> None:
        assert attention_mask(self.IDS, 3, None, is_causal=False) == Mask(None)
        assert attention_mask(self.IDS, 3, None, is_causal=True) == Mask(None, causal=True)
        assert attention_mask(self.IDS[:, :1], 7, None, is_causal=True) == Mask(None)

    def test_a_chunk_looks_back_from_the_end(self) -> None:
        allowed = attention_mask(self.IDS[:, :2], 4, None, is_causal=True).allowed
        assert allowed is not None
        assert allowed.tolist() == [[True, True, True, False], [True, True, True, True]]

    def test_causal_and_padding_meet(self) -> None:
        is_real = torch.tensor([[True, True, False], [False, True, True]])
        allowed = attention_mask(self.IDS, 3, is_real, is_causal=True).allowed
        assert allowed is not None
        assert allowed[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
        assert allowed[1, 0].int().tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_without_keys_gives_zeros_and_a_clean_gradient(watched: bool, dtype: torch.dtype) -> None:
    attention = MultiHeadAttention(decoder(biases="none")).to(dtype)
    x = torch.randn(2, 5, 16, dtype=dtype, requires_grad=True)
    is_real = torch.tensor([[True] * 5, [False, False, True, True, False]])
    mask = attention_mask(torch.zeros(2, 5, dtype=torch.long), 5, is_real, is_causal=True)
    with watch(attention, *(["weights", "heads"] if watched else ["heads"])) as seen:
        out = attention(x, x, mask)
    assert (seen["heads"].values[1, :, :2] == 0).all()
    assert (out[1, :2] == 0).all()
    if watched:
        assert (seen["weights"].values[1, :, :2] == 0).all()
    out.sum().backward()
    for gradient in (x.grad, *(parameter.grad for parameter in attention.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()


def test_both_ways_of_attention_have_one_gradient() -> None:
    attention = MultiHeadAttention(decoder(n_kv_heads=2))
    x = torch.randn(2, 5, 16)
    is_real = torch.tensor([[True] * 5, [False, False, True, True, False]])
    mask = attention_mask(torch.zeros(2, 5, dtype=torch.long), 5, is_real, is_causal=True)
    gradients = []
    for names in (["weights"], ["heads"]):
        attention.zero_grad()
        with watch(attention, *names):
            attention(x, x, mask).square().sum().backward()
        gradients.append([p.grad.clone() for p in attention.parameters() if p.grad is not None])
    for explicit, fused in zip(*gradients, strict=True):
        assert (explicit - fused).abs().max() <= 1e-5


@pytest.mark.parametrize("n_kv_heads", [None, 2], ids=["its-own-keys", "shared-keys"])
def test_bfloat16_has_the_gradient_of_float32(n_kv_heads: int | None) -> None:
    """On a CPU the fused kernel's backward pass is slow in bfloat16, and attention goes other ways."""
    attention = MultiHeadAttention(decoder(n_kv_heads=n_kv_heads))
    x = torch.randn(8, 5, 16)
    is_real = torch.arange(5) < torch.randint(1, 6, (8, 1))
    mask = attention_mask(torch.zeros(8, 5, dtype=torch.long), 5, is_real, is_causal=True)
    gradients, results = [], []
    for enabled in (False, True):
        attention.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = attention(x, x, mask)
            with torch.no_grad():
                results.append((out.detach().float(), attention(x, x, mask).float()))
        assert out.dtype == (torch.bfloat16 if enabled else torch.float32)
        out.float().square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in attention.parameters() if p.grad is not None]))
    assert (gradients[1] - gradients[0]).norm() <= 0.02 * gradients[0].norm()
    for learning, writing in results:
        assert (learning - writing).abs().max() <= 2**-7 * writing.abs().max()


@pytest.mark.parametrize(
    "is_real", [torch.ones(2, 3), torch.ones(1, 3, dtype=torch.bool), torch.ones(2, 4, dtype=torch.bool)]
)
def test_masks_of_another_type_or_shape(is_real: Tensor) -> None:
    model, ids = Transformer(preset("reversal")).eval(), torch.full((2, 3), 5)
    with pytest.raises(DataError, match=r"is_real must be torch.bool of shape \(2, 3\), True at real tokens, not"):
        model.encode(ids, is_real=is_real)
    memory = model.encode(ids)
    with pytest.raises(DataError, match="is_real must be"):
        model.decode(ids, memory, is_real=is_real)


def test_half_precision_does_not_overflow_when_watched() -> None:
    attention = MultiHeadAttention(decoder(d_head=64, biases="none")).half()
    with torch.no_grad():
        for linear in (attention.w_q, attention.w_k):
            linear.weight.fill_(1.0)
    x = torch.full((1, 3, 16), 2.1, dtype=torch.float16)  # scores of 64 · 33.6² are past what float16 holds
    fused = attention(x, x, Mask(None))
    with watch(attention, "weights") as seen:
        explicit = attention(x, x, Mask(None))
    assert explicit.dtype == torch.float16
    assert torch.allclose(seen["weights"].values, torch.full((1, 4, 3, 3), 1 / 3), atol=1e-3)
    assert (explicit - fused).abs().max() <= 2e-3


class TestPositions:
    def test_padding_does_not_count(self) -> None:
        is_real = torch.tensor([[True, True, False], [False, True, True]])
        assert token_positions(3, is_real, first=0, device=CPU)[0, :2].tolist() == [0, 1]
        assert token_positions(3, is_real, first=2, device=CPU)[1, 1:].tolist() == [2, 3]
        assert token_positions(3, None, first=1, device=CPU).tolist() == [[1, 2, 3]]

    def test_halves_are_all_sines_then_all_cosines(self) -> None:
        at = torch.tensor([[7]])
        interleaved = Sinusoidal(Positions(), 8)(at, torch.float64)[0, 0]
        halves = Sinusoidal(Positions(ladder="halves"), 8)(at, torch.float64)[0, 0]
        assert torch.equal(halves, torch.cat([interleaved[0::2], interleaved[1::2]]))

    def test_tensor2tensor_ends_at_its_base(self) -> None:
        found = Sinusoidal(Positions(ladder="tensor2tensor"), 8)(torch.tensor([[1]]), torch.float64)[0, 0]
        angles = torch.tensor([1.0, 10000 ** (-1 / 3), 10000 ** (-2 / 3), 1e-4], dtype=torch.float64)
        assert torch.allclose(found, torch.cat([angles.sin(), angles.cos()]), atol=1e-12)

    def test_far_positions_keep_their_precision(self) -> None:
        found = Sinusoidal(Positions(), 512)(torch.tensor([[100_003]]), torch.float32)[0, 0, :2]
        angle = torch.tensor(100_003.0, dtype=torch.float64)
        assert torch.allclose(found.double(), torch.stack([angle.sin(), angle.cos()]), atol=1e-6)

    @pytest.mark.parametrize("convention", ["interleaved", "halves"])
    def test_rotary_is_multiplication_by_a_unit_complex_number(self, convention: str) -> None:
        positions = Positions.model_validate({"kind": "rotary", "convention": convention})
        x = torch.randn(1, 2, 3, 8, dtype=torch.float64)
        at = torch.tensor([[0, 5, 100]])
        turned = Rotary(positions, 8)(at).turn(x)
        omega = torch.tensor([10000.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64)
        turn = torch.polar(torch.ones(3, 4, dtype=torch.float64), at[0, :, None] * omega)

        def pairs(t: Tensor) -> Tensor:
            halves = (
                t.unflatten(-1, (4, 2)).movedim(-1, 0)
                if convention == "interleaved"
                else t.unflatten(-1, (2, 4)).movedim(-2, 0)
            )
            return torch.complex(halves[0].contiguous(), halves[1].contiguous())

        assert torch.allclose(pairs(turned), pairs(x) * turn, atol=1e-12)

    def test_rotary_scores_depend_on_the_distance_alone(self) -> None:
        """Through the whole attention: queries and keys are both turned."""
        attention = MultiHeadAttention(decoder(positions={"kind": "rotary"}))
        rotary, x = Rotary(Positions(kind="rotary"), 4), torch.randn(1, 3, 16)
        scores = []
        for start in (0, 17):
            with watch(attention, "scores") as seen:
                attention(x, x, Mask(None), rotation=rotary(torch.arange(start, start + 3)[None]))
            scores.append(seen["scores"].values)
        assert (scores[0] - scores[1]).abs().max() <= 1e-5
        with watch(attention, "scores") as seen:
            attention(x, x, Mask(None), rotation=rotary(torch.tensor([[0, 5, 6]])))
        assert (scores[0] - seen["scores"].values).abs().max() > 1e-2

    def test_sinusoids_and_rotations_have_no_end(self) -> None:
        for kind in ("sinusoidal", "rotary"):
            model = Transformer(decoder(positions={"kind": kind})).eval()
            with torch.inference_mode():
                assert model(target=torch.ones(1, 3000, dtype=torch.long)).isfinite().all()

    @pytest.mark.parametrize("first", [0, 2])
    def test_past_a_learned_table(self, first: int) -> None:
        model = Transformer(decoder(positions={"kind": "learned", "size": 6, "first": first})).eval()
        fits = 6 - first
        assert model(target=torch.ones(1, fits, dtype=torch.long)).shape == (1, fits, 9)
        with pytest.raises(
            DataError, match=r"reaches position 6, but the learned table ends at 5 \(positions\.size=6\)"
        ):
            model(target=torch.ones(1, fits + 1, dtype=torch.long))

    def test_padding_is_never_past_a_learned_table(self) -> None:
        model = Transformer(decoder(positions={"kind": "learned", "size": 4})).eval()
        is_real = torch.tensor([[True] * 4 + [False] * 3, [False] * 3 + [True] * 4])
        assert model(target=torch.ones(2, 7, dtype=torch.long), target_is_real=is_real).isfinite().all()


class TestCache:
    def test_buffers_grow_by_doubling(self) -> None:
        key_values, copies, last = KeyValues(), 0, 0
        for step in range(200):
            keys, _ = key_values.append(torch.full((1, 1, 1, 2), float(step)), torch.zeros(1, 1, 1, 2))
            copies += keys.untyped_storage().data_ptr() != last
            last = keys.untyped_storage().data_ptr()
            assert keys[0, 0, :, 0].tolist() == [float(i) for i in range(step + 1)]
        assert copies <= 9

    def test_a_call_that_failed_leaves_nothing_behind(self) -> None:
        model = Transformer(decoder(n_decoder_layers=2)).eval()
        with torch.inference_mode():
            whole = model(target=torch.tensor([[1, 2, 3, 4]]))
            cache = model.new_cache()
            model.decode(torch.tensor([[1, 2, 3]]), cache=cache)
            with pytest.raises(IndexError):
                model.decode(torch.tensor([[99]]), cache=cache)
            handle = model.get_submodule("decoder.layers.1.ffn.up").register_forward_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.decode(torch.tensor([[7]]), cache=cache)
            handle.remove()
            assert (model.decode(torch.tensor([[4]]), cache=cache) - whole[:, 3:]).abs().max() <= 1e-6

    def test_appending_after_a_selection_leaves_the_old_rows_alone(self) -> None:
        key_values = KeyValues()
        first, _ = key_values.append(torch.arange(4.0).view(2, 1, 2, 1), torch.zeros(2, 1, 2, 1))
        kept = first.clone()
        key_values.select(torch.tensor([1, 1]))
        key_values.append(torch.full((2, 1, 1, 1), 9.0), torch.zeros(2, 1, 1, 1))
        assert torch.equal(first, kept)


class TestDropout:
    def test_shares_and_scale(self) -> None:
        dropped = Dropout(0.1)(torch.ones(1001, 999))
        assert (dropped == 0).float().mean().item() == pytest.approx(0.1, abs=0.002)
        assert dropped.mean().item() == pytest.approx(1.0, abs=0.002)
        assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.9], rel=1e-4)

    def test_neighbours_are_independent(self) -> None:
        zeros = (Dropout(0.3)(torch.ones(100_000, 4)) == 0).float()
        correlation = torch.corrcoef(zeros.T) - torch.eye(4)
        assert correlation.abs().max() < 0.02

    def test_off_outside_training_and_at_zero(self) -> None:
        x = torch.ones(5)
        assert Dropout(0.5).eval()(x) is x
        assert Dropout(0.0)(x) is x

    def test_gradient_passes_where_the_value_did(self) -> None:
        x = torch.ones(7, 3, requires_grad=True)
        out = Dropout(0.5)(x)
        out.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, out.detach())

    def test_depends_on_the_seed(self) -> None:
        draws = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            draws.append(Dropout(0.5)(torch.ones(64)))
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])

    def test_the_models_rates_are_the_configs(self) -> None:
        rates = ["model.dropout.residual=0.3", "model.dropout.attention=0.2", "model.dropout.ffn=0.4"]
        model = Transformer(load_config("reversal", rates))
        found = {name: module.p for name, module in model.named_modules() if isinstance(module, Dropout)}
        assert {p for name, p in found.items() if name.endswith("ffn.dropout")} == {0.4}
        assert {p for name, p in found.items() if "residual" in name or "embedding" in name} == {0.3}
        attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
        assert {attention.dropout for attention in attentions} == {0.2}
        assert len(attentions) == 6

    def test_embeddings_sublayers_and_hidden_numbers_are_dropped(self) -> None:
        x, ids = torch.randn(1, 5, 16), torch.ones(1, 5, dtype=torch.long)
        for part, module, call in (
            ("residual", Embedding, lambda embedding: embedding(ids, ids)),
            ("residual", Residual, lambda residual: residual.leave(x, x)),
            ("ffn", FeedForward, lambda ffn: ffn(x)),
        ):
            for rate in (0.5, 0.0):
                config = decoder(dropout={"residual": 0.0, part: rate})
                built = module(config, 9) if module is Embedding else module(config)
                assert torch.equal(call(built), call(built)) == (rate == 0.0), module
                assert torch.equal(call(built.eval()), call(built)), module

    @pytest.mark.parametrize("p", [1e-6, 0.999999])
    def test_the_smallest_and_largest_rates_still_drop_and_keep(self, p: float) -> None:
        dropped = Dropout(p)(torch.ones(4_000_000))
        assert 0 < (dropped == 0).float().mean() < 1

    def test_keeps_the_type(self) -> None:
        for dtype in (torch.float64, torch.bfloat16):
            assert Dropout(0.1)(torch.ones(100, dtype=dtype)).dtype == dtype
        assert Dropout(0.1)(torch.ones(100, dtype=torch.float64)).max().item() == pytest.approx(1 / 0.9, rel=1e-5)

    @pytest.mark.parametrize("watched", [False, True])
    def test_attention_dropout_acts_in_training_only(self, watched: bool) -> None:
        attention = MultiHeadAttention(decoder(dropout={"attention": 0.9}))
        x = torch.randn(1, 5, 16)
        with watch(attention, "weights" if watched else "heads"):
            assert not torch.equal(attention(x, x, Mask(None)), attention(x, x, Mask(None)))
            attention.eval()
            assert torch.equal(attention(x, x, Mask(None)), attention(x, x, Mask(None)))


class TestTransformer:
    def test_initialisations(self) -> None:
        for choice, low, high in (("pytorch", 0.07, 0.075), ("xavier", 0.12, 0.13), ("normal", 0.019, 0.021)):
            model = Transformer(load_config("reversal", [f"model.initialisation={choice}"]))
            assert model.encoder is not None
            spread = model.encoder.layers[0].get_parameter("self_attention.w_q.weight").std().item()
            assert low < spread < high, choice
            bias = model.encoder.layers[0].get_parameter("self_attention.w_q.bias")
            assert (bias == 0).all() == (choice != "pytorch")
        table = Transformer(preset("reversal")).encoder.embedding.tokens.weight  # type: ignore[union-attr]
        assert table.std().item() == pytest.approx(1 / 8, rel=0.05)

    def test_a_whole_config_stands_for_its_model(self) -> None:
        assert Transformer(preset("reversal")).config == preset("reversal").model

    @pytest.mark.parametrize(
        ("name", "call", "sentence"),
        [
            ("reversal", {"source": [[3]]}, "reads a target, but none was given"),
            ("reversal", {"target": [[3]]}, "reads a source, but none was given"),
            ("microscope", {"source": [[3]]}, "reads a target, but none was given"),
            ("router", {"target": [[3]]}, "reads a source, but none was given"),
            (
                "router",
                {"source": [[3]], "token_types": [[0]]},
                "token types were given, but the model has none",
            ),
        ],
    )
    def test_wrong_sides(self, name: str, call: dict[str, list[list[int]]], sentence: str) -> None:
        with pytest.raises(DataError, match=sentence):
            Transformer(router() if name == "router" else preset(name))(
                **{side: torch.tensor(ids) for side, ids in call.items()}
            )

    def test_wrong_halves(self) -> None:
        ids = torch.tensor([[3]])
        with pytest.raises(DataError, match="has no encoder"):
            Transformer(preset("microscope")).encode(ids)
        with pytest.raises(DataError, match="has no decoder"):
            Transformer(router()).decode(ids)
        model = Transformer(preset("reversal"))
        with pytest.raises(DataError, match="decodes with a memory"):
            model.decode(ids)
        with pytest.raises(DataError, match="a decoder alone without"):
            Transformer(preset("microscope")).decode(ids, model.encode(ids))

    def test_an_encoder_without_a_classifier_gives_its_states(self) -> None:
        config = ModelConfig.model_validate(
            {
                "kind": "encoder",
                "source_vocabulary": 9,
                "n_encoder_layers": 1,
                "d_model": 16,
                "n_heads": 2,
                "tying": "none",
            }
        )
        model = Transformer(config).eval()
        ids = torch.tensor([[1, 2, 3]])
        assert torch.equal(model(ids), model.encode(ids).states)

    def test_ids_never_decide_what_is_padding(self) -> None:
        """Id 0 is the toy's PAD; without lengths that say so it is a token like any other."""
        model = Transformer(preset("reversal")).eval()
        with torch.inference_mode():
            one = model(torch.tensor([[5, 3, 0]]), torch.tensor([[1]]))
            other = model(torch.tensor([[5, 3, 4]]), torch.tensor([[1]]))
        assert (one - other).abs().max() > 1e-3

    def test_probabilities_are_made_only_when_watched(self) -> None:
        model = Transformer(preset("reversal")).eval()
        ids = torch.tensor([[3]])
        with watch(model, "logits", "probabilities") as seen:
            model(ids, ids)
        assert torch.allclose(seen["probabilities"].values, seen["logits"].values.softmax(-1))

    def test_printed_model_shows_the_axes(self) -> None:
        assert "Tap(B H T S)" in repr(Transformer(preset("microscope")))
        assert Tap("B H T S").axes == ("B", "H", "T", "S")

    def test_bfloat16_follows_float32(self) -> None:
        model = Transformer(preset("reversal")).eval()
        source, target = torch.randint(3, 13, (4, 8)), torch.randint(3, 13, (4, 9))
        is_real = torch.arange(8) < torch.tensor([[8], [3], [5], [1]])
        with torch.inference_mode():
            full = model(source, target, source_is_real=is_real)
            half = model.to(torch.bfloat16)(source, target, source_is_real=is_real)
        assert half.dtype == torch.bfloat16
        assert (half.float() - full).abs().max() <= 0.1
