"""Traces: only what was asked for, with named axes, and nothing left behind."""

from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config import preset
from glassformer.errors import ConfigError, DataError
from glassformer.inspect.count import count
from glassformer.inspect.positions import shift, waves
from glassformer.inspect.shapes import shapes
from glassformer.inspect.trace import taps, trace, watch
from glassformer.model.transformer import Transformer
from tests.router import router

WEIGHTS = "decoder.layers.1.cross_attention.weights"


@pytest.fixture
def model() -> Transformer:
    return Transformer(preset("reversal"))


def test_only_what_was_asked_for(model: Transformer) -> None:
    assert list(trace(model, [5, 3], [1], only="logits")) == ["logits"]
    seen = trace(model, [5, 3], [1], only=["encoder.*.weights", "logits"])
    assert list(seen) == [f"encoder.layers.{i}.self_attention.weights" for i in (0, 1)] + ["logits"]
    assert len(trace(model, [5, 3], [1])) == len(taps(model))


def test_order_is_that_of_computation(model: Transformer) -> None:
    names = list(trace(model, [5, 3], [1]))
    assert names.index("memory") < names.index("decoder.embedding.lookup")
    places = [
        names.index(f"encoder.layers.0.self_attention.{n}") for n in ("q", "k", "scores", "scaled", "masked", "weights")
    ]
    assert places == sorted(places)
    assert names[-1] == "probabilities"


def test_hooks_are_gone_afterwards(model: Transformer) -> None:
    trace(model, [5, 3], [1])
    with pytest.raises(DataError), watch(model, "logits", "nothing"):
        pass
    assert not any(tap.watched for tap in taps(model).values())


def test_mode_is_left_as_it_was(model: Transformer) -> None:
    model.train()
    first = trace(model, [5, 3], [1], only="logits")["logits"].values
    assert model.training
    assert torch.equal(first, trace(model, [5, 3], [1], only="logits")["logits"].values)  # no dropout while tracing
    model.eval()
    trace(model, [5, 3], [1])
    assert not model.training


def test_the_mode_of_each_part_is_left_as_it_was(model: Transformer) -> None:
    model.train()
    assert model.encoder is not None
    model.encoder.eval()
    trace(model, [5, 3], [1])
    assert model.training
    assert not model.encoder.training
    assert not model.encoder.layers[0].training


def test_rows_of_any_lengths(model: Transformer) -> None:
    together = trace(model, [[5, 3, 4], [7]], [[1, 6], [1]], only="logits")["logits"].values
    alone = trace(model, torch.tensor([[7]]), torch.tensor([1]), only="logits")["logits"].values
    assert (together[1, 0] - alone[0, 0]).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ([], [1], "the source holds no tokens"),
        ([[5], []], [[1], [1]], "the source holds no tokens"),
        ([5], [13], "the target holds an id outside 0 to 12"),
        ([-1], [1], "the source holds an id outside 0 to 12"),
        ([5], None, "reads a target, but none was given"),
        ([5.0, 1.5], [1], "the source must be ids: whole numbers in one row"),
        ("c a b", [1], "the source must be ids"),
        (torch.ones(1, 2), [1], "the source must be whole-number ids"),
        (torch.ones(1, 2, 3, dtype=torch.long), [1], "the source must be whole-number ids"),
        ([[5], [6]], [1], "there are 2 sources, but 1 targets"),
    ],
)
def test_bad_ids(model: Transformer, source: Any, target: list[int] | None, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        trace(model, source, target)


def test_a_side_that_the_model_does_not_have() -> None:
    with pytest.raises(DataError, match="this model reads no source"):
        trace(Transformer(preset("microscope")), [3], [3])
    with pytest.raises(DataError, match="this model reads no target"):
        trace(Transformer(router()), [3], [3])


def test_names_that_do_not_exist(model: Transformer) -> None:
    with pytest.raises(DataError, match=r"no tensor of this model is named 'logit'; did you mean 'logits'\?"):
        trace(model, [5], [1], only="logit")
    with pytest.raises(DataError, match=r"there is no tensor 'logit' in this trace; did you mean 'logits'\?"):
        trace(model, [5], [1])["logit"]
    assert "logit" not in trace(model, [5], [1])
    assert trace(model, [5], [1]).get("logit") is None  # a mapping like any other


def test_named_axes(model: Transformer) -> None:
    weights = trace(model, [5, 3, 4], [1, 6])[WEIGHTS]
    assert (weights.axes, weights.shape) == (("B", "H", "T", "S"), (1, 4, 2, 3))
    head = weights.select(H=2, B=0)
    assert (head.axes, head.shape) == (("T", "S"), (2, 3))
    assert torch.equal(head.values, weights.values[0, 2])
    mean = weights.mean("H")
    assert mean.axes == ("B", "T", "S")
    assert torch.equal(mean.values, weights.values.mean(1))
    assert np.asarray(head).shape == (2, 3)
    assert np.asarray(head).dtype == np.float32
    with pytest.raises(DataError, match="has no axis 'Q'; its axes are B H T S"):
        weights.mean("Q")


def test_a_value_can_be_replaced(model: Transformer) -> None:
    """Hooks on a tap may return another value: the forward pass goes on with it."""
    model.eval()
    ids = torch.tensor([[5, 3, 4]])
    even = taps(model)[WEIGHTS].register_forward_hook(lambda _, __, w: torch.full_like(w, 1 / w.shape[-1]))
    with torch.inference_mode():
        changed = model(ids, ids)
        even.remove()
        assert (changed - model(ids, ids)).abs().max() > 1e-4


def test_arrays_are_copies_where_numpy_asks_for_one(model: Transformer) -> None:
    seen = trace(model.double(), [5, 3], [1], only="logits")["logits"]
    array = np.array(seen)
    assert array.dtype == np.float64
    array[...] = 0
    assert seen.values.abs().max() > 0


def test_bfloat16_traces_become_arrays(model: Transformer) -> None:
    seen = trace(model.to(torch.bfloat16), [5, 3], [1], only="logits")["logits"]
    assert np.asarray(seen).dtype == np.float32


class TestShapes:
    def test_a_config_stands_for_its_model(self) -> None:
        config = preset("reversal")
        assert shapes(config, source_length=2, target_length=3) == shapes(
            config.model, source_length=2, target_length=3
        )
        assert count(config).total == count(config.model).total

    def test_past_a_learned_table(self) -> None:
        assert shapes(router(), source_length=128, target_length=1)
        with pytest.raises(
            DataError, match="a source of 129 tokens is past the end of the learned positions: 128 at most"
        ):
            shapes(router(), source_length=129, target_length=1)


class TestPositions:
    def test_rotary_waves_belong_to_one_head(self) -> None:
        assert len(waves(preset("smollm2-135m").model)) == 32

    def test_no_waves_without_a_formula(self) -> None:
        with pytest.raises(ConfigError, match="learned positions follow no formula"):
            waves(router().model)

    def test_shift_of_what_has_none(self) -> None:
        with pytest.raises(ConfigError, match="not on rotary ones"):
            shift(preset("smollm2-135m").model, pair=0, by=1, at=[0])
        with pytest.raises(ConfigError, match="there is no pair 32: with d_model=64 the pairs are 0 to 31"):
            shift(preset("reversal").model, pair=32, by=1, at=[0])

    @pytest.mark.parametrize("ladder", ["interleaved", "halves", "tensor2tensor"])
    def test_every_ladder_turns(self, ladder: str) -> None:
        config = preset("reversal", [f"model.positions.ladder={ladder}"]).model
        for _, turned, later in shift(config, pair=3, by=7, at=[0, 5, 90]).rows:
            assert turned == pytest.approx(later, abs=1e-9)
