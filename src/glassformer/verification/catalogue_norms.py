"""Known deviations of norms: where they stand, and what they compute."""

from collections.abc import Callable, Iterator

from torch import Tensor

from glassformer.config.model import ModelConfig
from glassformer.verification import changes as c
from glassformer.verification.deviation import (
    SIDES,
    Deviation,
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
)

POST = "section 3.1: LayerNorm(x + Sublayer(x)), and nothing after the last layer"
PRE = "pre-norm (Xiong et al. 2020): x + Sublayer(LayerNorm(x)), and one norm after each stack"
LAYERNORM = "section 3.1 and Ba et al. 2016: (x - μ) / √(σ² + ε), σ² the mean of (x - μ)²"


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

    def by_deviation(own: float | None) -> Callable[[Tensor, float], Tensor]:
        return lambda x, eps: _normed(x, eps if own is None else own, unbiased=True, outside=True)

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
    yield deviation(
        "divided-by-deviation", "divides by x.std(-1) + ε: a deviation with n - 1, and ε outside the root", LAYERNORM,
        "(x - mean) / torch.sqrt(x.var(-1, unbiased=False) + eps)",
        *(hooks(c.normed_by(by_deviation(eps)), layernorm) for eps in (None, 1e-6, 1e-5)),
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
