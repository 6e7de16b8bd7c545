"""What attention may see, as others have it: other masks, and what becomes of rows that may see nothing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.model.attention import Mask, causal
from glassformer.model.transformer import Transformer
from glassformer.verification.changes import Change, attentions, set_value

# from those of the keys that are real, (B, 1, 1, S) or None: all, and the numbers of queries and keys
Allowed = Callable[[Tensor | None, int, int], Tensor | None]


def masked_by(which: str, allowed: Allowed) -> Change:
    """Give attentions another mask.

    Args:
        which: Attentions, as in `attentions`.
        allowed: Which keys may be seen, from those that are real, (B, 1, 1, S) or None: all, and the numbers of queries
            and keys.

    """

    def change(model: Transformer) -> None:
        for attention in attentions(model, which):

            def enter(_: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
                x, memory, mask = args
                is_real = None
                if mask.allowed is not None and mask.allowed.ndim == 4:
                    is_real = mask.allowed[..., -1:, :]  # the last query sees all real keys
                return (x, memory, Mask(allowed(is_real, x.shape[1], memory.shape[1]))), kwargs

            attention.register_forward_pre_hook(enter, with_kwargs=True)

    return change


def only_real(is_real: Tensor | None, _n_queries: int, _n_keys: int) -> Tensor | None:
    """Every real key: a decoder without its causal mask."""
    return is_real


def everything(_is_real: Tensor | None, _n_queries: int, _n_keys: int) -> Tensor | None:
    """Every key, padding too."""
    return None


def shifted(by: int) -> Allowed:
    """Real keys up to so many places after the query's own."""

    def allowed(is_real: Tensor | None, n_queries: int, n_keys: int) -> Tensor:
        index = torch.arange(n_keys)
        mask = index <= index[:n_queries, None] + by
        return mask if is_real is None else mask & is_real

    return allowed


def inverted(is_real: Tensor | None, n_queries: int, n_keys: int) -> Tensor:
    """Real keys after the query."""
    mask = ~causal(n_queries, n_keys, torch.device("cpu"))
    return mask if is_real is None else mask & is_real


def inverted_with_padding(is_real: Tensor | None, n_queries: int, n_keys: int) -> Tensor:
    """What the mask of a decoder hides, and nothing else."""
    mask = causal(n_queries, n_keys, torch.device("cpu"))
    return ~(mask if is_real is None else mask & is_real)


def only_padding(is_real: Tensor | None, n_queries: int, n_keys: int) -> Tensor:
    """The keys that are padding."""
    return torch.zeros(n_queries, n_keys, dtype=torch.bool) if is_real is None else ~is_real


def padding_rows_zeroed(model: Transformer) -> None:
    """Make the encoder's output 0 where the source is padding."""
    assert model.encoder is not None
    kept: list[Mask] = []
    model.encoder.register_forward_pre_hook(lambda _, args: kept.append(args[2]))

    def zeroed(value: Tensor) -> Tensor:
        allowed = kept[-1].allowed
        return value if allowed is None else value * allowed[:, 0, 0, :, None]

    set_value(model.memory, zeroed)
