"""What positions look like in numbers: the table, the wavelengths, and the rotation by k."""

import math
from dataclasses import dataclass

import torch

from glassformer.config.model import ModelConfig
from glassformer.errors import ConfigError
from glassformer.model.position import Sinusoidal, frequencies


@dataclass(frozen=True)
class Wave:
    """One pair of numbers: its angle grows by `frequency` a position, and comes round after `wavelength`."""

    pair: int
    frequency: float  # radians a position
    wavelength: float  # positions for one full turn


@dataclass(frozen=True)
class Shift:
    """Moving `by` positions turns a pair by one rotation, wherever it starts (section 3.5)."""

    pair: int
    by: int
    matrix: tuple[tuple[float, float], tuple[float, float]]
    rows: list[tuple[int, tuple[float, float], tuple[float, float]]]  # position, turned pair, pair `by` later


def waves(config: ModelConfig) -> list[Wave]:
    """Return the wave of each pair, of d_model columns (sinusoidal) or of one head's numbers (rotary)."""
    rates = frequencies(config.positions, _width(config), torch.device("cpu")).tolist()
    return [Wave(pair, rate, 2 * math.pi / rate) for pair, rate in enumerate(rates)]


def table(config: ModelConfig, at: list[int]) -> list[list[float]]:
    """Return PE(position, 0 .. d_model - 1) at the given positions; of rotary ones the angle of each pair.

    Positions are as the formula counts them, from 0, whatever number the model gives to its first token.
    """
    places = torch.tensor([at])
    if config.positions.kind == "rotary":
        rates = frequencies(config.positions, _width(config), places.device)
        rows: list[list[float]] = (places[0, :, None] * rates).tolist()
    else:
        rows = Sinusoidal(config.positions, _width(config))(places, torch.float64)[0].tolist()
    return rows


def shift(config: ModelConfig, *, pair: int, by: int, at: list[int]) -> Shift:
    """Show that (sin, cos) of a pair `by` positions later is a rotation by ω · by of the pair itself.

    Raises:
        ConfigError: The model's positions are not sinusoidal, or there is no such pair.

    """
    if config.positions.kind != "sinusoidal":
        raise ConfigError(f"the rotation by k is shown on sinusoidal positions, not on {config.positions.kind} ones")
    all_waves = waves(config)
    if not 0 <= pair < len(all_waves):
        raise ConfigError(
            f"there is no pair {pair}: with d_model={config.d_model} the pairs are 0 to {len(all_waves) - 1}"
        )
    angle = all_waves[pair].frequency * by
    cos, sin = math.cos(angle), math.sin(angle)
    columns = (2 * pair, 2 * pair + 1) if config.positions.ladder == "interleaved" else (pair, pair + len(all_waves))
    here, later = table(config, at), table(config, [position + by for position in at])
    rows = []
    for position, start, end in zip(at, here, later, strict=True):
        s, c = (start[column] for column in columns)
        turned = (cos * s + sin * c, -sin * s + cos * c)
        rows.append((position, turned, (end[columns[0]], end[columns[1]])))
    return Shift(pair, by, ((cos, sin), (-sin, cos)), rows)


def _width(config: ModelConfig) -> int:
    """Return the numbers that positions fill or turn."""
    match config.positions.kind:
        case "sinusoidal":
            return config.d_model
        case "rotary":
            return config.d_k
        case kind:
            raise ConfigError(f"{kind} positions follow no formula: there are no waves to show")
