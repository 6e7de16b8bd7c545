"""How our machine is made to compute what another one does: fields of its configuration, and hooks on its taps."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.errors import ConfigError
from glassformer.model.attention import Mask, MultiHeadAttention
from glassformer.model.layer import FeedForward, Layer, Residual, make_norm
from glassformer.model.position import Rotation
from glassformer.model.tap import Tap
from glassformer.model.transformer import Embedding, Stack, Transformer

Change = Callable[[Transformer], None]
Value = Callable[[Tensor], Tensor]
LEAST = -1e9  # what is often written for −∞


def configured(config: ModelConfig, **changes: Any) -> ModelConfig | None:
    """Return the configuration with other fields (`norm__placement="pre"`); None where that makes none."""
    values = config.model_dump()
    for path, value in changes.items():
        *parts, last = path.split("__")
        inner = values
        for part in parts:
            inner = inner[part]
        inner[last] = value
    try:
        found = ModelConfig.model_validate(values)
    except (ValueError, ConfigError):
        return None
    return None if found == config else found


def stacks(model: Transformer, side: str = "both") -> list[Stack]:
    """Return the encoder, the decoder, or both, as far as the model has them."""
    found = {"encoder": [model.encoder], "decoder": [model.decoder], "both": [model.encoder, model.decoder]}[side]
    return [stack for stack in found if stack is not None]


def layers(model: Transformer, side: str = "both") -> Iterator[Layer]:
    """Yield the layers of one stack or both."""
    for stack in stacks(model, side):
        for layer in stack.layers:
            assert isinstance(layer, Layer)
            yield layer


def attentions(model: Transformer, which: str = "all") -> Iterator[MultiHeadAttention]:
    """Yield attentions: "encoder", "decoder" (self-attention), "self", "cross", or "all"."""
    for layer in layers(model, which if which in ("encoder", "decoder") else "both"):
        if which != "cross":
            yield layer.self_attention
        if which in ("cross", "all") and layer.cross:
            yield layer.cross_attention


def set_value(tap: Tap, value: Value) -> None:
    """Let another value come out of a tap."""
    tap.register_forward_hook(lambda _, __, out: value(out))


class Kept:
    """The last value that came out of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.value: Tensor = torch.empty(0)
        module.register_forward_hook(self._keep)

    def _keep(self, _: nn.Module, __: object, out: Tensor) -> None:
        self.value = out


def by_column(model: Transformer) -> None:
    """Number the positions by column, padding too."""
    first = model.config.positions.first
    for stack in stacks(model):

        def enter(_: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            ids, _positions, mask = args
            return (ids, torch.arange(first, first + ids.shape[1])[None], mask), kwargs

        stack.register_forward_pre_hook(enter, with_kwargs=True)


def scaled_by(factor: Callable[[int, int], float], which: str = "all") -> Change:
    """Multiply the scaled scores of attentions by a factor of d_k and d_model."""

    def change(model: Transformer) -> None:
        for attention in attentions(model, which):
            times = factor(attention.d_k, model.config.d_model)
            set_value(attention.scaled, lambda value, times=times: value * times)  # type: ignore[misc]

    return change


def softmax_over(axis: int, least: float = -math.inf) -> Change:
    """Let weights sum to 1 over an axis of (B, H, T, S); hidden scores are `least`, such as −10⁹.

    With that, what may see nothing sees everything alike.
    """

    def change(model: Transformer) -> None:
        for attention in attentions(model):
            masked = Kept(attention.masked)

            def weights(_: Tensor, masked: Kept = masked) -> Tensor:
                return masked.value.clamp(min=least).softmax(axis).nan_to_num(0.0)

            set_value(attention.weights, weights)

    return change


def finite(*changes: Change) -> tuple[Change, ...]:
    """Return changes as they are, with −10⁹ for what is hidden, and with positions by column besides.

    Where that lets padding be seen, what stands there matters, and so do its positions.
    """
    alike = softmax_over(-1, LEAST)
    return both(*changes), both(*changes, alike), both(*changes, alike, by_column)


def heads_without_transpose(model: Transformer) -> None:
    """Cut (B, T, H K) into (B, H, T, K) by `view` alone, and join the same way."""

    def cut(value: Tensor) -> Tensor:
        return value.transpose(1, 2).reshape(value.shape)

    for attention in attentions(model):
        for tap in (attention.q, attention.k, attention.v):
            set_value(tap, cut)
    joined_without_transpose(model)


def joined_without_transpose(model: Transformer) -> None:
    """Join (B, H, T, K) to (B, T, H K) by `view` alone."""
    for attention in attentions(model):
        heads = Kept(attention.heads)
        set_value(attention.joined, lambda value, heads=heads: heads.value.reshape(value.shape))  # type: ignore[misc]


def kv_heads_tiled(model: Transformer) -> None:
    """Let key head h mod G serve query head h, in place of the heads side by side."""
    for attention in attentions(model):
        order = torch.argsort(torch.arange(attention.n_heads) % attention.n_kv_heads, stable=True)
        back = torch.argsort(order)
        set_value(attention.q, lambda value, order=order: value[:, order])  # type: ignore[misc]
        set_value(attention.heads, lambda value, back=back: value[:, back])  # type: ignore[misc]


def both(*changes: Change) -> Change:
    """Make several changes."""

    def change(model: Transformer) -> None:
        for one in changes:
            one(model)

    return change


def shorter_encoder(n_layers: int, *, normed: bool) -> Change:
    """Let cross-attention read what comes out of so many encoder layers: nothing comes of the others."""

    def change(model: Transformer) -> None:
        assert model.encoder is not None
        model.encoder.layers = model.encoder.layers[:n_layers]
        model.encoder.norm = model.encoder.norm if normed else None

    return change


def cross_reads_decoder(*, is_causal: bool) -> Change:
    """Let cross-attention take its keys and values from the decoder itself: nothing comes of the encoder."""
    mask = Mask(None, causal=is_causal)

    def change(model: Transformer) -> None:
        shorter_encoder(0, normed=False)(model)
        for attention in attentions(model, "cross"):
            plain = attention.forward
            attention.forward = lambda x, *_, plain=plain, **given: plain(x, x, mask, **given)  # type: ignore[method-assign]

    return change


def residuals(model: Transformer, part: str, side: str = "both") -> Iterator[tuple[Residual, Tap]]:
    """Yield each residual connection of a part ("self_attention", "cross_attention", "ffn") and the part's output."""
    for layer in layers(model, side):
        module = getattr(layer, part, None)
        if isinstance(module, (MultiHeadAttention, FeedForward)):
            residual = getattr(layer, f"{part}_residual")
            assert isinstance(residual, Residual)
            yield residual, module.projected


def without_residual(*parts: str, side: str = "both") -> Change:
    """Leave out what is added to these parts' outputs."""

    def change(model: Transformer) -> None:
        for part in parts:
            for residual, projected in residuals(model, part, side):
                kept = Kept(projected)
                set_value(residual.sum, lambda _, kept=kept: kept.value)  # type: ignore[misc]

    return change


def residual_after_norm(model: Transformer) -> None:
    """Add to the normed input, in place of the input: x = Norm(x); x = x + Sublayer(x)."""
    for part in ("self_attention", "cross_attention", "ffn"):
        for residual, projected in residuals(model, part):
            normed, kept = Kept(residual.normed), Kept(projected)
            set_value(residual.sum, lambda _, normed=normed, kept=kept: normed.value + kept.value)  # type: ignore[misc]


def in_parallel(model: Transformer) -> None:
    """Let the feed-forward network read, through its own norm, what attention reads."""
    for layer in layers(model):
        entered: list[Tensor] = []

        def enter(_: nn.Module, args: Any, entered: list[Tensor] = entered) -> None:
            entered[:] = args[:1]

        def value(_: Tensor, entered: list[Tensor] = entered, norm: nn.Module = layer.ffn_residual.norm) -> Tensor:
            normed: Tensor = norm(entered[0])
            return normed

        layer.register_forward_pre_hook(enter)
        set_value(layer.ffn_residual.normed, value)


def logits_scaled(model: Transformer) -> None:
    """Divide the logits by √d_model."""
    set_value(model.logits, lambda value: value * model.config.d_model**-0.5)


def activated_by(function: Value) -> Change:
    """Put another function in the place of the activation."""

    def change(model: Transformer) -> None:
        for layer in layers(model):
            up, gate = Kept(layer.ffn.up), Kept(layer.ffn.gate) if layer.ffn.gated else None

            def hidden(_: Tensor, up: Kept = up, gate: Kept | None = gate) -> Tensor:
                return function(up.value) if gate is None else function(gate.value) * up.value

            set_value(layer.ffn.hidden, hidden)

    return change


def positions_times(factor: Callable[[int], float], side: str = "both") -> Change:
    """Multiply what is added for the position by a factor of d_model."""

    def change(model: Transformer) -> None:
        times = factor(model.config.d_model)
        for stack in stacks(model, side):
            embedding: Embedding = stack.embedding
            if embedding.position_table is not None:
                set_value(embedding.position, lambda value: value * times)

    return change


def sinusoids_by_column(model: Transformer) -> None:
    """Add sin(pos / base^(2c/d)) in the even columns c, and cos of the same in the odd ones."""
    for stack in stacks(model):
        read: list[Tensor] = []

        def enter(_: nn.Module, args: Any, read: list[Tensor] = read) -> None:
            read[:] = [args[1]]

        def value(out: Tensor, read: list[Tensor] = read) -> Tensor:
            column = torch.arange(out.shape[2])
            angle = read[0][..., None] * model.config.positions.base ** (-2.0 * column.double() / out.shape[2])
            return torch.where(column % 2 == 0, angle.sin(), angle.cos()).expand_as(out)

        stack.embedding.register_forward_pre_hook(enter)
        set_value(stack.embedding.position, value)


def shifted_embedding(model: Transformer) -> None:
    """Give each target position the embedding of the token before, and the first one zeros."""
    assert model.decoder is not None
    set_value(model.decoder.embedding.scaled, lambda value: torch.cat([value[:, :1] * 0, value[:, :-1]], dim=1))


def shifted_ids(start: int) -> Change:
    """Let the decoder read a start token and all tokens but the last."""

    def change(model: Transformer) -> None:
        def enter(_: nn.Module, args: Any) -> Any:
            ids, *others = args
            return (torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1), *others)

        assert model.decoder is not None
        model.decoder.embedding.register_forward_pre_hook(enter)

    return change


def embedding_times(factor: Callable[[int], float], side: str = "both") -> Change:
    """Multiply the scaled embedding by a factor of d_model."""

    def change(model: Transformer) -> None:
        times = factor(model.config.d_model)
        for stack in stacks(model, side):
            set_value(stack.embedding.scaled, lambda value: value * times)

    return change


def turned(tap: str, turn: Callable[[Rotation, Tensor], Tensor]) -> Change:
    """Let another value come out of a tap, made from the rotation and what came out of `q`, `k` or `v`."""

    def change(model: Transformer) -> None:
        for attention in attentions(model, "self"):
            kept, rotations = Kept(getattr(attention, tap[-1])) if tap != "v" else None, list[Rotation]()

            def enter(_: nn.Module, __: Any, kwargs: Any, rotations: list[Rotation] = rotations) -> None:
                rotations[:] = [kwargs["rotation"]]

            def value(out: Tensor, kept: Kept | None = kept, rotations: list[Rotation] = rotations) -> Tensor:
                return turn(rotations[0], out if kept is None else kept.value)

            attention.register_forward_pre_hook(enter, with_kwargs=True)
            set_value(getattr(attention, tap), value)

    return change


def unturned(_: Rotation, x: Tensor) -> Tensor:
    """Leave it as it is."""
    return x


def backwards(rotation: Rotation, x: Tensor) -> Tensor:
    """Rotate by the opposite angle."""
    return replace(rotation, sin=-rotation.sin).turn(x)


def more_norms(*sides: str) -> Change:
    """Put one more norm after stacks."""

    def change(model: Transformer) -> None:
        for side in sides:
            for stack in stacks(model, side):
                stack.norm = make_norm(model.config).to(torch.float64)

    return change


def fewer_norms(*sides: str) -> Change:
    """Leave out the last norm of stacks."""

    def change(model: Transformer) -> None:
        for side in sides:
            for stack in stacks(model, side):
                stack.norm = None

    return change


def normed_by(formula: Callable[[Tensor, float], Tensor]) -> Change:
    """Normalise by another formula of the input and ε; γ and β come after it as ever."""

    def change(model: Transformer) -> None:
        for module in model.modules():
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                module.register_forward_hook(_with(formula))

    return change


def _with(formula: Callable[[Tensor, float], Tensor]) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(module: nn.Module, args: Any, _: Tensor) -> Tensor:
        assert isinstance(module, (nn.LayerNorm, nn.RMSNorm))
        normed = formula(args[0], module.eps or 0.0) * module.weight
        return normed + module.bias if isinstance(module, nn.LayerNorm) else normed

    return hook
