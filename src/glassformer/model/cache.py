"""What decoding remembers between steps: data that is passed in, never a mode of the model.

It is for inference: its buffers are written in place, which a backward pass would not survive.
"""

import torch
from torch import Tensor


class KeyValues:
    """Keys and values of one attention, (B, G, S, K) each, in buffers that double when they are full."""

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, G, T, K); return those of all tokens, (B, G, S, K)."""
        start, self.length = self.length, self.length + keys.shape[2]
        self._keys = self._room(self._keys, keys, start)
        self._values = self._room(self._values, values, start)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all tokens so far."""
        if self._keys is None or self._values is None:
            raise RuntimeError("the cache is empty: nothing was appended yet")
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]

    def _room(self, buffer: Tensor | None, new: Tensor, start: int) -> Tensor:
        """Return a buffer that holds the old tokens and the new ones; it is copied only when it is full."""
        if buffer is None:
            return new
        if buffer.shape[2] < self.length:
            larger = buffer.new_empty(*buffer.shape[:2], 2 * self.length, buffer.shape[3])
            larger[:, :, :start] = buffer[:, :, :start]
            buffer = larger
        buffer[:, :, start : self.length] = new
        return buffer


class Cache:
    """The keys and values of a decoder's layers, and which of the tokens so far were real."""

    def __init__(self, n_layers: int) -> None:
        self.length = 0
        self.is_real: Tensor | None = None  # (B, S); None: no token so far was padding
        self.self_attention = [KeyValues() for _ in range(n_layers)]
        self.cross_attention = [KeyValues() for _ in range(n_layers)]

    def extend(self, ids: Tensor, is_real: Tensor | None) -> Tensor | None:
        """Make ready for new tokens `ids` (B, T); return which of all tokens then are real, (B, S) or None."""
        for key_values in self.self_attention:
            key_values.length = self.length  # a call that failed half-way has left nothing behind
        if self.is_real is None and is_real is None:
            return None
        batch, n_new = ids.shape
        old = self.is_real if self.is_real is not None else ids.new_ones(batch, self.length, dtype=torch.bool)
        new = is_real if is_real is not None else ids.new_ones(batch, n_new, dtype=torch.bool)
        return torch.cat([old, new], dim=1)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: what a search does when it drops or copies a row."""
        if self.is_real is not None:
            self.is_real = self.is_real[rows]
        for key_values in (*self.self_attention, *self.cross_attention):
            key_values.select(rows)
