"""How each tensor of a model is made from others: the operation, what it reads, and its formula.

With these, anybody can compute one number again: the explorer's page does, and the tests do it for every tensor.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config, model_of

# What is done at one place of the result, a letter for each axis; x, y: the tensors that are read, in order.
Operation = Literal[
    "lookup",  # W[id of the token, d]
    "scale",  # x · factor
    "position",  # the sinusoid of the token's position and of column d
    "sum",  # x + y + ..
    "linear",  # Σ_j x[.., j] W[n, j] + b[n]; with heads, n = head · size + k
    "rotate",  # a pair of x turned by the token's position times the pair's frequency
    "product",  # Σ_k x[h, t, k] y[g, s, k], g the key head of h
    "mask",  # x where the query may see the key, else -∞
    "softmax",  # e^x / Σ e^x over the last axis; 0 in a row of -∞
    "mix",  # Σ_s x[h, t, s] y[g, s, k], g the value head of h
    "join",  # x[h, t, k] in column h · size + k
    "layernorm",  # γ (x - μ) / √(σ² + ε) + β over the last axis
    "rmsnorm",  # γ x / √(mean(x²) + ε) over the last axis
    "activation",  # f(x)
    "multiply",  # x · y
    "same",  # x
    "pool",  # the first token's x, or the mean over the tokens
]
Value = float | int | str | bool


@dataclass(frozen=True)
class Origin:
    """How one tensor is made."""

    operation: Operation
    reads: tuple[str, ...]  # names of tensors, in the order of the formula
    formula: str  # LaTeX, in the paper's letters
    parameters: tuple[str, ...] = ()  # names of weights: the matrix and its bias, or γ and β
    settings: dict[str, Value] = field(default_factory=dict)  # numbers and names that the formula needs


def origins(config: ModelConfig | Config) -> dict[str, Origin]:
    """Return how each tensor of a model is made, by name, in the order in which they are computed.

    Raises:
        ConfigError: The model has no size of its vocabulary yet.

    """
    return dict(_Reader(model_of(config)).everything())


class _Reader:
    """Goes through the model as a forward pass does."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def everything(self) -> Iterator[tuple[str, Origin]]:
        config, x = self.config, ""
        for side, n_layers in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
            if n_layers is None:
                continue
            yield from self._embedding(f"{side}.embedding")
            x = f"{side}.embedding.{'normed' if config.norm.embedding else 'positioned'}"
            for i in range(n_layers):
                yield from self._layer(f"{side}.layers.{i}", x)
                x = f"{side}.layers.{i}.output"
            yield f"{side}.output", self._norm(x, f"{side}.norm", "") if config.final_norm else _same(x, "x")
            x = f"{side}.output"
            if side == "encoder":
                yield "memory", _same(x, r"\mathrm{memory}")
                x = "memory"
        yield from self._scores(x)

    def _embedding(self, name: str) -> Iterator[tuple[str, Origin]]:
        config = self.config
        d, kind = config.d_model, config.positions.kind
        yield f"{name}.lookup", Origin("lookup", (), r"E[\mathrm{token}]", (f"{name}.tokens.weight",))
        factor = d**0.5 if config.embedding.scale else 1.0
        formula = r"\sqrt{d_\mathrm{model}}\;E[\mathrm{token}]" if config.embedding.scale else r"E[\mathrm{token}]"
        yield f"{name}.scaled", Origin("scale", (f"{name}.lookup",), formula, settings={"factor": factor})
        terms, symbols = [f"{name}.scaled"], [formula]
        if config.embedding.token_types:
            yield (
                f"{name}.token_type",
                Origin("lookup", (), r"E_\mathrm{type}[0]", (f"{name}.token_types.weight",), {"row": 0}),
            )
            terms.append(f"{name}.token_type")
            symbols.append(r"E_\mathrm{type}[0]")
        first = config.positions.first
        if kind == "sinusoidal":
            base = _number(config.positions.base)
            exponent = "2i/(d-2)" if config.positions.ladder == "tensor2tensor" else r"2i/d_\mathrm{model}"
            yield (
                f"{name}.position",
                Origin(
                    "position",
                    (),
                    rf"PE(pos, i) = \sin, \cos\left(pos / {base}^{{{exponent}}}\right)",
                    settings={"first": first, "base": config.positions.base, "ladder": config.positions.ladder},
                ),
            )
        elif kind == "learned":
            table = f"{name}.position_table.table.weight"
            yield f"{name}.position", Origin("lookup", (), r"P[pos]", (table,), {"first": first})
        if kind in ("sinusoidal", "learned"):
            terms.append(f"{name}.position")
            symbols.append("PE(pos)" if kind == "sinusoidal" else "P[pos]")
        yield f"{name}.positioned", Origin("sum", tuple(terms), " + ".join(symbols))
        if config.norm.embedding:
            yield f"{name}.normed", self._norm(f"{name}.positioned", f"{name}.norm", "")

    def _layer(self, name: str, x: str) -> Iterator[tuple[str, Origin]]:
        sublayers = ["self_attention", "ffn"]
        if self.config.has_encoder and name.startswith("decoder"):
            sublayers.insert(1, "cross_attention")
        for sublayer in sublayers:
            residual, entered = f"{name}.{sublayer}_residual", x
            if self.config.norm.placement == "pre":
                entered = f"{residual}.normed"
                yield entered, self._norm(x, f"{residual}.norm", "")
            if sublayer == "ffn":
                yield from self._ffn(f"{name}.ffn", entered)
            else:
                memory = "memory" if sublayer == "cross_attention" else entered
                yield from self._attention(f"{name}.{sublayer}", entered, memory)
            yield f"{residual}.sum", Origin("sum", (x, f"{name}.{sublayer}.projected"), r"x + \mathrm{Sublayer}(x)")
            x = f"{residual}.sum"
            if self.config.norm.placement == "post":
                yield f"{residual}.normed", self._norm(x, f"{residual}.norm", r"x + \mathrm{Sublayer}(x)")
                x = f"{residual}.normed"
        yield f"{name}.output", _same(x, "x")

    def _attention(self, name: str, x: str, memory: str) -> Iterator[tuple[str, Origin]]:
        config = self.config
        k, bias, positions = config.d_k, config.biases == "all", config.positions
        q_name, k_name, shared = f"{name}.q", f"{name}.k", config.n_heads // config.kv_heads
        read = "X" if memory == x else r"M"
        yield q_name, self._linear(x, f"{name}.w_q", f"X W^Q{' + b^Q' * bias}", bias=bias, heads=k)
        rotates = positions.kind == "rotary" and not name.endswith("cross_attention")
        if rotates:
            yield f"{name}.rotated_q", self._rotation(q_name, "Q")
            q_name = f"{name}.rotated_q"
        yield k_name, self._linear(memory, f"{name}.w_k", f"{read} W^K{' + b^K' * bias}", bias=bias, heads=k)
        yield f"{name}.v", self._linear(memory, f"{name}.w_v", f"{read} W^V{' + b^V' * bias}", bias=bias, heads=k)
        if rotates:
            yield f"{name}.rotated_k", self._rotation(k_name, "K")
            k_name = f"{name}.rotated_k"
        yield f"{name}.scores", Origin("product", (q_name, k_name), r"Q K^\top", settings={"shared": shared})
        scaled = r"\frac{Q K^\top}{\sqrt{d_k}}"
        yield f"{name}.scaled", Origin("scale", (f"{name}.scores",), scaled, settings={"factor": k**-0.5})
        causal = name.startswith("decoder") and not name.endswith("cross_attention")
        masked = scaled + (r" + \mathrm{mask}" if causal else "")
        yield f"{name}.masked", Origin("mask", (f"{name}.scaled",), masked, settings={"causal": causal})
        weights = rf"\mathrm{{softmax}}\left({masked}\right)"
        yield f"{name}.weights", Origin("softmax", (f"{name}.masked",), weights)
        yield (
            f"{name}.heads",
            Origin("mix", (f"{name}.weights", f"{name}.v"), weights + " V", settings={"shared": shared}),
        )
        joined = r"[\mathrm{head}_1, \ldots, \mathrm{head}_h]"
        yield f"{name}.joined", Origin("join", (f"{name}.heads",), joined, settings={"size": k})
        formula = joined + r"\,W^O" + " + b^O" * bias
        yield f"{name}.projected", self._linear(f"{name}.joined", f"{name}.w_o", formula, bias=bias)

    def _ffn(self, name: str, x: str) -> Iterator[tuple[str, Origin]]:
        config = self.config
        bias, activation = config.biases != "none", config.ffn.activation
        symbol = {"relu": r"\max(0, %s)", "silu": r"\mathrm{SiLU}(%s)"}.get(activation, r"\mathrm{GELU}(%s)")
        up, read = f"x W_1{' + b_1' * bias}", f"{name}.up"
        yield read, self._linear(x, f"{name}.w_1", up, bias=bias)
        hidden, kept = symbol % up, {"activation": activation}
        if config.ffn.gated:
            gate = rf"x W_\mathrm{{gate}}{' + b' * bias}"
            yield f"{name}.gate", self._linear(x, f"{name}.w_gate", gate, bias=bias)
            activated = f"{name}.activated"
            yield activated, Origin("activation", (f"{name}.gate",), symbol % gate, settings={**kept})
            hidden = rf"{symbol % gate} \odot ({up})"
            yield f"{name}.hidden", Origin("multiply", (activated, read), hidden)
        else:
            yield f"{name}.hidden", Origin("activation", (read,), hidden, settings={**kept})
        formula = rf"\left({hidden}\right) W_2" if config.ffn.gated else rf"{hidden}\,W_2"
        yield f"{name}.projected", self._linear(f"{name}.hidden", f"{name}.w_2", formula + " + b_2" * bias, bias=bias)

    def _scores(self, x: str) -> Iterator[tuple[str, Origin]]:
        config = self.config
        if config.has_decoder:
            tied = config.tying in ("all", "target-output")
            matrix = r"E^\top" if tied else "W"
            yield (
                "logits",
                self._linear(x, "output", f"x {matrix}{' + b' * config.output_bias}", bias=config.output_bias),
            )
        elif config.classifier is not None:
            pooling = config.classifier.pooling
            if pooling == "none":
                yield "pooled", _same(x, "x")
            else:
                formula = "x_1" if pooling == "first" else r"\frac{1}{S} \sum_s x_s"
                yield "pooled", Origin("pool", (x,), formula, settings={"pooling": pooling})
            yield "logits", self._linear("pooled", "output", r"x W + b", bias=True)
        else:
            return
        yield "probabilities", Origin("softmax", ("logits",), r"\mathrm{softmax}(\mathrm{logits})")

    def _linear(self, x: str, name: str, formula: str, *, bias: bool, heads: int | None = None) -> Origin:
        """`heads`: the size of the heads that the result is split into."""
        parameters = (f"{name}.weight", f"{name}.bias") if bias else (f"{name}.weight",)
        return Origin("linear", (x,), formula, parameters, {} if heads is None else {"size": heads})

    def _norm(self, x: str, name: str, inside: str) -> Origin:
        eps = self.config.norm.eps
        if self.config.norm.kind == "rmsnorm":
            formula = rf"\mathrm{{RMSNorm}}({inside or 'x'})"
            return Origin("rmsnorm", (x,), formula, (f"{name}.weight",), {"eps": eps})
        formula = rf"\mathrm{{LayerNorm}}({inside or 'x'})"
        return Origin("layernorm", (x,), formula, (f"{name}.weight", f"{name}.bias"), {"eps": eps})

    def _rotation(self, x: str, symbol: str) -> Origin:
        positions = self.config.positions
        settings: dict[str, Value] = {
            "first": positions.first,
            "base": positions.base,
            "convention": positions.convention,
        }
        return Origin("rotate", (x,), rf"R_{{pos}}\,{symbol}", settings=settings)


def _same(x: str, formula: str) -> Origin:
    return Origin("same", (x,), formula)


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e15 else str(value)
