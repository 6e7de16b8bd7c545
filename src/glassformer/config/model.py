"""What a Transformer is, as data: frozen, checked, without torch.

The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762);
the comments give its sections. Every choice is one field with a closed set of names.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


class Frozen(BaseModel):
    """A part of a configuration: it cannot be changed, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Norm(Frozen):
    """Normalisation: which formula, and where it stands."""

    kind: Literal["layernorm", "rmsnorm"] = "layernorm"
    eps: Annotated[float, Field(gt=0.0)] = 1e-5
    # post: LayerNorm(x + Sublayer(x)), section 3.1; pre: x + Sublayer(LayerNorm(x))
    placement: Literal["post", "pre"] = "post"
    # one more norm after the last layer; unset: with "pre" yes (its residual path has none), with "post" no
    final: bool | None = None
    # one more norm on the sum of embedding and position, as in BERT
    embedding: bool = False


class Positions(Frozen):
    """How the model knows the order of its tokens (section 3.5)."""

    kind: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    first: Annotated[int, Field(ge=0)] = 0  # the number that the first token's position has
    base: Annotated[float, Field(gt=1.0)] = 10000.0  # sinusoidal and rotary: wavelengths from 2π to base · 2π
    # sinusoidal: sin and cos in turn (the paper); all sines, then all cosines (Marian);
    # the same with exponent i/(d/2 - 1) (tensor2tensor, fairseq, CTranslate2)
    ladder: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    # rotary: which two numbers turn together, (2i, 2i + 1) (RoFormer) or (i, i + d/2) (Llama at Hugging Face)
    convention: Literal["interleaved", "halves"] = "interleaved"
    size: Count | None = None  # learned: rows of the table

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "learned" and self.size is None:
            raise ValueError("learned positions need a table: set positions.size, the longest input in tokens")
        if self.size is not None and self.kind != "learned":
            raise ValueError(f"positions.size belongs to learned positions; {self.kind} positions have no table")
        if self.size is not None and self.first >= self.size:
            raise ValueError(f"positions.first={self.first} lies past the table of positions.size={self.size} rows")
        if self.kind in ("learned", "none") and self.base != 10000.0:
            raise ValueError(f"positions.base belongs to sinusoidal and rotary positions, not to kind={self.kind!r}")
        if self.kind == "none" and self.first:
            raise ValueError("positions.first numbers the positions, but positions.kind='none' uses none")
        if self.ladder != "interleaved" and self.kind != "sinusoidal":
            raise ValueError(f"positions.ladder belongs to sinusoidal positions, not to {self.kind} ones")
        if self.convention != "interleaved" and self.kind != "rotary":
            raise ValueError(f"positions.convention belongs to rotary positions, not to {self.kind} ones")
        return self


class FeedForward(Frozen):
    """The position-wise network (section 3.3): act(x W_1) W_2, or gated: (act(x W_gate) * x W_1) W_2."""

    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    gated: bool = False


class Embedding(Frozen):
    """What happens to a token's row of the table before its position is added (section 3.4)."""

    scale: bool = True  # multiply by √d_model
    token_types: Annotated[int, Field(ge=0)] = 0  # rows of a second table (BERT: 2); 0: none


class Dropout(Frozen):
    """Shares of numbers set to 0 in training (section 5.4)."""

    residual: Rate = 0.1  # each sublayer's output, and the sum of embedding and position
    attention: Rate = 0.0  # the attention weights
    ffn: Rate = 0.0  # the hidden numbers of the feed-forward network


class Classifier(Frozen):
    """The output of an encoder-only model: scores for classes."""

    classes: Annotated[int, Field(ge=2)] | None = None  # unset: as many as the training data have
    pooling: Literal["first", "mean", "none"] = "mean"  # none: scores for every token (a tagger)


class ModelConfig(Frozen):
    """The architecture of one model."""

    kind: Literal["encoder-decoder", "decoder", "encoder"] = "encoder-decoder"  # section 3.1
    source_vocabulary: Count | None = None  # tokens that the encoder knows; unset: training takes its vocabulary's
    target_vocabulary: Count | None = None  # tokens that the decoder knows; the same
    n_encoder_layers: Count | None = None  # N, section 3.1
    n_decoder_layers: Count | None = None
    d_model: Count = 512
    d_ff: Count = 2048  # section 3.3
    n_heads: Count = 8  # h, section 3.2.2
    n_kv_heads: Count | None = None  # heads of keys and values, each shared by several queries; unset: n_heads
    d_head: Count | None = None  # d_k = d_v in the paper; unset: d_model / n_heads
    norm: Norm = Norm()
    positions: Positions = Positions()
    ffn: FeedForward = FeedForward()
    # the paper's formulas have biases in the feed-forward network only; PyTorch has them in attention too
    biases: Literal["all", "ffn", "none"] = "all"
    output_bias: bool = False
    embedding: Embedding = Embedding()
    # which of the source, target and output matrices are one (section 3.4: all)
    tying: Literal["all", "source-target", "target-output", "none"] = "all"
    # pytorch: nn.Linear's own, embeddings N(0, 1/d_model); xavier: uniform; normal: N(0, 0.02²) (GPT-2)
    initialisation: Literal["pytorch", "xavier", "normal"] = "pytorch"
    dropout: Dropout = Dropout()
    classifier: Classifier | None = None

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads, G."""
        return self.n_kv_heads or self.n_heads

    @property
    def d_k(self) -> int:
        """Size of one head, K."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def longest(self) -> int | None:
        """The most tokens that a learned position table has room for; None where nothing ends."""
        return None if self.positions.size is None else self.positions.size - self.positions.first

    @property
    def final_norm(self) -> bool:
        """Whether each stack ends in one more norm."""
        return self.norm.placement == "pre" if self.norm.final is None else self.norm.final

    @property
    def has_encoder(self) -> bool:
        """Whether the model reads a source."""
        return self.kind != "decoder"

    @property
    def has_decoder(self) -> bool:
        """Whether the model writes a target."""
        return self.kind != "encoder"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_sizes()
        self._check_sides()
        self._check_tying()
        if self.kind == "encoder" and self.output_bias:
            raise ValueError("output_bias belongs to models that score tokens, not to kind='encoder'")
        if self.kind != "encoder" and self.classifier is not None:
            raise ValueError(f"[classifier] belongs to kind='encoder'; a model of kind={self.kind!r} scores tokens")
        if self.kind != "encoder" and self.embedding.token_types:
            raise ValueError(f"embedding.token_types belongs to kind='encoder', not to kind={self.kind!r}")
        return self

    def _check_sizes(self) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model={self.d_model} does not divide into n_heads={self.n_heads} equal heads; "
                "change one of them, or set d_head"
            )
        if self.n_heads % self.kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.kv_heads}: "
                "each key and value head serves the same number of query heads"
            )
        if self.positions.kind == "rotary" and self.d_k % 2:
            raise ValueError(f"rotary positions turn pairs of numbers, so d_head={self.d_k} must be even")
        if self.positions.kind == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions fill pairs of columns, so d_model={self.d_model} must be even")
        if self.positions.ladder == "tensor2tensor" and self.d_model < 4:
            raise ValueError(
                f"the tensor2tensor ladder divides by d_model/2 - 1, so d_model={self.d_model} is too small"
            )

    def _check_sides(self) -> None:
        source = {"source_vocabulary": "tokens", "n_encoder_layers": "layers"}
        target = {"target_vocabulary": "tokens", "n_decoder_layers": "layers"}
        for side, needed, fields in (
            ("encoder", self.has_encoder, source),
            ("decoder", self.has_decoder, target),
        ):
            for field, what in fields.items():
                given = getattr(self, field) is not None
                if needed and not given and what == "layers":
                    raise ValueError(f"a model of kind={self.kind!r} needs {field}, the number of its {side}'s {what}")
                if given and not needed:
                    raise ValueError(f"a model of kind={self.kind!r} has no {side}: leave {field} out")

    def _check_tying(self) -> None:
        allowed = {
            "encoder-decoder": ("all", "source-target", "target-output", "none"),
            "decoder": ("target-output", "none"),
            "encoder": ("none",),
        }[self.kind]
        if self.tying not in allowed:
            raise ValueError(
                f"tying={self.tying!r} does not exist for kind={self.kind!r}, which has not all of the matrices; "
                f"allowed: {', '.join(allowed)}"
            )
        sizes = {self.source_vocabulary, self.target_vocabulary} - {None}
        if self.tying in ("all", "source-target") and len(sizes) > 1:
            raise ValueError(
                f"tying={self.tying!r} makes source and target one matrix, but source_vocabulary="
                f"{self.source_vocabulary} and target_vocabulary={self.target_vocabulary} differ; "
                "use one vocabulary for both, or tying='target-output' or 'none'"
            )
