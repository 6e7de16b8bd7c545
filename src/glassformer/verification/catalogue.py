"""The ways in which implementations are known to differ: what each is, what the paper says, and the fix."""

import math
from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.verification import changes as c
from glassformer.verification import masks as m
from glassformer.verification.deviation import (
    Deviation,
    Way,
    When,
    adds_positions,
    both,
    both_stacks,
    deviation,
    fields,
    has,
    hooks,
    layernorm,
    modules,
    parameters,
    post,
    pre,
    rmsnorm,
    rotary,
)

SIDES = ("encoder", "decoder")
POST = "section 3.1: LayerNorm(x + Sublayer(x)), and nothing after the last layer"
PRE = "pre-norm (Xiong et al. 2020): x + Sublayer(LayerNorm(x)), and one norm after each stack"
LAYERNORM = "section 3.1 and Ba et al. 2016: (x - μ) / √(σ² + ε), σ² the mean of (x - μ)²"
SCALED = "section 3.4: the embedding layers multiply those weights by √d_model"
SINUSOID = "section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same"
ROPE = "RoPE (Su et al. 2021): queries and keys are turned, in every layer, by pos / base^(2i/d)"
ATTENTION = "section 3.2.1, equation 1: softmax(Q Kᵀ / √d_k) V"
HEADS = "section 3.2.2: each head has d_k numbers of every token"
CAUSAL = "section 3.2.3: a position sees those up to and including itself"
PADDING = "padding is no part of the sentence: its keys are hidden"
FFN = "section 3.3, equation 2: max(0, x W_1 + b_1) W_2 + b_2"
CROSS = "section 3.2.3: queries from the decoder, keys and values from the encoder's output"
RESIDUAL = "section 3.1: a residual connection around each sublayer"


def places_of_norms() -> Iterator[Deviation]:
    """Where norms stand."""

    def without(config: ModelConfig) -> bool:
        return not config.final_norm

    def there(config: ModelConfig) -> bool:
        return config.final_norm

    take_out = {side: f"model.{side}.norm = None" for side in SIDES}
    for side in SIDES:
        yield deviation(
            f"extra-final-norm-{side}", f"has one more norm after its {side}'s last layer", POST,
            f"take it out (of nn.Transformer: {take_out[side]})",
            modules(c.more_norms(side), both(has(side), without)),
        )  # fmt: skip
        yield deviation(
            f"missing-final-norm-{side}", f"has no norm after its {side}'s last layer", PRE,
            f"put a norm after the {side}'s last layer",
            modules(c.fewer_norms(side), both(has(side), there)),
        )  # fmt: skip
    yield deviation(
        "extra-final-norm-both", "has one more norm after each stack", POST,
        f"take them out (of nn.Transformer: {' and '.join(take_out.values())})",
        modules(c.more_norms(*SIDES), both(both_stacks, without)),
    )  # fmt: skip
    yield deviation(
        "missing-final-norm-both", "has no norm after its stacks", PRE, "put a norm after each stack",
        modules(c.fewer_norms(*SIDES), both(both_stacks, there)),
    )  # fmt: skip
    yield deviation(
        "pre-for-post", "normalises each sublayer's input (pre-norm), not the sum after it", POST,
        "write norm(x + sublayer(x)) (nn.Transformer: norm_first=False)",
        *(parameters(post, norm__placement="pre", norm__final=final) for final in (None, False)),
    )  # fmt: skip
    yield deviation(
        "post-for-pre", "normalises the sum after each sublayer (post-norm), not its input", PRE,
        "write x + sublayer(norm(x)) (nn.Transformer: norm_first=True)",
        *(parameters(pre, norm__placement="post", norm__final=final) for final in (None, True)),
    )  # fmt: skip
    yield deviation(
        "norm-on-embedding", "normalises the sum of embedding and position, as BERT does",
        "section 3.4: the sum goes into the first layer as it is", "take the norm out",
        parameters(lambda config: not config.norm.embedding, norm__embedding=True),
    )  # fmt: skip


def norms() -> Iterator[Deviation]:
    """What norms compute."""
    yield deviation(
        "unbiased-variance", "divides by n - 1 for the variance of its norms", LAYERNORM, "x.var(-1, unbiased=False)",
        hooks(c.normed_by(lambda x, eps: _normed(x, eps, unbiased=True)), layernorm),
    )  # fmt: skip
    yield deviation(
        "epsilon-outside-root", "adds ε to the deviation, outside the root", LAYERNORM,
        "(x - mean) / torch.sqrt(var + eps)",
        hooks(c.normed_by(lambda x, eps: _normed(x, eps, outside=True)), layernorm),
        hooks(c.normed_by(lambda x, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps)), rmsnorm),
    )  # fmt: skip
    for eps in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-12):
        yield deviation(
            f"epsilon-{eps:g}", f"has ε = {eps:g} in its norms", "PyTorch's LayerNorm has 1e-5; the paper names none",
            "give both the same ε (norm.eps)", fields(norm__eps=eps),
        )  # fmt: skip
    yield deviation(
        "rmsnorm-for-layernorm", "divides by the root mean square and leaves the mean in", LAYERNORM,
        "take nn.LayerNorm",
        parameters(layernorm, norm__kind="rmsnorm"),
    )  # fmt: skip
    yield deviation(
        "layernorm-for-rmsnorm", "takes the mean off before it divides",
        "RMSNorm (Zhang and Sennrich 2019): x / √(mean(x²) + ε)", "take nn.RMSNorm",
        parameters(rmsnorm, norm__kind="layernorm"),
    )  # fmt: skip


def _normed(x: Tensor, eps: float, *, unbiased: bool = False, outside: bool = False) -> Tensor:
    variance = x.var(-1, keepdim=True, unbiased=unbiased)
    x = x - x.mean(-1, keepdim=True)
    return x / (variance.sqrt() + eps) if outside else x / (variance + eps).sqrt()


def embeddings() -> Iterator[Deviation]:
    """What goes into the first layer, and the matrix that it shares with the output."""

    def scaled(config: ModelConfig) -> bool:
        return config.embedding.scale

    def unscaled(config: ModelConfig) -> bool:
        return not config.embedding.scale

    yield deviation(
        "no-embedding-scale", "does not multiply its embeddings by √d_model", SCALED,
        "embedding(ids) * math.sqrt(d_model)",
        fields(scaled, embedding__scale=False),
        *(hooks(c.embedding_times(lambda d: d**-0.5, side), both(scaled, both_stacks)) for side in SIDES),
    )  # fmt: skip
    yield deviation(
        "embedding-scaled", "multiplies its embeddings by √d_model", "this configuration does not (embedding.scale)",
        "leave the factor out", fields(unscaled, embedding__scale=True),
    )  # fmt: skip
    yield deviation(
        "embedding-scaled-twice", "multiplies its embeddings by √d_model twice", SCALED, "multiply once",
        hooks(c.embedding_times(math.sqrt), scaled),
    )  # fmt: skip
    yield deviation(
        "scale-on-both", "multiplies the sum of embedding and position by √d_model", SCALED,
        "multiply the embedding alone, then add the position",
        hooks(c.positions_times(math.sqrt), both(scaled, adds_positions)),
        fields(both(unscaled, adds_positions), c.positions_times(math.sqrt), embedding__scale=True),
    )  # fmt: skip
    yield deviation(
        "untied-output", "has an output matrix of its own", "section 3.4: embeddings and output share one matrix",
        "output.weight = embedding.weight",
        *(parameters(tying=tying) for tying in ("source-target", "none", "target-output")),
    )  # fmt: skip
    yield deviation(
        "output-bias", "adds a bias to its logits", "section 3.4: the output is the embedding's matrix, and no bias",
        "nn.Linear(d_model, vocabulary, bias=False)", parameters(has("decoder"), output_bias=True),
    )  # fmt: skip
    for choice, says in (("all", "has biases in attention"), ("none", "has no biases in its layers")):
        yield deviation(
            f"biases-{choice}", says, "equation 2 has biases; the formulas of attention have none, PyTorch's layers do",
            "give both the same (model.biases)", parameters(biases=choice),
        )  # fmt: skip


def positions() -> Iterator[Deviation]:
    """How tokens know their order."""
    for ladder, says in (
        ("interleaved", "has sine and cosine in turn in its positions"),
        ("halves", "has all sines of its positions first, then all cosines"),
        ("tensor2tensor", "has all sines first, then all cosines, and i / (d/2 - 1) in the exponent"),
    ):
        yield deviation(
            f"ladder-{ladder}", says, SINUSOID, "sines in the even columns, cosines in the odd ones, exponent 2i/d",
            fields(lambda config: config.positions.kind == "sinusoidal", positions__ladder=ladder),
        )  # fmt: skip
    for first in (0, 1, 2):
        yield deviation(
            f"first-position-{first}", f"gives its first token the position {first}", SINUSOID + ", pos from 0",
            "count positions from 0: torch.arange(n)",
            fields(lambda config: config.positions.kind != "none", positions__first=first),
        )  # fmt: skip
    for base in (1e3, 1e4, 1e5, 5e5, 1e6):
        yield deviation(
            f"position-base-{base:.0f}", f"has {base:,.0f} as the base of its wavelengths", f"{SINUSOID}; {ROPE}",
            "take the base of the configuration (positions.base)",
            fields(lambda config: config.positions.kind in ("sinusoidal", "rotary"), positions__base=base),
        )  # fmt: skip

    def on_sides(factor: float) -> Iterator[Way]:
        yield hooks(c.positions_times(lambda _: factor), adds_positions)
        for side in SIDES:
            yield hooks(c.positions_times(lambda _: factor, side), both(adds_positions, both_stacks))

    yield deviation("position-twice", "adds the position twice", SINUSOID, "add it once", *on_sides(2.0))
    yield deviation(
        "position-missing", "does not use positions", "section 3.5: nothing else tells the order of the tokens",
        "add the position to the embedding", *on_sides(0.0),
        hooks(c.both(c.turned("rotated_q", c.unturned), c.turned("rotated_k", c.unturned)), rotary),
    )  # fmt: skip


def rotations() -> Iterator[Deviation]:
    """What rotary positions turn, and by how much."""
    for convention, pairs in (("halves", "(i, i + d/2)"), ("interleaved", "(2i, 2i + 1)")):
        yield deviation(
            f"rope-{convention}", f"turns the pairs {pairs} of queries and keys", ROPE,
            "pair them as the configuration does (positions.convention), or permute the rows of W_Q and W_K",
            fields(rotary, positions__convention=convention),
        )  # fmt: skip
    for name, says, change in (
        ("keys-unrotated", "does not turn its keys", c.turned("rotated_k", c.unturned)),
        ("queries-unrotated", "does not turn its queries", c.turned("rotated_q", c.unturned)),
        ("values-rotated", "turns its values too", c.turned("v", lambda rotation, x: rotation.turn(x))),
        ("opposite", "turns queries and keys by opposite angles", c.turned("rotated_k", c.backwards)),
    ):
        yield deviation(
            f"rope-{name}", says, ROPE, "turn queries and keys alike, and nothing else", hooks(change, rotary)
        )


def attention() -> Iterator[Deviation]:
    """Scores, weights and heads."""
    for name, says, factor in (
        ("no-attention-scale", "does not divide its scores by √d_k", lambda d_k, _: math.sqrt(d_k)),
        ("attention-scale-twice", "divides its scores by √d_k twice", lambda d_k, _: 1 / math.sqrt(d_k)),
        ("attention-scale-d-model", "divides its scores by √d_model", lambda d_k, d_model: math.sqrt(d_k / d_model)),
        ("attention-multiplied", "multiplies its scores by √d_k", lambda d_k, _: float(d_k)),
    ):
        yield deviation(
            name, says, ATTENTION, "divide by math.sqrt(d_head), once", hooks(c.scaled_by(factor)),
            *(hooks(c.scaled_by(factor, which), both_stacks) for which in ("self", "cross")),
        )  # fmt: skip
    yield deviation(
        "softmax-over-queries", "takes the softmax over the queries", ATTENTION + ": each query's weights sum to 1",
        "softmax(dim=-1), the axis of the keys", hooks(c.softmax_over(2)),
        hooks(c.both(c.softmax_over(2), m.uniform_where_hidden)),
    )  # fmt: skip
    yield deviation(
        "softmax-over-heads", "takes the softmax over the heads", ATTENTION + ": each query's weights sum to 1",
        "softmax(dim=-1), the axis of the keys", hooks(c.softmax_over(1)),
    )  # fmt: skip
    yield deviation(
        "heads-without-transpose", "cuts (B, T, d_model) into (B, h, T, d_k) by view alone, which mixes the tokens",
        HEADS,
        "x.view(B, T, h, d_k).transpose(1, 2), and the transpose back before joining",
        hooks(c.heads_without_transpose), hooks(c.both(c.heads_without_transpose, c.by_column)),
    )  # fmt: skip
    yield deviation(
        "joined-without-transpose", "joins its heads without the transpose back", HEADS,
        "heads.transpose(1, 2).reshape(B, T, d_model)",
        hooks(c.joined_without_transpose), hooks(c.both(c.joined_without_transpose, c.by_column)),
    )  # fmt: skip
    yield deviation(
        "kv-heads-tiled", "gives query head h the key head h mod n_kv_heads",
        "grouped queries (Ainslie et al. 2023): heads side by side share one", "repeat_interleave in place of repeat",
        hooks(c.kv_heads_tiled, lambda config: 1 < config.kv_heads < config.n_heads),
    )  # fmt: skip


def masks() -> Iterator[Deviation]:
    """What attention may see."""

    def decoder(allowed: m.Allowed) -> tuple[Way, Way]:
        change = m.masked_by("decoder", allowed)
        return hooks(change, has("decoder")), hooks(c.both(change, m.uniform_where_hidden), has("decoder"))

    everywhere = (("decoder", m.inverted_with_padding), ("encoder", m.only_padding), ("cross", m.only_padding))
    yield deviation(
        "mask-inverted", "shows what is hidden, and hides what may be seen", CAUSAL,
        "masked_fill(~allowed, -inf), where True = may attend", *decoder(m.inverted), *decoder(m.inverted_with_padding),
        hooks(c.both(*(m.masked_by(*one) for one in everywhere), m.uniform_where_hidden), has("decoder")),
    )  # fmt: skip
    yield deviation(
        "future-visible-by-one", "lets each position see the next one", CAUSAL,
        "hide torch.ones(n, n).triu(diagonal=1)", *decoder(m.shifted(1)),
    )  # fmt: skip
    yield deviation(
        "own-position-hidden", "hides each position from itself", CAUSAL, "show torch.ones(n, n).tril()",
        *decoder(m.shifted(-1)),
    )  # fmt: skip
    yield deviation(
        "causal-mask-missing", "lets each position see all later ones", CAUSAL,
        "give the decoder's self-attention a causal mask", hooks(m.masked_by("decoder", m.only_real), has("decoder")),
    )  # fmt: skip

    def seen(change: c.Change, when: When) -> tuple[Way, Way]:
        return hooks(change, when), hooks(c.both(change, c.by_column), when)  # what stands at padding matters then

    in_encoder, in_cross = m.masked_by("encoder", m.everything), m.masked_by("cross", m.everything)
    yield deviation(
        "padding-visible-source", "lets attention see the padding of the source", PADDING,
        "hide padded keys in the encoder and in cross-attention", *seen(c.both(in_encoder, in_cross), both_stacks),
    )  # fmt: skip
    yield deviation(
        "padding-visible-encoder", "lets the encoder's self-attention see padding", PADDING,
        "hide padded keys in the encoder", *seen(in_encoder, has("encoder")),
    )  # fmt: skip
    yield deviation(
        "padding-visible-cross", "lets cross-attention see the padding of the source", PADDING,
        "hide padded keys in cross-attention", *seen(in_cross, both_stacks),
    )  # fmt: skip
    yield deviation(
        "padding-rows-zeroed", "makes the encoder's output 0 at padding, and lets cross-attention see it",
        PADDING + "; the fast path of nn.TransformerEncoder makes such zeros",
        "hide padded keys in cross-attention (memory_key_padding_mask)",
        *seen(c.both(m.padding_rows_zeroed, in_cross), both_stacks),
    )  # fmt: skip


def sublayers() -> Iterator[Deviation]:
    """Feed-forward networks, what cross-attention reads, residual connections."""
    for name, words in (
        ("relu", "ReLU"), ("gelu", "GELU (with erf)"), ("gelu-tanh", "GELU's approximation by tanh"), ("silu", "SiLU"),
    ):  # fmt: skip
        yield deviation(
            f"activation-{name}", f"has {words} in its feed-forward network", FFN,
            "take the activation of the configuration (ffn.activation)", fields(ffn__activation=name),
        )  # fmt: skip
    for name, words, function in (
        ("leaky-relu", "a leaky ReLU", F.leaky_relu),
        ("quick-gelu", "x σ(1.702 x)", lambda x: x * (1.702 * x).sigmoid()),
        ("tanh", "tanh", Tensor.tanh), ("sigmoid", "a sigmoid", Tensor.sigmoid), ("elu", "ELU", F.elu),
        ("relu-squared", "the square of ReLU", lambda x: x.relu().square()), ("mish", "Mish", F.mish),
    ):  # fmt: skip
        yield deviation(
            f"activation-{name}", f"has {words} in its feed-forward network", FFN,
            "take the activation of the configuration (ffn.activation)", hooks(c.activated_by(function)),
        )  # fmt: skip
    yield deviation(
        "activation-missing", "has nothing between the two products of its feed-forward network", FFN,
        "put the activation after the first product", hooks(c.activated_by(lambda x: x)),
    )  # fmt: skip
    yield deviation(
        "cross-reads-decoder", "lets cross-attention read the decoder itself", CROSS, "keys and values are the memory",
        *(hooks(c.cross_reads_decoder(is_causal=is_causal), both_stacks) for is_causal in (False, True)),
    )  # fmt: skip
    for name, words, source in (
        ("embedding", "the source's embedding", c.embedding_of_encoder),
        ("first-layer", "the first encoder layer", c.first_layer_of_encoder),
    ):
        yield deviation(
            f"cross-reads-{name}", f"lets cross-attention read {words}", CROSS,
            "the memory is the output of the last encoder layer",
            *(hooks(c.memory_from(source, normed=normed), both_stacks) for normed in (False, True)),
        )  # fmt: skip
    for name, words, kinds in (
        ("attention", "self-attention", ("self_attention",)),
        ("cross", "cross-attention", ("cross_attention",)),
        ("ffn", "the feed-forward network", ("ffn",)),
        ("both-attentions", "both attentions", ("self_attention", "cross_attention")),
        ("everywhere", "its sublayers", ("self_attention", "cross_attention", "ffn")),
    ):
        needs = both_stacks if "cross_attention" in kinds and len(kinds) < 3 else has("decoder")
        yield deviation(
            f"residual-missing-{name}", f"has no residual connection around {words}", RESIDUAL,
            "return x + sublayer(x)",
            hooks(c.without_residual(*kinds), needs),
            *(hooks(c.without_residual(*kinds, side=side), both_stacks) for side in SIDES),
        )  # fmt: skip
    yield deviation(
        "residual-after-norm", "adds each sublayer to its normalised input", PRE, "keep x, as it was, for the sum",
        hooks(c.residual_after_norm, pre),
    )  # fmt: skip


CATALOGUE = (
    *places_of_norms(), *norms(), *embeddings(), *positions(), *rotations(), *attention(), *masks(), *sublayers(),
)  # fmt: skip
