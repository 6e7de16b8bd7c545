"""What has to be the same is the same, for every combination of choices: differences of at most 1e-5 in float32."""

import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.data.batch import pad
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.search import search
from glassformer.inspect.count import count
from glassformer.inspect.trace import taps, watch
from glassformer.model.transformer import Memory, Transformer
from tests.agreement.variants import CORE, LONGEST, OTHERS, VOCABULARY, build, config, drawn

TOLERANCE = 1e-5
SOURCES = [[5, 9, 3, 17, 4, 8, 21], [7, 0, 11, 2], [13]]  # id 0 is a token like any other
TARGETS = [[1, 6, 0, 14, 3, 9], [1, 19, 8, 2, 2, 5], [1, 10, 4, 16]]


def assert_same(a: Tensor, b: Tensor, is_real: Tensor | None = None) -> None:
    difference = (a - b).abs()
    if is_real is not None:
        difference = difference[is_real]
    assert torch.isfinite(difference).all()
    assert difference.max() <= TOLERANCE


class Sides:
    """A model with a padded batch, its masks, and its output."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.kind = model, model.config.kind
        self.source, self.source_is_real = pad(SOURCES) if model.config.has_encoder else (None, None)
        self.target, self.target_is_real = pad(TARGETS) if model.config.has_decoder else (None, None)
        self.out = self.run()

    def run(self, **changed: Tensor | None) -> Tensor:
        given = {name: getattr(self, name) for name in ("source", "target", "source_is_real", "target_is_real")}
        out: Tensor = self.model(**(given | changed))
        return out

    @property
    def out_is_real(self) -> Tensor | None:
        """Which rows of the output count: (B, T), or None where each sequence has one row."""
        if self.kind != "encoder":
            return self.target_is_real
        return self.source_is_real if self.out.ndim == 3 else None

    def memory(self) -> Memory | None:
        return self.model.encode(self.source, is_real=self.source_is_real) if self.source is not None else None

    def decode(self, rows: Tensor | None = None, **arguments: Any) -> Tensor:
        memory = self.memory()
        return self.model.decode(memory=memory if rows is None or memory is None else memory.select(rows), **arguments)


@pytest.fixture(params=CORE, ids=lambda core: "-".join(map(str, core)), scope="module")
def sides(request: pytest.FixtureRequest) -> list[Sides]:
    with torch.inference_mode():
        return [Sides(build(config(request.param, other))) for other in drawn(*request.param)]


@pytest.fixture(autouse=True)
def _inference() -> Any:
    with torch.inference_mode():
        yield


def test_every_pair_of_choices_occurs() -> None:
    variants = [other for core in CORE for other in drawn(*core)]
    for (a, a_values), (b, b_values) in itertools.combinations(OTHERS.items(), 2):
        seen = {(other[a], other[b]) for other in variants}
        assert seen == set(itertools.product(a_values, b_values)), (a, b)


def test_fused_equals_explicit_and_watched_equals_unwatched(sides: list[Sides]) -> None:
    for side in sides:
        with watch(side.model, "*.weights") as seen:
            explicit = side.run()
        assert seen
        assert_same(explicit, side.out, side.out_is_real)
        with watch(side.model, "*"):
            assert_same(side.run(), side.out, side.out_is_real)


def test_attention_weights_are_shares_of_real_keys(sides: list[Sides]) -> None:
    for side in sides:
        with watch(side.model, "*.weights") as seen:
            side.run()
        for name, traced in seen.items():
            from_source = name.startswith("encoder") or "cross" in name
            keys = side.source_is_real if from_source else side.target_is_real
            assert keys is not None
            weights = traced.values  # (B, H, T, S)
            assert (weights.masked_select(~keys[:, None, None, :]) == 0).all()
            total = weights.sum(dim=-1)
            assert torch.allclose(total, torch.ones_like(total), atol=1e-6)


def test_taps_have_the_shapes_of_their_axes(sides: list[Sides]) -> None:
    for side in sides:
        chosen = side.model.config
        with watch(side.model, "*") as seen:
            side.run()
        assert set(seen) == set(taps(side.model))
        for name, traced in seen.items():
            source, target = len(SOURCES[0]), len(TARGETS[0])
            of_encoder = name.startswith(("encoder", "memory")) or side.kind == "encoder"
            size = {
                "B": 3,
                "H": 4,
                "G": chosen.kv_heads,
                "D": 16,
                "K": chosen.d_k,
                "HK": 4 * chosen.d_k,
                "F": 24,
            }
            size |= {"V": VOCABULARY, "C": 3, "T": source if of_encoder else target}
            size["S"] = source if of_encoder or "cross" in name else target
            assert traced.shape == tuple(size[axis] for axis in traced.axes), name


def test_cached_equals_uncached_in_any_chunks(sides: list[Sides]) -> None:
    for side in sides:
        if side.target is None or side.target_is_real is None:
            continue
        for chunks in ([1] * 6, [3, 1, 1, 1], [2, 4], [4, 2]):
            cache, outs = side.model.new_cache(), []
            for ids, is_real in zip(side.target.split(chunks, 1), side.target_is_real.split(chunks, 1), strict=True):
                outs.append(side.decode(target=ids, is_real=is_real, cache=cache))
            assert_same(torch.cat(outs, dim=1), side.out, side.target_is_real)


def test_unpadded_cached_equals_uncached(sides: list[Sides]) -> None:
    """Without padding the masks travel as flags; the numbers are the same."""
    for side in sides:
        if side.target is None:
            continue
        rows = torch.tensor([0, 1])  # the two targets of full length
        target = side.target[rows]
        for chunks in ([1] * 6, [3, 3], [2, 4]):
            cache = side.model.new_cache()
            outs = [side.decode(rows, target=ids, cache=cache) for ids in target.split(chunks, 1)]
            assert_same(torch.cat(outs, dim=1), side.out[rows])


@pytest.mark.parametrize("rows", [[1, 1, 0], [2, 0], [2, 2, 1, 0, 1]])
def test_cache_rows_can_be_reordered(sides: list[Sides], rows: list[int]) -> None:
    """One target is padded on the left, so that which of the old tokens are real moves with the rows."""
    chosen = torch.tensor(rows)
    target = torch.tensor([[1, 6, 0, 14, 3], [12, 12, 1, 19, 8], [1, 10, 4, 16, 2]])
    is_real = torch.tensor([[True] * 5, [False, False, True, True, True], [True] * 5])
    for side in sides:
        if side.target is None:
            continue
        whole = side.decode(target=target, is_real=is_real)
        cache = side.model.new_cache()
        side.decode(target=target[:, :3], is_real=is_real[:, :3], cache=cache)
        cache.select(chosen, chosen)
        outs = [side.decode(chosen, target=target[chosen, place : place + 1], cache=cache) for place in (3, 4)]
        assert_same(torch.cat(outs, dim=1), whole[chosen][:, 3:])


def test_masks_may_come_in_some_calls_only(sides: list[Sides]) -> None:
    target = torch.tensor([[1, 6, 0, 14, 3], [1, 19, 8, 12, 2]])
    is_real = torch.tensor([[True] * 5, [True, True, True, False, True]])
    rows = torch.tensor([0, 1])
    for side in sides:
        if side.target is None:
            continue
        whole = side.decode(rows, target=target, is_real=is_real)
        cache = side.model.new_cache()
        outs = [side.decode(rows, target=target[:, :3], cache=cache)]
        outs.append(side.decode(rows, target=target[:, 3:4], is_real=is_real[:, 3:4], cache=cache))
        outs.append(side.decode(rows, target=target[:, 4:], cache=cache))
        assert_same(torch.cat(outs, dim=1), whole, is_real)


def test_padding_on_either_side_changes_nothing(sides: list[Sides]) -> None:
    for side in sides:
        for left, right in ((2, 0), (0, 3), (1, 2)):
            changed: dict[str, Tensor | None] = {}
            for name in ("source", "target"):
                ids, is_real = getattr(side, name), getattr(side, f"{name}_is_real")
                if ids is not None:
                    filler = torch.nn.functional.pad
                    changed[name] = filler(ids, (left, right), value=12)  # any id: it is not real
                    changed[f"{name}_is_real"] = filler(is_real, (left, right), value=False)
            out = side.run(**changed)
            if side.out_is_real is not None:
                out = out[:, left : out.shape[1] - right]
            assert_same(out, side.out, side.out_is_real)


def test_the_future_does_not_leak(sides: list[Sides]) -> None:
    for side in sides:
        if side.target is None or side.target_is_real is None:
            continue
        for place in range(1, side.target.shape[1]):
            changed = side.target.clone()
            changed[:, place] = (changed[:, place] + 5) % VOCABULARY
            out = side.run(target=changed)
            assert_same(out[:, :place], side.out[:, :place], side.target_is_real[:, :place])


def test_alone_equals_in_a_batch(sides: list[Sides]) -> None:
    for side in sides:
        for row in range(3):
            alone: dict[str, Tensor | None] = {"source_is_real": None, "target_is_real": None}
            if side.source is not None:
                alone["source"] = torch.tensor([SOURCES[row]])
            if side.target is not None:
                alone["target"] = torch.tensor([TARGETS[row]])
            out = side.run(**alone)[0]
            expected = side.out[row] if side.out_is_real is None else side.out[row, : len(out)]
            assert_same(out, expected)


def test_a_sequence_that_is_all_padding_spoils_nothing(sides: list[Sides]) -> None:
    for side in sides:
        changed: dict[str, Tensor | None] = {}
        for name in ("source_is_real", "target_is_real"):
            is_real = getattr(side, name)
            if is_real is not None:
                is_real = is_real.clone()
                is_real[1] = False
                changed[name] = is_real
        out = side.run(**changed)
        assert torch.isfinite(out).all()
        others = torch.tensor([0, 2])
        is_real = side.out_is_real
        assert_same(out[others], side.out[others], None if is_real is None else is_real[others])


def test_teacher_forced_score_is_the_decoders_own(sides: list[Sides]) -> None:
    """Greedy and with a beam, whose rows share their source's keys and values; prompts of several lengths."""
    for side in sides:
        if side.target is None:
            continue
        has_source = side.source is not None
        prompts = [
            Prompt(source if has_source else None, [1] if has_source else [1, *source[:3]], LONGEST - 4)
            for source in SOURCES
        ]
        for beam_size in (1, 3):
            settings = DecodeConfig(beam_size=beam_size, length_penalty="none")
            found = search([side.model], prompts, Rules(2), settings)
            for prompt, (hypothesis,) in zip(prompts, found, strict=True):
                chosen = [*hypothesis.ids, 2] if hypothesis.stopped == "end" else hypothesis.ids
                source = torch.tensor([prompt.source]) if has_source else None
                logits = side.model(source, torch.tensor([[*prompt.read, *chosen[:-1]]]))[0, len(prompt.read) - 1 :]
                forced = logits.log_softmax(-1).gather(1, torch.tensor(chosen)[:, None]).sum()
                assert float(forced) == pytest.approx(hypothesis.log_probability, abs=TOLERANCE * len(chosen))
                assert hypothesis.score == hypothesis.log_probability


@pytest.mark.parametrize("is_watched", [False, True])
def test_rows_that_share_a_memory(sides: list[Sides], is_watched: bool) -> None:
    """A memory of three rows serves six targets, two side by side; the result is that of a memory of six."""
    twice = torch.tensor([0, 0, 1, 1, 2, 2])
    target = torch.tensor([[1, 6, 0, 14], [1, 19, 8, 2], [1, 10, 4, 16], [1, 3, 3, 7], [1, 5, 9, 2], [1, 2, 2, 2]])
    for side in sides:
        if side.kind != "encoder-decoder":
            continue
        whole = side.decode(twice, target=target)
        with watch(side.model, "*.weights") if is_watched else nullcontext():
            assert_same(side.decode(target=target), whole)
            cache = side.model.new_cache()
            outs = [side.decode(target=target[:, place : place + 1], cache=cache) for place in range(2)]
            order = torch.tensor([1, 0, 3, 3, 4, 5])  # within each source; the memory's rows stay
            cache.select(order, None)
            outs = [out[order] for out in outs]
            target_ = torch.cat([target[order, :2], target[:, 2:]], dim=1)
            outs += [side.decode(target=target_[:, place : place + 1], cache=cache) for place in (2, 3)]
            assert_same(torch.cat(outs, dim=1), side.decode(twice, target=target_))


def test_the_last_places_alone(sides: list[Sides]) -> None:
    for side in sides:
        if side.target is not None:
            last = side.decode(target=side.target, is_real=side.target_is_real, last=2)
            assert_same(last, side.out[:, -2:], side.target_is_real[:, -2:])


def test_closed_form_counts_the_built_model(sides: list[Sides]) -> None:
    for side in sides:
        counted = count(side.model.config)
        assert counted.total == counted.closed_form == sum(p.numel() for p in side.model.parameters())
        for part in counted.parts:
            if not part.inside:
                names = [name for name, _ in side.model.named_parameters(remove_duplicate=False)]
                assert any(name.startswith(part.prefix) for name in names), part
