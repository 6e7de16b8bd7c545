"""The whole machine against the paper in NumPy."""

import numpy as np
import pytest
import torch

from glassformer.config import preset
from glassformer.inspect.trace import trace
from glassformer.model.transformer import Transformer
from glassformer.run import Run
from tests.reference import formulas

SOURCE, TARGET = [5, 3, 4, 7, 6], [1, 6, 7, 4, 3, 5]


def weights_of(model: Transformer) -> formulas.Weights:
    return {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(preset("reversal")).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def test_the_machine_is_the_papers(model: Transformer) -> None:
    w = weights_of(model)
    memory = formulas.encode(SOURCE, w, n_layers=2, n_heads=4)
    logits = formulas.decode(TARGET, memory, w, n_layers=2, n_heads=4)
    seen = trace(model, SOURCE, TARGET, only=["memory", "logits"])
    assert np.abs(seen["memory"].values[0].numpy() - memory).max() <= 1e-12
    assert np.abs(seen["logits"].values[0].numpy() - logits).max() <= 1e-12


def test_the_trained_machine_is_the_papers(run: Run) -> None:
    w = weights_of(run.model)
    logits = formulas.decode(TARGET, formulas.encode(SOURCE, w, 2, 4), w, 2, 4)
    ours = trace(run.model, SOURCE, TARGET, only="logits")["logits"].values[0]
    assert np.abs(ours.numpy() - logits).max() <= 1e-5
    assert [int(i) for i in logits.argmax(axis=-1)] == [6, 7, 4, 3, 5, 2]


def test_each_step_of_an_encoder_layer(model: Transformer) -> None:
    """Every named tensor on the way is what its name says."""
    w, name = weights_of(model), "encoder.layers.0"
    seen = {key: traced.values[0].numpy() for key, traced in trace(model, SOURCE, TARGET).items()}
    table = w["encoder.embedding.tokens.weight"]
    assert np.allclose(seen["encoder.embedding.lookup"], table[SOURCE])
    assert np.allclose(seen["encoder.embedding.scaled"], 8 * table[SOURCE])
    assert np.allclose(seen["encoder.embedding.position"], formulas.positional_encoding(5, 64))
    x = seen["encoder.embedding.positioned"]
    assert np.allclose(x, formulas.embed(SOURCE, table))
    at = f"{name}.self_attention"
    for tap in "qkv":
        projected = formulas.linear(x, w, f"{at}.w_{tap}").reshape(5, 4, 16).transpose(1, 0, 2)
        assert np.allclose(seen[f"{at}.{tap}"], projected)
    scores = seen[f"{at}.q"] @ seen[f"{at}.k"].transpose(0, 2, 1)
    assert np.allclose(seen[f"{at}.scores"], scores)
    assert np.allclose(seen[f"{at}.scaled"], scores / 4)
    assert np.allclose(seen[f"{at}.weights"], formulas.softmax(scores / 4))
    heads = seen[f"{at}.weights"] @ seen[f"{at}.v"]
    assert np.allclose(seen[f"{at}.heads"], heads)
    assert np.allclose(seen[f"{at}.joined"], heads.transpose(1, 0, 2).reshape(5, 64))
    assert np.allclose(seen[f"{at}.projected"], formulas.linear(seen[f"{at}.joined"], w, f"{at}.w_o"))
    assert np.allclose(seen[f"{at}_residual.sum"], x + seen[f"{at}.projected"])
    x = seen[f"{at}_residual.normed"]
    up = formulas.linear(x, w, f"{name}.ffn.w_1")
    assert np.allclose(seen[f"{name}.ffn.up"], up)
    assert np.allclose(seen[f"{name}.ffn.hidden"], np.maximum(up, 0))
    assert np.allclose(seen[f"{name}.ffn_residual.sum"], x + seen[f"{name}.ffn.projected"])
    assert np.allclose(seen[f"{name}.output"], formulas.encoder_layer(formulas.embed(SOURCE, table), w, name, 4))


def test_masked_scores_are_minus_infinity_above_the_diagonal(model: Transformer) -> None:
    masked = trace(model, SOURCE, TARGET, only="decoder.layers.0.self_attention.masked")
    hidden = masked["decoder.layers.0.self_attention.masked"].values[0].isneginf().numpy()
    assert (hidden == ~np.tri(6, dtype=bool)).all()
