"""How each tensor is made: computed again in NumPy from what it is said to read, for every combination of choices."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from glassformer.config import preset
from glassformer.inspect.origin import Origin, origins
from glassformer.inspect.trace import trace
from glassformer.model.transformer import Transformer
from tests.agreement.variants import CORE, build, config, drawn
from tests.router import router

Array = NDArray[np.float64]
SOURCE, TARGET = [5, 9, 3, 11], [1, 6, 0, 12, 3]


def _softmax(x: Array) -> Array:
    largest = np.where(np.isinf(x.max(-1, keepdims=True)), 0.0, x.max(-1, keepdims=True))
    e = np.exp(x - largest)
    return np.asarray(e / np.maximum(e.sum(-1, keepdims=True), 1e-300))


def _activate(x: Array, name: Any) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return np.asarray(x / (1 + np.exp(-x)))
    if name == "gelu":
        return np.asarray(x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _angles(settings: dict[str, Any], n: int, d: int) -> Array:
    i = np.arange(d // 2)
    exponent = i / (d / 2 - 1) if settings.get("ladder") == "tensor2tensor" else 2 * i / d
    return np.asarray((np.arange(n)[:, None] + settings["first"]) * settings["base"] ** -exponent)


def _rotated(x: Array, settings: dict[str, Any]) -> Array:
    angle = _angles(settings, x.shape[-2], x.shape[-1])
    result = np.empty_like(x)
    half = x.shape[-1] // 2
    halves = settings["convention"] == "halves"
    first, second = (slice(0, half), slice(half, None)) if halves else (slice(0, None, 2), slice(1, None, 2))
    a, b = x[..., first], x[..., second]
    result[..., first] = a * np.cos(angle) - b * np.sin(angle)
    result[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return result


def _position(settings: dict[str, Any], shape: tuple[int, ...]) -> Array:
    angle = _angles(settings, shape[1], shape[2])
    table = np.empty(shape)
    if settings["ladder"] == "interleaved":
        table[..., 0::2], table[..., 1::2] = np.sin(angle), np.cos(angle)
    else:
        table[..., : shape[2] // 2], table[..., shape[2] // 2 :] = np.sin(angle), np.cos(angle)
    return table


def again(origin: Origin, x: list[Array], weights: list[Array], ids: list[int], shape: tuple[int, ...]) -> Array:
    """Compute a tensor from what its origin says."""
    s: dict[str, Any] = origin.settings
    match origin.operation:
        case "lookup":
            rows = (
                np.arange(len(ids)) + s["first"] if "first" in s else np.full(len(ids), s["row"]) if "row" in s else ids
            )
            return weights[0][rows][None]
        case "position":
            return _position(s, shape)
        case "scale":
            return x[0] * s["factor"]
        case "sum":
            return np.sum(x, axis=0)  # type: ignore[no-any-return]
        case "linear":
            y = x[0] @ weights[0].T + (weights[1] if len(weights) > 1 else 0)
            return y.reshape(*y.shape[:2], -1, s["size"]).swapaxes(1, 2) if "size" in s else y
        case "rotate":
            return _rotated(x[0], s)
        case "product":
            return x[0] @ x[1].repeat(s["shared"], axis=1).swapaxes(-1, -2)
        case "mask":
            return np.where(np.tri(*x[0].shape[-2:]) > 0, x[0], -np.inf) if s["causal"] else x[0]
        case "softmax":
            return _softmax(x[0])
        case "mix":
            return x[0] @ x[1].repeat(s["shared"], axis=1)
        case "join":
            return x[0].swapaxes(1, 2).reshape(shape)
        case "layernorm":
            away = x[0] - x[0].mean(-1, keepdims=True)
            return np.asarray(weights[0] * away / np.sqrt((away**2).mean(-1, keepdims=True) + s["eps"]) + weights[1])
        case "rmsnorm":
            return np.asarray(weights[0] * x[0] / np.sqrt((x[0] ** 2).mean(-1, keepdims=True) + s["eps"]))
        case "activation":
            return _activate(x[0], s["activation"])
        case "multiply":
            return np.asarray(x[0] * x[1])
        case "same":
            return x[0]
        case "pool":
            return np.asarray(x[0][:, 0] if s["pooling"] == "first" else x[0].mean(axis=1))


def assert_told_right(model: Transformer) -> None:
    model = model.double()
    has_source, has_target = model.config.has_encoder, model.config.has_decoder
    seen = trace(model, SOURCE if has_source else None, TARGET if has_target else None)
    parameters = {n: p.detach().numpy() for n, p in model.named_parameters(remove_duplicate=False)}
    told = origins(model.config)
    assert list(told) == list(seen)
    used: set[str] = set()
    for place, (name, origin) in enumerate(told.items()):
        assert set(origin.reads) <= set(list(told)[:place]), name  # nothing that comes later
        ids = SOURCE if name.startswith("encoder") else TARGET
        x = [np.asarray(seen[one]) for one in origin.reads]
        weights = [parameters[one] for one in origin.parameters]
        found = again(origin, x, weights, ids, seen[name].shape)
        np.testing.assert_allclose(found, np.asarray(seen[name]), rtol=0, atol=1e-10, err_msg=name)
        used |= {id(model.get_parameter(one)) for one in origin.parameters}
    assert used == {id(parameter) for parameter in model.parameters()}  # no weight is left out


@pytest.mark.parametrize("core", CORE, ids=lambda core: "-".join(map(str, core)))
def test_every_tensor_of_every_variant(core: Any) -> None:
    for other in drawn(*core):
        assert_told_right(build(config(core, other)))


def test_settings_that_the_variants_keep_small() -> None:
    torch.manual_seed(0)
    assert_told_right(Transformer(preset("reversal", ["model.positions.base=100.0", "model.positions.first=3"])))
    assert_told_right(Transformer(router()))
