"""The batches that two implementations are compared on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.model.transformer import Transformer


@dataclass(frozen=True)
class Probe:
    """One batch: ids, and which of them are real."""

    name: str
    source: Tensor | None
    target: Tensor | None
    source_is_real: Tensor | None
    target_is_real: Tensor | None

    @property
    def real(self) -> Tensor:
        """(B, T): the places whose logits count."""
        found = self.target_is_real if self.target is not None else self.source_is_real
        assert found is not None
        return found

    def flipped(self) -> "Probe":
        """Return the batch with its last row first."""
        sides = (self.source, self.target, self.source_is_real, self.target_is_real)
        return Probe(self.name, *(None if side is None else side.flip(0) for side in sides))

    def ours(self, model: Transformer) -> Tensor:
        """Return the logits of one of our models."""
        has_padding = [
            is_real is not None and not bool(is_real.all()) for is_real in (self.source_is_real, self.target_is_real)
        ]
        with torch.no_grad():
            logits: Tensor = model(
                self.source,
                self.target,
                source_is_real=self.source_is_real if has_padding[0] else None,
                target_is_real=self.target_is_real if has_padding[1] else None,
            )
        return logits


LENGTHS = {  # of the source's and the target's rows
    "whole": ((7, 7, 7, 7), (6, 6, 6, 6)),  # nothing is padded, so that tensors can be found again by their values
    "right": ((20, 1, 9, 5, 13), (7, 20, 1, 12, 4)),
    "left": ((20, 1, 9, 5, 13), (7, 20, 1, 12, 4)),
}


def probes(config: ModelConfig, *, pad_id: int, seed: int = 0) -> list[Probe]:
    """Return a batch without padding, one padded on the right, and one on the left; no token has the padding's id."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for name, lengths in LENGTHS.items():
        sides: list[tuple[Tensor, Tensor] | tuple[None, None]] = []
        for vocabulary, rows in zip((config.source_vocabulary, config.target_vocabulary), lengths, strict=True):
            if vocabulary is None:
                sides.append((None, None))
                continue
            limit = max(rows) if config.longest is None else min(max(rows), config.longest)
            ids = torch.randint(0, vocabulary - 1, (len(rows), limit), generator=random)
            ids += ids >= pad_id  # any id but that of padding
            index = torch.arange(limit)
            n = torch.tensor(rows)[:, None].clamp(max=limit)
            is_real = index >= limit - n if name == "left" else index < n
            sides.append((torch.where(is_real, ids, pad_id), is_real))
        (source, source_is_real), (target, target_is_real) = sides
        found.append(Probe(name, source, target, source_is_real, target_is_real))
    return found
