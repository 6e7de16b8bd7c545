"""The right values of the 2017 machine, one after the other, as the paper and its tutorial page give them."""

import math

import numpy as np
import pytest
import torch

from glassformer.config import ModelConfig, Schedule, load_config, preset
from glassformer.config.model import Norm
from glassformer.inspect.count import count
from glassformer.inspect.positions import shift, table, waves
from glassformer.inspect.shapes import shapes
from glassformer.learn.loss import cross_entropy, smoothing_floor
from glassformer.learn.schedule import learning_rate
from glassformer.model.layer import make_norm
from glassformer.model.transformer import Transformer
from tests.reference import formulas
from tests.router import SEED

BASE = preset("paper-base").model
TOY = preset("reversal").model


def near(expected: object, digits: int) -> object:
    return pytest.approx(expected, abs=0.5001 * 10**-digits)


class TestPositions:
    def test_first_columns_of_position_1(self) -> None:
        assert table(TOY, [1])[0][:4] == near([0.841, 0.540, 0.682, 0.732], 3)

    @pytest.mark.parametrize("config", [TOY, BASE])
    def test_position_2_begins_alike_for_any_width(self, config: ModelConfig) -> None:
        assert table(config, [2])[0][:2] == near([0.909, -0.416], 3)

    @pytest.mark.parametrize(
        ("config", "expected"), [(TOY, [6.3, 8.4, 628.3, 47117.2]), (BASE, [6.3, 6.5, 628.3, 60611.5])]
    )
    def test_wavelengths(self, config: ModelConfig, expected: list[float]) -> None:
        d, found = config.d_model, waves(config)
        assert [found[i].wavelength for i in (0, 1, d // 4, d // 2 - 1)] == near(expected, 1)

    def test_shift_is_a_rotation(self) -> None:
        turned = {position: pair for position, pair, _ in shift(TOY, pair=5, by=3, at=[0, 10, 40]).rows}
        assert turned[0] == near((0.6529, 0.7574), 4)
        assert turned[10] == near((0.0588, -0.9983), 4)
        assert turned[40] == near((-0.6977, -0.7164), 4)

    def test_turned_pair_is_the_later_pair(self) -> None:
        for _, turned, later in shift(BASE, pair=17, by=-4, at=[4, 100, 2000]).rows:
            assert turned == pytest.approx(later, abs=1e-9)


def test_layer_norm_of_1_2_3_6() -> None:
    norm = make_norm(
        ModelConfig(kind="decoder", target_vocabulary=2, n_decoder_layers=1, d_model=4, n_heads=1, tying="none")
    )
    normed = norm(torch.tensor([1.0, 2.0, 3.0, 6.0])).tolist()
    assert normed == near([-1.069, -0.535, 0.0, 1.604], 3)
    assert formulas.layer_norm(np.array([1.0, 2, 3, 6]), np.ones(4), np.zeros(4)) == near(normed, 4)


class TestShapes:
    def shapes(self, source_length: int, target_length: int) -> dict[str, tuple[int, ...]]:
        return {s.name: s.shape for s in shapes(TOY, source_length=source_length, target_length=target_length)}

    def test_source_5_target_6(self) -> None:
        found = self.shapes(5, 6)
        assert found["encoder.embedding.positioned"] == (1, 5, 64)
        for name in "qkv":
            assert found[f"encoder.layers.0.self_attention.{name}"] == (1, 4, 5, 16)
        assert found["encoder.layers.0.self_attention.weights"] == (1, 4, 5, 5)
        assert found["encoder.layers.0.ffn.hidden"] == (1, 5, 256)
        assert found["memory"] == (1, 5, 64)
        assert found["decoder.layers.0.self_attention.weights"] == (1, 4, 6, 6)
        assert found["decoder.layers.1.cross_attention.weights"] == (1, 4, 6, 5)
        assert found["logits"] == (1, 6, 13)

    def test_source_7_target_8(self) -> None:
        found = self.shapes(7, 8)
        assert found["encoder.embedding.positioned"] == (1, 7, 64)
        assert found["decoder.embedding.positioned"] == (1, 8, 64)
        assert found["encoder.layers.0.self_attention.weights"] == (1, 4, 7, 7)
        assert found["encoder.layers.0.ffn.hidden"] == (1, 7, 256)
        assert found["memory"] == (1, 7, 64)
        assert found["decoder.layers.0.self_attention.weights"] == (1, 4, 8, 8)
        assert found["decoder.layers.0.cross_attention.weights"] == (1, 4, 8, 7)
        assert found["logits"] == (1, 8, 13)

    def test_28_cells_are_hidden_in_each_causal_head(self) -> None:
        hidden = {s.name: s.hidden_cells_per_head for s in shapes(TOY, source_length=7, target_length=8)}
        assert hidden["decoder.layers.0.self_attention.weights"] == 28
        assert hidden["decoder.layers.0.cross_attention.weights"] is None
        assert hidden["encoder.layers.0.self_attention.weights"] is None

    def test_the_real_tensors_have_these_shapes(self) -> None:
        model = Transformer(TOY)
        assert model(torch.full((1, 5), 3), torch.full((1, 6), 3)).shape == (1, 6, 13)


class TestSchedule:
    @pytest.mark.parametrize(
        ("step", "expected"),
        [
            (1, 1.747e-7),
            (100, 1.747e-5),
            (1000, 1.747e-4),
            (4000, 6.988e-4),
            (10_000, 4.419e-4),
            (100_000, 1.398e-4),
        ],
    )
    def test_base(self, step: int, expected: float) -> None:
        rate = learning_rate(Schedule(warmup_steps=4000), step=step, d_model=512)
        assert rate == pytest.approx(expected, rel=5e-4)
        assert rate == pytest.approx(formulas.learning_rate(step, 512, 4000), rel=1e-12)

    @pytest.mark.parametrize(("step", "expected"), [(400, 0.00625), (100, 0.0015625), (1600, 0.003125)])
    def test_toy(self, step: int, expected: float) -> None:
        train = preset("reversal").train
        assert train is not None
        assert learning_rate(train.schedule, step=step, d_model=64) == pytest.approx(expected, rel=1e-12)


class TestLabelSmoothing:
    def test_target(self) -> None:
        # the gradient of the loss is softmax(logits) - target
        logits = torch.zeros(1, 1, 13, requires_grad=True)
        cross_entropy(logits, torch.tensor([[5]]), label_smoothing=0.1).backward()
        assert logits.grad is not None
        target = (torch.full((13,), 1 / 13) - logits.grad[0, 0]).tolist()
        assert target[5] == near(0.9077, 4)
        assert target[:5] + target[6:] == near([0.0077] * 12, 4)

    def test_best_loss(self) -> None:
        assert smoothing_floor(0.1, 13) == near(0.537, 3)
        logits = torch.full((1, 1, 13), math.log(0.1 / 13))
        logits[0, 0, 5] = math.log(0.9 + 0.1 / 13)
        assert cross_entropy(logits, torch.tensor([[5]]), label_smoothing=0.1).item() == near(0.537, 3)

    def test_loss_of_a_sure_model(self) -> None:
        logits = torch.zeros(1, 1, 13)
        logits[0, 0, 5] = 20.0
        loss = cross_entropy(logits, torch.tensor([[5]]), label_smoothing=0.1).item()
        assert loss == near(1.846, 3)
        assert loss == pytest.approx(formulas.smoothed_cross_entropy(logits[0, 0].double().numpy(), 5, 0.1), abs=1e-6)

    def test_floor_without_smoothing_is_zero(self) -> None:
        assert smoothing_floor(0.0, 13) == 0.0


class TestParameters:
    SEPARATE = ("model.source_vocabulary=32000", "model.target_vocabulary=32000", "model.tying=target-output")

    @pytest.mark.parametrize(
        ("name", "overrides", "expected"),
        [
            ("reversal", (), 234_304),
            ("paper-base", (), 63_082_496),
            ("paper-base", ("model.tying=source-target",), 82_026_496),
            ("paper-base", SEPARATE, 76_906_496),
            ("paper-base", ("model.biases=ffn",), 63_045_632),
            ("paper-base", ("model.tying=none",), 100_970_496),
            ("paper-big", (), 214_245_376),
            ("smollm2-135m", (), 134_515_008),
            ("router", SEED, 291_397),
        ],
    )
    def test_totals(self, name: str, overrides: tuple[str, ...], expected: int) -> None:
        counted = count(load_config(name, overrides).model)
        assert counted.total == expected
        assert counted.closed_form == expected

    def test_parts_of_the_base_model(self) -> None:
        each = {part.name: part.each for part in count(BASE).parts}
        assert each["attention"] == 1_050_624
        assert each["FFN"] == 2_099_712
        assert each["encoder layer"] == 3_152_384
        assert each["decoder layer"] == 4_204_032

    def test_layers_of_the_translator_into_german(self) -> None:
        parts = count(load_config("paper-base", self.SEPARATE).model).parts
        assert sum(part.total for part in parts if part.name.endswith("layer")) == 44_138_496

    def test_the_formulas_agree(self) -> None:
        assert formulas.parameters(13, 64, 256, 2) == 234_304
        assert formulas.parameters(37_000, 512, 2048, 6) == 63_082_496

    def test_attention_biases_of_the_base_model(self) -> None:
        assert count(BASE).total - count(load_config("paper-base", ["model.biases=ffn"]).model).total == 36_864

    def test_tied_matrices_are_one_storage(self) -> None:
        model = Transformer(TOY)
        assert model.encoder is not None
        assert model.decoder is not None
        assert model.output is not None
        table = model.encoder.embedding.tokens.weight
        assert table is model.decoder.embedding.tokens.weight
        assert table is model.output.weight
        assert table.data_ptr() == model.output.weight.data_ptr()

    def test_two_tyings_with_one_total_are_told_apart(self) -> None:
        """Source-target and target-output of equal vocabularies hold as many parameters, but not the same matrices."""
        one, other = (
            load_config("reversal", [f"model.tying={tying}"]).model for tying in ("source-target", "target-output")
        )
        assert count(one).total == count(other).total
        assert count(one).tied == [["encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight"]]
        assert count(other).tied == [["decoder.embedding.tokens.weight", "output.weight"]]


def test_the_default_norm_is_the_papers() -> None:
    assert (Norm().kind, Norm().placement, Norm().eps) == ("layernorm", "post", 1e-5)
    assert not TOY.final_norm


def test_step_1_loss_of_the_toys_initialisation() -> None:
    """The linear layers' default initialisation and an embedding of spread 1/√64 start near 5, Xavier near 3."""
    from glassformer.data.tasks import Reversal

    config = preset("reversal")
    assert config.data is not None
    batch = Reversal(config.data).training_batch(64, seed=0, step=1)
    logits = Transformer(config)(batch.source, batch.target, source_is_real=batch.source_is_real)
    assert 4.5 <= cross_entropy(logits, batch.labels, label_smoothing=0.1).item() <= 5.7
