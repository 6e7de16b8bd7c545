"""The ways in which implementations are known to differ: what each is, what the paper says, and the fix."""

import math
from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor

from glassformer.verification import changes as c
from glassformer.verification import masks as m
from glassformer.verification.catalogue_inputs import embeddings, positions, rotations
from glassformer.verification.catalogue_norms import PRE, norms, places_of_norms
from glassformer.verification.deviation import (
    SIDES,
    Deviation,
    Way,
    When,
    both,
    both_stacks,
    deviation,
    fields,
    has,
    hooks,
    modules,
    parameters,
    pre,
)

ATTENTION = "section 3.2.1, equation 1: softmax(Q Kᵀ / √d_k) V"
HEADS = "section 3.2.2: each head has d_k numbers of every token"
CAUSAL = "section 3.2.3: a position sees those up to and including itself"
PADDING = "padding is no part of the sentence: its keys are hidden"
FFN = "section 3.3, equation 2: max(0, x W_1 + b_1) W_2 + b_2"
CROSS = "section 3.2.3: queries from the decoder, keys and values from the encoder's output"
RESIDUAL = "section 3.1: a residual connection around each sublayer"


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
    for n_heads in (1, 2, 3, 4, 6, 8, 12, 16):
        yield deviation(
            f"heads-{n_heads}", f"has {n_heads} head{'s' * (n_heads > 1)}", HEADS, "give both as many (n_heads)",
            fields(lambda config: config.d_head is None and config.kv_heads == config.n_heads, n_heads=n_heads),
        )  # fmt: skip
    yield deviation(
        "softmax-over-queries", "takes the softmax over the queries", ATTENTION + ": each query's weights sum to 1",
        "softmax(dim=-1), the axis of the keys", hooks(c.softmax_over(2)),
        hooks(c.softmax_over(2, c.LEAST)),
        *(hooks(c.both(c.softmax_over(2, least), c.by_column)) for least in (-math.inf, c.LEAST)),
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

    def decoder(allowed: m.Allowed) -> Iterator[Way]:
        yield from (hooks(change, has("decoder")) for change in c.finite(m.masked_by("decoder", allowed)))

    everywhere = (("decoder", m.inverted_with_padding), ("encoder", m.only_padding), ("cross", m.only_padding))
    yield deviation(
        "mask-inverted", "shows what is hidden, and hides what may be seen", CAUSAL,
        "masked_fill(~allowed, -inf), where True = may attend", *decoder(m.inverted), *decoder(m.inverted_with_padding),
        *(hooks(change, has("decoder")) for change in c.finite(*(m.masked_by(*one) for one in everywhere))),
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
        hooks(c.both(m.masked_by("decoder", m.everything), c.by_column), has("decoder")),
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


def feed_forward() -> Iterator[Deviation]:
    """What stands between the two products of the feed-forward network."""
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
        "ffn-gated", "has a gate in its feed-forward network", FFN, "take it out, or set ffn.gated",
        parameters(lambda config: not config.ffn.gated, ffn__gated=True),
    )  # fmt: skip
    yield deviation(
        "ffn-ungated", "has no gate in its feed-forward network",
        "gated feed-forward networks (Shazeer 2020): (act(x W_gate) * x W_1) W_2", "multiply by act(x W_gate)",
        parameters(lambda config: config.ffn.gated, ffn__gated=False),
    )  # fmt: skip


def has_more_layers(n: int) -> When:
    """Return whether the encoder of an encoder–decoder has more than so many layers."""
    return lambda config: config.kind == "encoder-decoder" and (config.n_encoder_layers or 0) > n


def sublayers() -> Iterator[Deviation]:
    """What sublayers read, what is added to them, and what becomes of the last layer's output."""
    yield deviation(
        "cross-reads-decoder", "lets cross-attention read the decoder itself", CROSS, "keys and values are the memory",
        *(modules(c.cross_reads_decoder(is_causal=is_causal), both_stacks) for is_causal in (False, True)),
    )  # fmt: skip
    for n, name, words in ((0, "embedding", "the source's embedding"), (1, "first-layer", "the first encoder layer")):
        yield deviation(
            f"cross-reads-{name}", f"lets cross-attention read {words}", CROSS,
            "the memory is the output of the last encoder layer",
            *(modules(c.shorter_encoder(n, normed=normed), has_more_layers(n)) for normed in (True, False)),
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
    yield deviation(
        "sublayers-parallel", "gives attention and the feed-forward network the same input, and adds both", RESIDUAL,
        "the feed-forward network reads the sum after attention",
        hooks(c.in_parallel, both(pre, lambda config: config.kind != "encoder-decoder")),
    )  # fmt: skip
    yield deviation(
        "logits-scaled", "divides its logits by √d_model", "section 3.4 scales the embedding alone",
        "leave the logits as they are", hooks(c.logits_scaled, has("decoder")),
    )  # fmt: skip


CATALOGUE = (
    *places_of_norms(), *norms(), *embeddings(), *positions(), *rotations(), *attention(), *masks(), *feed_forward(),
    *sublayers(),
)  # fmt: skip
