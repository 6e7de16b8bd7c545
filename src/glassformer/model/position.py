"""How a model knows the order of its tokens (section 3.5).

A position is a number, and everything here is computed from it when it is needed: no table, so no length at
which sinusoids and rotations end. Only learned positions have a table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.config.model import Positions
from glassformer.errors import DataError


def token_positions(n_tokens: int, is_real: Tensor | None, *, first: int, device: torch.device) -> Tensor:
    """Number the S tokens of each row: a token's position is `first` plus the number of real tokens before it.

    Returns (B, S), or (1, S) where nothing is padded. Padding has some valid position that nobody reads.
    """
    if is_real is None:
        return torch.arange(first, first + n_tokens, device=device)[None]  # (1, S)
    return (is_real.cumsum(1) - 1).clamp(min=0) + first  # (B, S)


def frequencies(positions: Positions, d: int, device: torch.device) -> Tensor:
    """Radians by which each of the d/2 pairs turns from one position to the next: 1 / base^(2i/d)."""
    # float64: in float32 the angle at position 8000 is off by up to 5e-4. MPS has no float64.
    dtype = torch.float32 if device.type == "mps" else torch.float64
    i = torch.arange(d // 2, device=device, dtype=dtype)
    exponent = i / (d / 2 - 1) if positions.ladder == "tensor2tensor" else 2 * i / d
    return torch.pow(positions.base, -exponent)  # (d/2,)


class Sinusoidal(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(pos / 10000^(2i/d))."""

    def __init__(self, config: Positions, d_model: int) -> None:
        super().__init__()
        self.config, self.d_model = config, d_model

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, T) positions -> (B, T, D)."""
        angle = positions[..., None] * frequencies(self.config, self.d_model, positions.device)  # (B, T, D/2)
        if self.config.ladder == "interleaved":
            table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (B, T, D)
        else:
            table = torch.cat([angle.sin(), angle.cos()], dim=-1)  # (B, T, D)
        return table.to(dtype)


def empty_table(rows: int, d_model: int) -> nn.Embedding:
    """Return a table whose numbers the model draws with all its others."""
    return nn.Embedding(rows, d_model, _weight=torch.empty(rows, d_model))


class Learned(nn.Module):
    """One learned row for each position, up to the table's end."""

    def __init__(self, size: int, d_model: int) -> None:
        super().__init__()
        self.table = empty_table(size, d_model)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, T) positions -> (B, T, D).

        Raises:
            DataError: A position lies past the end of the table.

        """
        size = self.table.num_embeddings
        if not (positions.is_meta or torch.compiler.is_exporting()) and int(positions.max()) >= size:
            raise DataError(
                f"the input reaches position {int(positions.max())}, but the learned table ends at {size - 1} "
                f"(positions.size={size}); shorten the input, or train with a larger table"
            )
        rows: Tensor = self.table(positions)
        return rows.to(dtype)


@dataclass(frozen=True, eq=False)
class Rotation:
    """The cosine and sine of each pair's angle, (B, 1, T, K/2), and which numbers make a pair."""

    cos: Tensor
    sin: Tensor
    halves: bool

    def turn(self, x: Tensor) -> Tensor:
        """Rotate each pair of (B, H, T, K) by its angle."""
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        if self.halves:
            a, b = x.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class Rotary(nn.Module):
    """Turns queries and keys by an angle that grows with the position (Su et al. 2021, arXiv:2104.09864).

    The product of a turned query and a turned key depends on the distance between them only.
    """

    def __init__(self, config: Positions, d_k: int) -> None:
        super().__init__()
        self.config, self.d_k = config, d_k

    def forward(self, positions: Tensor) -> Rotation:
        """(B, T) positions -> the rotation that all layers share."""
        angle = positions[..., None] * frequencies(self.config, self.d_k, positions.device)  # (B, T, K/2)
        angle = angle[:, None]  # (B, 1, T, K/2)
        return Rotation(angle.cos(), angle.sin(), halves=self.config.convention == "halves")
