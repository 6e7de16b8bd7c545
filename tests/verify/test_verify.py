"""Users' own Transformers, right and wrong, in three styles: the report must name what is wrong with each."""

import copy
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassformer as gf
from glassformer.verification.report import Report
from tests.verify import foreign
from tests.verify.expected import CONFIGS, configs_of, name_of
from tests.verify.foreign import annotated, functional, stacked

STYLES: dict[str, ModuleType] = {"annotated": annotated, "functional": functional, "stacked": stacked}
CASES = [
    (style, bug, config)
    for style, module in STYLES.items()
    for bug in sorted(module.BUGS - set(foreign.OTHERS))
    for config in configs_of(bug)
]
PAIRS, SEED = 30, 0
# pairs of which one hides or forbids the other: both write the same thing, or one takes away what the other is seen by
CONFLICTS = [
    {"ladder", "position", "first_position"},
    {"activation", "gelu", "silu", "relu", "gate"},
    {"final_norm", "pre_for_post", "post_for_pre", "residual"},
    {"attention_scale", "softmax", "rope_values"},
    {"mask", "future", "own_position", "softmax"},
    {"padding", "cross_reads", "cross"},
    {"no_w_o", "no_bias_o", "transpose"},
    {"swapped", "no_bias_q", "transpose", "kv_heads", "rope"},
    {"scale_on_both", "no_embedding_scale", "position_missing", "embedding_scaled"},
    {"eps", "unbiased_variance"},
    {"layers_reversed", "one_layer_for_all", "cross_reads_first_layer"},
]


def report(style: str, config: str, *bugs: str, **options: Any) -> Report:
    torch.manual_seed(5)
    theirs, ours = CONFIGS[config]
    built = STYLES[style].build(theirs, *bugs)
    function, weights = built if isinstance(built, tuple) else (built, None)
    return gf.verify(function, ours, weights=weights, **options)


def names(found: Report) -> set[str]:
    return {name for cause in found.causes for name in (cause.name, *cause.same)}


def is_named(found: Report, bug: str, config: str) -> bool:
    return found.explained and not found.equal and name_of(bug, config) in names(found)


def conflict(one: str, other: str) -> bool:
    return any(any(w in one for w in words) and any(w in other for w in words) for words in CONFLICTS)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("style", STYLES)
def test_a_right_model_is_equal(style: str, config: str) -> None:
    found = report(style, config)
    assert found.equal, str(found)
    assert not found.causes
    assert max(found.differences.values()) <= 1e-9


# a dead encoder whose parts might be looked for; two branches that nothing tells apart
SUBTLE = [("stacked", "cross_reads_decoder", "PRE"), ("annotated", "ffn_activation_missing", "MODERN")]


@pytest.mark.parametrize(("style", "bug", "config"), [*random.Random(1).sample(CASES, 16), *SUBTLE])
def test_a_sample_of_bugs(style: str, bug: str, config: str) -> None:
    found = report(style, config, bug)
    assert is_named(found, bug, config), str(found)
    assert len(found.causes) == 1


def test_another_way_of_what_is_already_there() -> None:
    """Its first way has the same parts, and other numbers."""
    found = report("stacked", "PAPER", "cross_reads_decoder", "pre_for_post")
    assert names(found) == {"cross-reads-decoder", "pre-for-post"}
    assert found.explained


@pytest.mark.long
def test_every_bug() -> None:
    """At least 95 % over all, and each in at least one style; one takes 5 s at most."""
    named, slow = dict.fromkeys(CASES, False), []
    for style, bug, config in CASES:
        started = time.perf_counter()
        found = report(style, config, bug)
        named[style, bug, config] = is_named(found, bug, config) and len(found.causes) == 1
        slow += [(style, bug, config)] if time.perf_counter() - started > 5 else []
    missed = [case for case, is_there in named.items() if not is_there]
    sys.stdout.write(f"{len(CASES) - len(missed)} of {len(CASES)} named; missed: {missed}; slower than 5 s: {slow}\n")
    assert len(missed) <= 0.05 * len(CASES)
    for bug in {bug for _, bug, _ in CASES}:
        for config in configs_of(bug):
            assert any(named.get((style, bug, config)) for style in STYLES), (bug, config)
    assert not slow


@pytest.mark.long
def test_pairs_of_bugs() -> None:
    rng, tried = random.Random(SEED), []
    while len(tried) < PAIRS:
        style, config = rng.choice(sorted(STYLES)), rng.choice(sorted(CONFIGS))
        known = sorted(bug for s, bug, c in CASES if (s, c) == (style, config))
        one, other = rng.sample(known, 2)
        if not conflict(one, other):
            started = time.perf_counter()
            found = report(style, config, one, other)
            both = is_named(found, one, config) and is_named(found, other, config)
            tried.append((both, time.perf_counter() - started, style, config, one, other))
    missed = [case for case in tried if not case[0]]
    sys.stdout.write(
        f"{PAIRS - len(missed)} of {PAIRS} pairs named; missed: {missed}; slowest {max(case[1] for case in tried):.1f} s\n"
    )
    assert len(missed) <= 4
    assert max(case[1] for case in tried) <= 30


@pytest.mark.parametrize(
    ("style", "bug"),
    [
        ("annotated", "other_score_cap"), ("functional", "other_ffn_twice"), ("stacked", "other_memory_mean"),
        pytest.param("stacked", "other_logit_bias"),
        *(pytest.param(style, bug, marks=pytest.mark.long) for style in STYLES for bug in foreign.OTHERS),
    ],
)  # fmt: skip
def test_what_no_catalogue_knows(style: str, bug: str) -> None:
    """It is called unknown, with the place where it is first seen."""
    found = report(style, "PAPER", bug)
    assert not found.equal
    assert not found.explained
    assert found.verdict.startswith("Unknown; first seen at "), found.verdict
    assert found.first is not None
    place = foreign.OTHERS[bug]
    assert found.first.part == place, found.first


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
class TestPyTorch:
    """`nn.Transformer` as it comes, which the paper's post-norm machine is not."""

    CONFIG = CONFIGS["PAPER"][1]

    @pytest.fixture
    def torchs(self) -> nn.Transformer:
        return nn.Transformer(64, 4, 2, 2, 256, batch_first=True)

    def test_as_it_comes(self, torchs: nn.Transformer) -> None:
        found = gf.verify(torchs, self.CONFIG)
        (cause,) = found.causes
        assert cause.name == "extra-final-norm-both"
        assert "model.encoder.norm = None and model.decoder.norm = None" in cause.fix
        assert "section 3.1" in cause.section
        assert any(
            "fast path" in note and "use_nested_tensor to False" in note for note in found.notes
        )  # the other trap
        assert found.first is not None
        assert found.first.words == "the memory that cross-attention reads"
        assert found.first.theirs == "transformer.encoder.norm"  # there is no line of the user
        assert str(found).startswith("Your model has one more norm after each stack.\n")

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_mended(self, batch_first: bool) -> None:
        torchs = nn.Transformer(64, 4, 2, 2, 256, batch_first=batch_first)
        torchs.encoder.norm = torchs.decoder.norm = None
        assert gf.verify(torchs, self.CONFIG).equal

    def test_pre_norm(self) -> None:
        torchs = nn.Transformer(64, 4, 2, 2, 256, batch_first=True, norm_first=True)
        assert gf.verify(torchs, self.CONFIG.model_copy(update={"norm": CONFIGS["PRE"][1].norm})).equal
        assert names(gf.verify(torchs, self.CONFIG)) == {"pre-for-post"}

    def test_it_must_fit(self, torchs: nn.Transformer) -> None:
        with pytest.raises(gf.VerifyError, match=r"your nn\.Transformer has d_model=64, the configuration 128"):
            gf.verify(torchs, gf.ModelConfig.model_validate(self.CONFIG.model_dump() | {"d_model": 128}))
        with pytest.raises(gf.ConfigError, match=r"model\.source_vocabulary is not set"):
            gf.verify(
                torchs,
                "paper-base",
                overrides=(
                    "model.source_vocabulary=",
                    "model.target_vocabulary=",
                ),
            )


def test_theirs_is_left_as_it_was() -> None:
    model = annotated.build(foreign.PAPER, "no_attention_scale").train()
    model.register_forward_hook(lambda *_: None)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    gf.verify(model, CONFIGS["PAPER"][1])
    assert torch.equal(torch.rand(3), expected)
    assert all(module.training for module in model.modules())
    assert hooks == [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) and before[name].dtype == after[name].dtype for name in before)


class TestWeights:
    def test_the_mapping_says_how(self) -> None:
        rows = {row.ours: row for row in report("stacked", "PAPER").mapping}
        query = rows["encoder.layers.0.self_attention.w_q.weight"]
        assert (query.theirs, query.how) == ("encoder.blocks.0.attn.qkv.weight", "rows 0 to 63")
        rows = {row.ours: row for row in report("functional", "PAPER").mapping}
        assert (rows["encoder.layers.0.ffn.w_1.weight"].theirs, rows["encoder.layers.0.ffn.w_1.weight"].how) == (
            "enc0.ffn.in", "transposed",
        )  # fmt: skip

    def test_a_file_corrects_a_wrong_guess(self) -> None:
        """W_K and W_V of this model stand the other way round: a file can say that they are meant so."""
        prefix = "decoder.layers.{}.cross_attention"
        wrong = report("stacked", "PAPER", "k_and_v_swapped")
        assert names(wrong) == {"k-and-v-swapped"}
        kept = {row.ours: row for row in wrong.mapping}[f"{prefix.format(0)}.w_k.weight"]
        assert kept.how == "rows 64 to 127"
        said = {
            f"{prefix.format(i)}.{leaf}.{kind}": {"name": f"decoder.blocks.{i}.cross.kv.{kind}", "rows": rows}
            for i in range(2)
            for leaf, rows in (("w_k", [0, 64]), ("w_v", [64, 128]))
            for kind in ("weight", "bias")
        }
        found = report("stacked", "PAPER", "k_and_v_swapped", mapping=said)
        assert {row.ours: row for row in found.mapping}[f"{prefix.format(0)}.w_k.weight"].how == "rows 0 to 63"
        assert not found.equal  # with W_K for W_V it computes something else

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({"encoder.embedding.tokens.weight": "nosuch"}, "your model has no parameter 'nosuch'"),
            ({"encoder.embedding.tokens.weight": {"rows": [0, 3]}}, "the mapping of encoder.embedding.tokens.weight: "),
            ({"nosuch.weight": "emb"}, "the mapping names 'nosuch.weight', which ours does not have"),
            (
                {"encoder.embedding.tokens.weight": {"name": "emb", "rows": [0, 3]}},
                r"tokens.weight has the shape \(13, 64\), but .* \(3, 64\)",
            ),
        ],
    )
    def test_a_file_that_is_wrong(self, mapping: dict[str, Any], message: str) -> None:
        with pytest.raises(gf.VerifyError, match=message):
            report("functional", "PAPER", mapping=mapping)

    def test_heads_in_a_list(self) -> None:
        """Each head with matrices of its own, keys before queries."""

        class Head(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.key, self.query, self.value = (nn.Linear(16, 4, bias=False) for _ in range(3))

            def forward(self, x: Tensor) -> Tensor:
                k, q, v = self.key(x), self.query(x), self.value(x)
                scores = q @ k.transpose(1, 2) * 4**-0.5
                hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
                weights: Tensor = scores.masked_fill(hidden, -torch.inf).softmax(-1)
                return weights @ v

        class Tiny(nn.Module):
            def __init__(self, *, scaled: bool = False) -> None:
                super().__init__()
                self.embedding, self.positions = nn.Embedding(11, 16), nn.Embedding(32, 16)
                self.heads = nn.ModuleList(Head() for _ in range(4))
                self.proj, self.up, self.down = nn.Linear(16, 16, bias=False), nn.Linear(16, 24), nn.Linear(24, 16)
                self.ln1, self.ln2, self.ln_f = (nn.LayerNorm(16) for _ in range(3))
                self.lm_head, self.factor = nn.Linear(16, 11), 4.0 if scaled else 1.0

            def forward(self, ids: Tensor) -> Tensor:
                x = self.embedding(ids) * self.factor + self.positions.weight[: ids.shape[1]]
                y = self.ln1(x)
                x = x + self.proj(torch.cat([head(y) for head in self.heads], dim=-1))
                x = x + self.down(torch.relu(self.up(self.ln2(x))))
                logits: Tensor = self.lm_head(self.ln_f(x))
                return logits

        config = gf.ModelConfig.model_validate({
            "kind": "decoder", "target_vocabulary": 11, "n_decoder_layers": 1, "d_model": 16, "d_ff": 24, "n_heads": 4,
            "norm": {"placement": "pre"}, "positions": {"kind": "learned", "size": 32}, "biases": "ffn",
            "embedding": {"scale": False}, "output_bias": True, "tying": "none",
        })  # fmt: skip
        assert gf.verify(Tiny(), config).equal
        assert names(gf.verify(Tiny(scaled=True), config)) == {"embedding-scaled"}


class TestAgainstRuns:
    """Weights that were carried over, compared with those of a run."""

    def test_a_function_that_shows_no_weights(self, run_directory: Path) -> None:
        run = gf.load(run_directory)
        assert gf.verify(lambda source, target: run.model(source, target), run).first is not None  # padding is seen
        hidden = copy.deepcopy(run.model)

        def right(source: Tensor, target: Tensor, source_is_real: Tensor, target_is_real: Tensor) -> Tensor:
            return hidden(source, target, source_is_real=source_is_real, target_is_real=target_is_real)

        found = gf.verify(right, run_directory)
        assert found.equal, str(found)
        scaled = [module for name, module in hidden.named_modules() if name.endswith("attention.scaled")]
        scaled[2].register_forward_hook(lambda _, __, out: out * 4.0)
        found = gf.verify(right, run_directory)  # in one of six attentions: no known mistake
        assert found.verdict == (
            "Unknown; first seen at decoder layer 1, self-attention (decoder.layers.0.self_attention.masked)."
        )
        for module in (*scaled[:2], *scaled[3:]):
            module.register_forward_hook(lambda _, __, out: out * 4.0)
        assert names(gf.verify(right, run_directory)) == {"no-attention-scale"}

    def test_weights_in_the_wrong_place(self, run_directory: Path) -> None:
        run = gf.load(run_directory)
        theirs = copy.deepcopy(run.model)
        with torch.no_grad():
            weight = theirs.encoder.layers[0].self_attention.w_q.weight
            weight.copy_(weight.T.clone())

        class Ported(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = theirs

            def forward(self, source: Tensor, target: Tensor, source_is_real: Tensor, target_is_real: Tensor) -> Tensor:
                return self.inner(source, target, source_is_real=source_is_real, target_is_real=target_is_real)

        found = gf.verify(Ported(), run)
        (cause,) = found.causes
        assert cause.name == "weights-differ"
        assert "encoder.layers.0.self_attention.w_q.weight holds ours transposed" in cause.says


@pytest.mark.parametrize(
    "returned",
    [
        lambda logits: logits.log_softmax(-1),
        lambda logits: logits.softmax(-1),
        lambda logits: (logits, "attention"),
        lambda logits: {"logits": logits},
        lambda logits: SimpleNamespace(loss=None, logits=logits),
    ],
)
def test_what_models_return(returned: Callable[[Tensor], Any]) -> None:
    for bug in ((), ("scale_on_both",)):
        model = stacked.build(foreign.PAPER, *bug)
        found = gf.verify(
            lambda inner, source, target: returned(inner(source, target)), CONFIGS["PAPER"][1], weights=model
        )
        assert names(found) == {one.replace("_", "-") for one in bug}
        assert found.equal == (not bug)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (lambda source, target: None, "must return logits, a tensor .* but it returned NoneType"),
        (lambda source, target: torch.zeros(3), r"a tensor of shape \(3,\)"),
        (lambda source, target: torch.zeros(*target.shape, 14), r"must have the shape \(B, T, V\) = \(4, 6, 13\)"),
        (lambda source, target: torch.rand(*target.shape, 13), "gives another result each time"),
        (lambda source, target: torch.zeros(*target.shape, 13), "shows no parameters"),
        (lambda source: torch.zeros(3), "cannot be called"),
        (7, "a model is a torch.nn.Module or a function, not int"),
    ],
)
def test_what_is_no_model(theirs: Callable[..., Any], message: str) -> None:
    with pytest.raises(gf.VerifyError, match=message):
        gf.verify(theirs, CONFIGS["PAPER"][1])


def test_constants_in_float32() -> None:
    """A table of positions that was computed in float32 is no deviation, and hides none."""

    class Rounded(nn.Module):
        def __init__(self, *bugs: str) -> None:
            super().__init__()
            self.inner = annotated.build(foreign.PAPER, *bugs)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return self.inner(source, target).float().double()

    found = gf.verify(Rounded(), CONFIGS["PAPER"][1])
    assert found.equal
    assert 1e-12 < max(found.differences.values()) < 1e-6
    assert names(gf.verify(Rounded("no_embedding_scale"), CONFIGS["PAPER"][1])) == {"no-embedding-scale"}


def test_every_deviation_says_all() -> None:
    from glassformer.verification.catalogue import CATALOGUE

    assert len({one.name for one in CATALOGUE}) == len(CATALOGUE)
    for one in CATALOGUE:
        assert re.fullmatch(r"[a-z0-9.-]+", one.name)
        assert one.says and one.section and one.fix and one.ways  # noqa: PT018
