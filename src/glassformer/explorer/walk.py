"""The walk through a model: its steps in order, from the tokens to the probabilities, each with its tensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from glassformer.config.model import ModelConfig

WAVES = {
    "interleaved": "fast on the left and slow on the right",
    "halves": "all sines on the left, all cosines on the right",
    "tensor2tensor": "all sines on the left, all cosines on the right",
}
Side = Literal["encoder", "decoder"]
Phase = Literal["input", "encoder", "decoder", "output"]


@dataclass(frozen=True)
class Panel:
    """One tensor as a step shows it."""

    tensor: str
    label: str


@dataclass(frozen=True)
class Guess:
    """What the page asks before it shows a step: which source token a row of attention reads most."""

    question: str
    tensor: str
    row: int


@dataclass(frozen=True)
class Step:
    """One step of the walk."""

    id: str  # what a link names
    title: str
    phase: Phase
    block: str  # of the machine
    panels: tuple[Panel, ...]  # the last one is what the step makes
    why: str
    layer: int | None = None  # counted from 1
    ids: Literal["source", "target"] | None = None  # the step shows the tokens of this side
    guess: Guess | None = None
    caution: str = ""  # what the picture does not prove


def steps(config: ModelConfig) -> list[Step]:
    """Return the steps of a model with all its sizes."""
    return list(_Walk(config).steps())


class _Walk:
    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def steps(self) -> Iterator[Step]:
        config = self.config
        sides: tuple[tuple[Side, int | None], ...] = (
            ("encoder", config.n_encoder_layers),
            ("decoder", config.n_decoder_layers),
        )
        for side, n_layers in sides:
            if n_layers is None:
                continue
            yield from self._input(side)
            x = f"{side}.embedding.{'normed' if config.norm.embedding else 'positioned'}"
            for i in range(n_layers):
                yield from self._layer(side, i, x)
                x = f"{side}.layers.{i}.output"
            yield from self._end(side, x)
        yield from self._output()

    def _input(self, side: Side) -> Iterator[Step]:
        config, name = self.config, f"{side}.embedding"
        second = side == "decoder" and config.has_encoder
        phase: Phase = "decoder" if second else "input"
        if second:
            title, why = (
                "Decoder input, shifted right",
                (
                    "The decoder reads the start token and then what is written so far; in training the whole answer, "
                    "one place late, so that each place has to say the token that comes next."
                ),
            )
        elif side == "encoder":
            title, why = (
                "Source tokens and their ids",
                "The text is cut into tokens, and each token has a number, its id.",
            )
        else:
            title, why = (
                "Tokens and their ids",
                "The text so far is cut into tokens, and each token has a number, its id.",
            )
        yield Step(f"{side}.ids", title, phase, f"{side}.ids", (), why, ids="target" if side == "decoder" else "source")
        lookup = Panel(f"{name}.lookup", "row of the table")
        shared = second and config.tying in ("all", "source-target")
        yield Step(
            f"{name}.lookup",
            "Embedding lookup" + ", in the same table" * shared,
            phase,
            name,
            (lookup,),
            f"Each id picks its row of the embedding table: {config.d_model} learned numbers stand for the token"
            + (". Source and target share one table." if shared else "."),
        )
        scaled = lookup
        if config.embedding.scale:
            scaled = Panel(f"{name}.scaled", "times √d_model")
            yield Step(
                f"{name}.scaled",
                f"Multiply by √d_model = {config.d_model**0.5:.4g}",
                phase,
                name,
                (lookup, scaled),
                "The table starts with small numbers; times √d_model they are as large as the position that is added "
                "next, which would drown them otherwise (section 3.4).",
            )
        yield from self._position(name, scaled, phase)
        if config.norm.embedding:
            yield Step(
                f"{name}.normed",
                "Norm of the input",
                phase,
                name,
                (Panel(f"{name}.positioned", "sum"), Panel(f"{name}.normed", "normed")),
                "A norm on the sum brings each token's numbers to one size before the first layer.",
            )

    def _position(self, name: str, scaled: Panel, phase: Phase) -> Iterator[Step]:
        kind, panels = self.config.positions.kind, [scaled]
        title, why, block = "Add the token type", "A learned row for the type of the token is added.", name
        if self.config.embedding.token_types:
            panels.append(Panel(f"{name}.token_type", "token type"))
        if kind in ("sinusoidal", "learned"):
            panels.append(Panel(f"{name}.position", "position"))
            title, block = "Add the position", f"{name}.position"
            why = "Attention alone does not know the order of its tokens. Each position adds " + (
                "a pattern of its own: a sine and a cosine in each pair of columns, "
                f"{WAVES[self.config.positions.ladder]} (section 3.5)."
                if kind == "sinusoidal"
                else "a learned row of its own."
            )
        if len(panels) > 1:
            panels.append(Panel(f"{name}.positioned", "sum"))
            yield Step(f"{name}.positioned", title, phase, block, tuple(panels), why)

    def _layer(self, side: Side, i: int, x: str) -> Iterator[Step]:
        name = f"{side}.layers.{i}"
        cross = side == "decoder" and self.config.has_encoder
        for sublayer in ("self_attention", *(("cross_attention",) if cross else ()), "ffn"):
            residual = f"{name}.{sublayer}_residual"
            pre = self.config.norm.placement == "pre"
            norm = self._norm_name()
            if pre:
                yield Step(
                    f"{residual}.normed",
                    f"{norm} first",
                    side,
                    f"{residual}.norm",
                    (Panel(x, "residual path"), Panel(f"{residual}.normed", "normed")),
                    "The sublayer reads a normalised copy; the residual path itself goes on untouched beside it.",
                    i + 1,
                )
            if sublayer == "ffn":
                yield self._ffn(side, i)
            else:
                yield from self._attention(side, i, sublayer)
            panels = [
                Panel(x, "what came in"),
                Panel(f"{name}.{sublayer}.projected", "change"),
                Panel(f"{residual}.sum", "sum"),
            ]
            if pre:
                yield Step(
                    f"{residual}.sum", "Add", side, f"{residual}.sum", tuple(panels),
                    "The sublayer's result is a change, added to the residual path.", i + 1,
                )  # fmt: skip
                x = f"{residual}.sum"
            else:
                panels.append(Panel(f"{residual}.normed", "normed"))
                yield Step(
                    f"{residual}.normed", "Add & norm", side, f"{residual}.sum", tuple(panels),
                    f"The change is added to what came in, and the sum is normalised: {norm}(x + Sublayer(x)) "
                    "(section 3.1).", i + 1,
                )  # fmt: skip
                x = f"{residual}.normed"

    def _attention(self, side: Side, i: int, sublayer: str) -> Iterator[Step]:
        config, name = self.config, f"{side}.layers.{i}.{sublayer}"
        cross, causal = sublayer == "cross_attention", side == "decoder" and sublayer == "self_attention"
        h, g, k = config.n_heads, config.kv_heads, config.d_k
        rotary = config.positions.kind == "rotary" and not cross
        panels = [Panel(f"{name}.q", "Q"), Panel(f"{name}.k", "K"), Panel(f"{name}.v", "V")]
        split = f"{h} heads of {k} numbers" if h > 1 else f"one head of {k} numbers"
        if g != h:
            split = f"{h} query heads and {g} key and value heads of {k} numbers, each serving {h // g} queries"
        where = "Q comes from the decoder, K and V from the memory" if cross else "All three come from the same input"
        why = f"Three linear layers make queries, keys and values: {split}. {where}."
        if rotary:
            panels += [Panel(f"{name}.rotated_q", "Q, turned"), Panel(f"{name}.rotated_k", "K, turned")]
            why += " Queries and keys are turned by their positions, so that a score knows the distance."
        kind = "cross-attention" if cross else "masked self-attention" if causal else "self-attention"
        yield Step(f"{name}.q", f"Queries, keys and values ({kind})", side, name, tuple(panels), why, i + 1)
        last = cross and i + 1 == config.n_decoder_layers
        why = {
            "cross-attention": "Each row of the target asks, and the source answers: nothing of it is hidden. "
            "The picture has as many rows as the target and as many columns as the source.",
            "masked self-attention": "A token may read itself and what stands before it. What comes later is hidden: "
            "its score becomes −∞, its weight exactly 0.",
            "self-attention": "Every token may read every token: each row of weights sums to 1.",
        }[kind]
        yield Step(
            f"{name}.weights",
            kind.capitalize(),
            side,
            name,
            (
                Panel(f"{name}.scores", "scores Q Kᵀ"),
                Panel(f"{name}.scaled", "÷ √d_k"),
                Panel(f"{name}.masked", "masked"),
                Panel(f"{name}.weights", "weights: softmax"),
            ),
            why,
            i + 1,
            guess=Guess("Which source token does the first row read most?", f"{name}.weights", 0) if last else None,
            caution="Weights show where a row looked, not why, nor what it made of it.",
        )
        yield Step(
            f"{name}.projected",
            "Heads joined and projected" if h > 1 else "Values mixed and projected",
            side,
            name,
            (
                Panel(f"{name}.heads", "each head"),
                Panel(f"{name}.joined", "joined"),
                Panel(f"{name}.projected", "times W_O"),
            ),
            "Each row mixes the values by its weights; the heads stand side by side, and one more matrix mixes them.",
            i + 1,
        )

    def _ffn(self, side: Side, i: int) -> Step:
        config, name = self.config, f"{side}.layers.{i}.ffn"
        d, f = config.d_model, config.d_ff
        names = {"relu": "ReLU", "silu": "SiLU", "gelu": "GELU", "gelu-tanh": "GELU"}
        activation = names[config.ffn.activation]
        panels = [Panel(f"{name}.up", "times W_1")]
        why = (
            f"Each token on its own goes from {d} numbers to {f}, through {activation}, and back to {d} (section 3.3)."
        )
        if config.ffn.gated:
            panels += [Panel(f"{name}.gate", "gate"), Panel(f"{name}.activated", activation)]
            why = (
                f"Each token on its own: {activation} of a gate decides, number by number, how much of the {f} passes."
            )
        panels += [Panel(f"{name}.hidden", "hidden"), Panel(f"{name}.projected", "times W_2")]
        return Step(f"{name}.projected", "Feed-forward network", side, name, tuple(panels), why, i + 1)

    def _end(self, side: Side, x: str) -> Iterator[Step]:
        if self.config.final_norm:
            yield Step(
                f"{side}.output",
                f"Last {self._norm_name()}",
                side,
                f"{side}.norm",
                (Panel(x, "after the last layer"), Panel(f"{side}.output", "normed")),
                "After the last layer the residual path is normalised once more.",
            )
        if side == "encoder":
            reader = "The decoder reads it in every layer." if self.config.has_decoder else ""
            yield Step(
                "memory",
                "Encoder output: the memory",
                side,
                "memory",
                (Panel("memory", "memory"),),
                f"One row for each source token, now with what it took from the other tokens. {reader}".strip(),
            )

    def _output(self) -> Iterator[Step]:
        config = self.config
        if not config.has_decoder and config.classifier is None:
            return
        if config.has_decoder:
            tied = config.tying in ("all", "target-output")
            title = "Output layer" + (", tied to the embedding" if tied else "")
            why = (
                "Each row is compared with every row of the embedding table: one score for each token, and no new "
                "weights." if tied else "One more matrix makes a score for each token of the vocabulary."
            )  # fmt: skip
            words = "Softmax turns each row of scores into probabilities of the token that comes next."
            title_2 = "Softmax: the next token at each position"
        else:
            assert config.classifier is not None
            pooling = config.classifier.pooling
            if pooling != "none":
                which = "The first token's row stands" if pooling == "first" else "The mean of all rows stands"
                yield Step(
                    "pooled", "Pooling", "output", "pooled", (Panel("memory", "memory"), Panel("pooled", "pooled")),
                    f"{which} for the whole text.",
                )  # fmt: skip
            title, why = "Output layer", "One matrix makes a score for each class."
            title_2, words = "Softmax: the class", "Softmax turns the scores into probabilities of the classes."
        yield Step("logits", title, "output", "logits", (Panel("logits", "logits"),), why)
        yield Step(
            "probabilities",
            title_2,
            "output",
            "probabilities",
            (Panel("logits", "logits"), Panel("probabilities", "probabilities")),
            words,
        )

    def _norm_name(self) -> str:
        return "RMSNorm" if self.config.norm.kind == "rmsnorm" else "LayerNorm"
