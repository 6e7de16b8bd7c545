"""What decoding remembers between steps: data that is passed in, never a mode of the model.

It is for inference: its buffers are written in place, which a backward pass would not survive.
"""

import torch
from torch import Tensor


class KeyValues:
    """Keys and values of one attention, (B, G, S, K) each, in buffers that double when they are full."""

    def __init__(self) -> None:
        self.length = 0
        self._buffers: list[Tensor] = []  # of the keys, of the values

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, G, T, K); return those of all tokens, (B, G, S, K)."""
        start, self.length = self.length, self.length + keys.shape[2]
        if not start:
            self._buffers = [keys, values]
            return keys, values
        for i, new in enumerate((keys, values)):
            old = self._buffers[i]
            if old.shape[2] < self.length:
                self._buffers[i] = old.new_empty(*old.shape[:2], 2 * self.length, old.shape[3])
                self._buffers[i][:, :, :start] = old[:, :, :start]
            self._buffers[i][:, :, start : self.length] = new
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all tokens so far."""
        keys, values = self._buffers
        return keys[:, :, : self.length], values[:, :, : self.length]

    @torch.no_grad()
    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        for i, old in enumerate(self._buffers):
            self._buffers[i] = old.new_empty(len(rows), *old.shape[1:])
            torch.index_select(old[:, :, : self.length], 0, rows, out=self._buffers[i][:, :, : self.length])


class Cache:
    """The keys and values of a decoder's layers, and which of the tokens so far were real."""

    def __init__(self, n_layers: int) -> None:
        self.length = 0
        self.is_real: Tensor | None = None  # (B, S); None: no token so far was padding
        self.self_attention = [KeyValues() for _ in range(n_layers)]
        self.cross_attention = [KeyValues() for _ in range(n_layers)]

    def extend(self, ids: Tensor, is_real: Tensor | None) -> Tensor | None:
        """Make ready for new tokens `ids` (B, T); return which of all tokens then are real, (B, S) or None."""
        for key_values in self.self_attention if self.length else (*self.self_attention, *self.cross_attention):
            key_values.length = self.length  # a call that failed half-way has left nothing behind
        if self.is_real is None and is_real is None:
            return None
        batch, n_new = ids.shape
        old = self.is_real if self.is_real is not None else ids.new_ones(batch, self.length, dtype=torch.bool)
        new = is_real if is_real is not None else ids.new_ones(batch, n_new, dtype=torch.bool)
        return torch.cat([old, new], dim=1)

    def select(self, rows: Tensor, memory_rows: Tensor | None) -> None:
        """Keep these rows of the batch, in this order: what a search does when it drops or copies a row.

        Of the memory's keys and values it keeps `memory_rows`; None: they stay as they are.
        """
        if self.is_real is not None:
            self.is_real = self.is_real.index_select(0, rows)
        for key_values in self.self_attention:
            key_values.select(rows)
        if memory_rows is not None:
            for key_values in self.cross_attention:
                key_values.select(memory_rows)
