"""The diagram of a model as data: its blocks in their order, with what they read, make and hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from glassformer.config.model import ModelConfig

Kind = Literal[
    "tokens", "embedding", "position", "norm", "attention", "ffn", "add", "memory", "linear", "softmax", "pool",
]  # fmt: skip


@dataclass(frozen=True)
class Block:
    """One box of the diagram."""

    id: str
    kind: Kind
    label: str
    detail: str
    tensor: str  # what it makes; "" for the tokens
    step: str  # of the walk, where it is shown
    parameters: int
    reads: tuple[str, ...] = ()  # tensors that come in


@dataclass(frozen=True)
class Sublayer:
    """What stands between the two ends of a residual connection; the last block adds."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Column:
    """An encoder or a decoder, from its tokens upwards."""

    side: Literal["encoder", "decoder"]
    before: tuple[Block, ...]
    layers: tuple[tuple[Sublayer, ...], ...]
    after: tuple[Block, ...]


def machine(config: ModelConfig, sizes: Mapping[str, int]) -> list[Column]:
    """Return the columns of a model's diagram.

    Args:
        config: With all its sizes.
        sizes: The number of numbers of each parameter, by its first name.

    """
    drawing = _Drawing(config, sizes)
    columns = []
    for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        if n_layers is not None:
            columns.append(drawing.column("encoder" if side == "encoder" else "decoder", n_layers))
    return columns


class _Drawing:
    def __init__(self, config: ModelConfig, sizes: Mapping[str, int]) -> None:
        self.config, self.sizes = config, sizes
        self.norm_name = "RMSNorm" if config.norm.kind == "rmsnorm" else "LayerNorm"

    def column(self, side: Literal["encoder", "decoder"], n_layers: int) -> Column:
        before = self._before(side)
        x, layers = before[-1].tensor, []
        for i in range(n_layers):
            layers.append(self._layer(side, i, x))
            x = layers[-1][-1].blocks[-1].tensor
        return Column(side, tuple(before), tuple(layers), tuple(self._after(side, x)))

    def _before(self, side: str) -> list[Block]:
        config, name = self.config, f"{side}.embedding"
        second = side == "decoder" and config.has_encoder
        label = "target so far" if second else "source" if side == "encoder" else "tokens"
        shared = second and config.tying in ("all", "source-target")
        scale = f" · × √{config.d_model}" if config.embedding.scale else ""
        step = f"{name}.{'scaled' if config.embedding.scale else 'lookup'}"
        adds = config.positions.kind in ("sinusoidal", "learned")
        embedded = step if adds else f"{name}.positioned"
        detail = ("the same table" if shared else "table lookup") + scale
        held = self._held(f"{name}.tokens", f"{name}.token_types")
        blocks = [
            Block(f"{side}.ids", "tokens", label, "", "", f"{side}.ids", 0),
            Block(name, "embedding", "Embedding", detail, embedded, step, held),
        ]  # fmt: skip
        if adds:
            what = "sines and cosines" if config.positions.kind == "sinusoidal" else "learned table"
            held, summed = self._held(f"{name}.position_table"), f"{name}.positioned"
            blocks.append(Block(f"{name}.position", "position", "+ position", what, summed, summed, held, (embedded,)))
        if config.norm.embedding:
            read, normed = f"{name}.positioned", f"{name}.normed"
            blocks.append(
                Block(f"{name}.norm", "norm", self.norm_name, "", normed, normed, self._held(f"{name}.norm"), (read,))
            )
        return blocks

    def _layer(self, side: str, i: int, x: str) -> tuple[Sublayer, ...]:
        name = f"{side}.layers.{i}"
        cross = side == "decoder" and self.config.has_encoder
        sublayers = []
        for sublayer in ("self_attention", *(("cross_attention",) if cross else ()), "ffn"):
            blocks, came_in = [], x
            residual = f"{name}.{sublayer}_residual"
            held = self._held(f"{residual}.norm")
            if self.config.norm.placement == "pre":
                normed = f"{residual}.normed"
                blocks.append(Block(f"{residual}.norm", "norm", self.norm_name, "", normed, normed, held, (x,)))
                x = normed
            body = self._body(side, f"{name}.{sublayer}", sublayer, x)
            blocks.append(body)
            pre = self.config.norm.placement == "pre"
            made = f"{residual}.{'sum' if pre else 'normed'}"
            label = "Add" if pre else f"Add & {self.norm_name}"
            held = 0 if pre else held
            blocks.append(Block(f"{residual}.sum", "add", label, "", made, made, held, (came_in, body.tensor)))
            sublayers.append(Sublayer(tuple(blocks)))
            x = made
        return tuple(sublayers)

    def _body(self, side: str, name: str, sublayer: str, x: str) -> Block:
        config, made = self.config, f"{name}.projected"
        if sublayer == "ffn":
            activation = {"relu": "ReLU", "silu": "SiLU"}.get(config.ffn.activation, "GELU")
            detail = (
                f"{config.d_model} → {config.d_ff} → {config.d_model} · {activation}" + ", gated" * config.ffn.gated
            )
            return Block(name, "ffn", "Feed-forward", detail, made, made, self._held(name), (x,))
        cross = sublayer == "cross_attention"
        masked = side == "decoder" and not cross
        label = "Cross-attention" if cross else "Masked self-attention" if masked else "Self-attention"
        h, g, k = config.n_heads, config.kv_heads, config.d_k
        detail = f"{h} head{'s' * (h > 1)} of {k}" + (f" on {g} of keys and values" if g != h else "")
        if config.positions.kind == "rotary" and not cross:
            detail += " · rotary"
        reads = (x, "memory") if cross else (x,)
        return Block(name, "attention", label, detail, made, f"{name}.weights", self._held(name), reads)

    def _after(self, side: str, x: str) -> list[Block]:
        config, blocks = self.config, []
        if config.final_norm:
            made = f"{side}.output"
            blocks.append(
                Block(
                    f"{side}.norm", "norm", f"Last {self.norm_name}", "", made, made, self._held(f"{side}.norm"), (x,)
                )
            )
            x = made
        if side == "encoder":
            blocks.append(Block("memory", "memory", "Memory", "", "memory", "memory", 0, (x,)))
            if config.has_decoder or config.classifier is None:
                return blocks
            x = "memory"
            if config.classifier.pooling != "none":
                what = "the first token" if config.classifier.pooling == "first" else "mean of the tokens"
                blocks.append(Block("pooled", "pool", "Pooling", what, "pooled", "pooled", 0, (x,)))
                x = "pooled"
        tied = config.tying in ("all", "target-output")
        detail = "the embedding table" if tied else f"{config.d_model} → scores"
        blocks.append(Block("logits", "linear", "Linear", detail, "logits", "logits", self._held("output"), (x,)))
        blocks.append(
            Block("probabilities", "softmax", "Softmax", "", "probabilities", "probabilities", 0, ("logits",))
        )
        return blocks

    def _held(self, *prefixes: str) -> int:
        """Return how many parameters stand under these names; a matrix that is tied counts at its first place."""
        starts = tuple(f"{prefix}." for prefix in prefixes)
        return sum(size for name, size in self.sizes.items() if name.startswith(starts))
