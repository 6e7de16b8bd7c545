"""Beam search against a plain one and against every sequence there is."""

import math

import pytest
import torch

from glassformer.config import DecodeConfig
from glassformer.decode.beam import Record, beam
from glassformer.decode.hypothesis import Prompt, length_penalty
from glassformer.decode.rules import Rules
from tests.decode.models import END, START, find, following, small, whole
from tests.reference.beam import brute_force, penalty, plain_beam

SOURCES = [[3, 4, 0], [4], [0, 0, 3, 4, 4, 3], [3, 3]]
LIMITS = [6, 6, 5, 3]
PENALTIES = [("wu", -1.0), ("wu", 0.0), ("wu", 0.6), ("wu", 1.0), ("wu", 2.0)]
PENALTIES += [
    ("power", -1.0),
    ("power", 0.0),
    ("power", 0.6),
    ("power", 1.0),
    ("power", 2.0),
    ("average", 0.0),
    ("none", 0.0),
]
KINDS = ("encoder-decoder", "decoder")
MODELS = {kind: small(kind) for kind in KINDS}


def prompts_of(kind: str) -> list[Prompt]:
    """Sources for the encoder; for a decoder alone, texts of different lengths to go on from."""
    if kind == "decoder":
        return [Prompt(None, [START, *source], limit) for source, limit in zip(SOURCES, LIMITS, strict=True)]
    return [Prompt(source, [START], limit) for source, limit in zip(SOURCES, LIMITS, strict=True)]


FOLLOWING = {
    kind: [
        following(MODELS[kind], None if p.source is None else list(p.source), list(p.read)) for p in prompts_of(kind)
    ]
    for kind in KINDS
}


def config(kind: str, alpha: float, n_best: int, beam_size: int) -> DecodeConfig:
    exponent = alpha if kind in ("wu", "power") else None
    return DecodeConfig(n_best=n_best, beam_size=beam_size, length_penalty=kind, alpha=exponent)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "alpha"), PENALTIES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_plain_beam_at_every_width(kind: str, name: str, alpha: float) -> None:
    """In a batch of sources of several lengths, with several limits."""
    for width in range(1, 9):
        n_best = min(width, 5)
        found = beam([MODELS[kind]], prompts_of(kind), Rules(END), config(name, alpha, n_best, width))
        for ask, limit, hypotheses in zip(FOLLOWING[kind], LIMITS, found, strict=True):
            expected = plain_beam(ask, width=width, limit=limit, end=END, kind=name, alpha=alpha)[:n_best]
            assert [whole(hypothesis) for hypothesis in hypotheses] == [ids for _, _, ids in expected]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)
            assert [h.log_probability for h in hypotheses] == pytest.approx([t for _, t, _ in expected], abs=1e-9)


@pytest.mark.parametrize(("name", "alpha"), PENALTIES)
@pytest.mark.parametrize("kind", KINDS)
def test_at_full_width_it_finds_the_best_of_all_sequences(kind: str, name: str, alpha: float) -> None:
    """1 + 4 + ... + 4^5 sequences end within 6 tokens; a beam of 4^6 has room for all."""
    prompts = prompts_of(kind)[:2]
    found = beam([MODELS[kind]], prompts, Rules(END), config(name, alpha, 7, 4**6))
    for ask, hypotheses in zip(FOLLOWING[kind], found, strict=False):
        expected = brute_force(ask, vocabulary=5, limit=6, end=END, kind=name, alpha=alpha)[:7]
        assert [whole(hypothesis) for hypothesis in hypotheses] == [ids for _, _, ids in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_one_result_is_the_first_of_five(kind: str, alpha: float) -> None:
    one = find(MODELS[kind], prompts_of(kind), beam_size=5, n_best=1, alpha=alpha)
    five = find(MODELS[kind], prompts_of(kind), beam_size=5, n_best=5, alpha=alpha)
    assert [hypotheses[0] for hypotheses in one] == [hypotheses[0] for hypotheses in five]


def test_a_longer_hypothesis_that_is_better_after_the_penalty_is_found() -> None:
    """After the first hypothesis has ended the search goes on, as long as a longer one can come to a better score."""
    prompts = [Prompt([a, b], [START], 6) for a in range(5) for b in range(5)]
    model = MODELS["encoder-decoder"]
    lengths = {}
    for alpha in (0.0, 2.0):
        found = find(model, prompts, beam_size=8, alpha=alpha)
        lengths[alpha] = [len(whole(hypothesis)) for (hypothesis,) in found]
        for prompt, (hypothesis,) in zip(prompts[::6], found[::6], strict=True):
            ask = following(model, list(prompt.source or ()))
            assert whole(hypothesis) == plain_beam(ask, width=8, limit=6, end=END, kind="wu", alpha=alpha)[0][2]
    assert all(longer >= shorter for longer, shorter in zip(lengths[2.0], lengths[0.0], strict=True))
    assert lengths[2.0] != lengths[0.0]


@pytest.mark.parametrize("batch", [1, 2, 7, 50])
def test_batches_change_nothing(batch: int) -> None:
    model = small(vocabulary=9).float()
    generator = torch.Generator().manual_seed(3)
    sources = [
        torch.randint(0, 9, (int(torch.randint(1, 12, (1,), generator=generator)),), generator=generator).tolist()
        for _ in range(50)
    ]
    prompts = [Prompt(source, [START], len(source) + 3) for source in sources]
    alone = [find(model, prompt, beam_size=4)[0][0] for prompt in prompts]
    order = torch.randperm(50, generator=generator).tolist()
    for start in range(0, 50, batch):
        group = order[start : start + batch]
        for i, (hypothesis,) in zip(group, find(model, [prompts[i] for i in group], beam_size=4), strict=True):
            assert hypothesis.ids == alone[i].ids
            assert hypothesis.score == pytest.approx(alone[i].score, abs=1e-4)


@pytest.mark.parametrize("name", ["wu", "power", "average", "none"])
def test_length_penalties(name: str) -> None:
    for alpha in (-1.0, 0.0, 0.6, 2.0):
        for n in (1, 2, 7, 100):
            assert length_penalty(config(name, alpha, 1, 1), n) == pytest.approx(penalty(name, alpha, n))
    assert length_penalty(DecodeConfig(), 7) == pytest.approx(2.0**0.6)  # the paper's α


class TestRecord:
    """What the search did, told step by step."""

    def search(self, beam_size: int = 3, n_best: int = 2) -> tuple[Record, list[tuple[int, ...]]]:
        record = Record()
        settings = DecodeConfig(n_best=n_best, beam_size=beam_size)
        found = beam(
            [MODELS["encoder-decoder"]],
            prompts_of("encoder-decoder")[:1],
            Rules(END),
            settings,
            records=[record],
        )
        return record, [whole(hypothesis) for hypothesis in found[0]]

    def test_it_tells_the_whole_search(self) -> None:
        """Played back, it gives the same results, and each number is that of the formula."""
        record, expected = self.search()
        ask = FOLLOWING["encoder-decoder"][0]
        live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        finished: list[tuple[float, tuple[int, ...]]] = []
        for n, step in enumerate(record.steps, start=1):
            assert len(step) == min(6, 5 * len(live))
            assert [c.total for c in step] == sorted((c.total for c in step), reverse=True)
            for c in step:
                assert c.log_probability == pytest.approx(ask(live[c.parent][0])[c.token])
                assert c.total == pytest.approx(live[c.parent][1] + c.log_probability)
                assert c.penalty == pytest.approx(((5 + n) / 6) ** 0.6)
                assert c.score == pytest.approx(c.total / c.penalty)
                if c.fate == "finished":
                    finished.append((c.score, (*live[c.parent][0], c.token)))
            goes_on = [c for c in step if c.fate == "goes on"]
            assert len(goes_on) == 3
            assert all(c.token != END for c in goes_on)
            for c in step:
                assert bool(c.why) == (c.fate == "pruned")
                if c.token != END:
                    assert (c.fate == "pruned") == (c.total < goes_on[-1].total)
            live = [((*live[c.parent][0], c.token), c.total) for c in goes_on]
        finished.sort(reverse=True)
        assert [ids for _, ids in finished[:2]] == expected
        assert "no score can still come above" in record.stopped or "limit of 6" in record.stopped

    def test_reasons(self) -> None:
        record, _ = self.search(beam_size=2, n_best=1)
        reasons = {c.why for step in record.steps for c in step}
        assert reasons <= {"", "2 better ones go on", "1 finished with no worse a score"}
        assert len(reasons) == 3


def test_what_is_cut_comes_after_what_ended() -> None:
    rules = Rules(END, min_length=6)
    hypotheses = find(MODELS["encoder-decoder"], prompts_of("encoder-decoder")[0], rules=rules, beam_size=4, n_best=4)[
        0
    ]
    stops = [hypothesis.stopped for hypothesis in hypotheses]
    assert stops == sorted(stops)  # "end" before "limit"
    cut = find(
        MODELS["encoder-decoder"],
        prompts_of("encoder-decoder")[0],
        rules=Rules(END, forbidden=[END]),
        beam_size=3,
        n_best=3,
    )[0]
    assert [(hypothesis.stopped, len(hypothesis.ids)) for hypothesis in cut] == [("limit", 6)] * 3
    assert all(math.isfinite(hypothesis.score) for hypothesis in cut)
