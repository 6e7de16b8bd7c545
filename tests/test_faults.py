"""Faults that users of such software report, each as a case, on a model of every kind.

The numbers are those of the list that this project keeps; the ones that stand elsewhere: 4, 17 and 21 in
tests/cli/test_text_verbs.py, 16 in tests/decode/test_beam.py, 18 to 20 in tests/decode/test_options.py,
34 in tests/evaluate/test_report.py.
"""

import random
from pathlib import Path

import pytest
import torch

from glassformer.data.batch import pad
from glassformer.decode.hypothesis import Prompt
from glassformer.inspect.trace import watch
from glassformer.run import Run, load
from tests.conftest import Cli
from tests.decode.models import END, START, find, following, small, whole
from tests.reference.beam import plain_beam

VERB = {"encoder-decoder": "translate", "decoder": "generate", "encoder": "classify"}
SHORT = {"encoder-decoder": ("--max-length", 6), "decoder": ("--max-length", 6), "encoder": ()}
KINDS = list(VERB)


def run_verb(here: Cli, runs: dict[str, Path], kind: str, data: bytes, *more: object) -> str:
    done = here(VERB[kind], runs[kind], *SHORT[kind], *more, stdin=data)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written_by(run: Run, texts: list[str], batch_size: int) -> list[tuple[str, float]]:
    """Text and score of each line, or label and probability."""
    if run.config.model.kind == "encoder":
        found = run.classify(texts, batch_size=batch_size)
        return [(one.label or "", max(one.probabilities.values(), default=0.0)) for one in found]
    writer = run.writer({"beam_size": 3, "max_length": 10}, batch_size=batch_size)
    return [(row[0].text, row[0].log_probability) for row in writer.write([writer.prompt(text) for text in texts])]


@pytest.mark.parametrize("kind", KINDS)
class TestLines:
    def test_1_an_empty_line_stays_where_it_is(self, here: Cli, random_runs: dict[str, Path], kind: str) -> None:
        out = run_verb(here, random_runs, kind, b"a\n\nb\n").split("\n")
        assert len(out) == 4
        assert [bool(line) for line in out] == [True, False, True, False]
        assert out[0] == run_verb(here, random_runs, kind, b"a\n")[:-1]
        assert out[2] == run_verb(here, random_runs, kind, b"b\n")[:-1]

    def test_2_as_many_out_as_in(self, here: Cli, random_runs: dict[str, Path], kind: str) -> None:
        lines = [f"line {i} {'x' * (i % 5)}" for i in range(17)]
        whole = run_verb(here, random_runs, kind, "\n".join(lines).encode()).splitlines()
        assert len(whole) == 17
        for n in (1, 2, 3, 16, 17):
            for batch_size in (1, 2, 5, 64):
                for end in ("", "\n"):
                    data = ("\n".join(lines[:n]) + end).encode()
                    out = run_verb(here, random_runs, kind, data, "--batch-size", batch_size)
                    assert out == "".join(f"{line}\n" for line in whole[:n])

    def test_3_only_a_newline_ends_a_line(self, here: Cli, random_runs: dict[str, Path], kind: str) -> None:
        strange = "a\u2028b", "a\u0085b", "a\x0bb", "a\x0cb", "a\rb", "a\x1eb", "\u2029"
        out = run_verb(here, random_runs, kind, "".join(f"{line}\n" for line in strange).encode())
        assert out.count("\n") == len(strange)
        assert run_verb(here, random_runs, kind, b"a\r\nb\r\n") == run_verb(here, random_runs, kind, b"a\nb\n")
        assert run_verb(here, random_runs, kind, b"\xef\xbb\xbfa\n") == run_verb(here, random_runs, kind, b"a\n")

    def test_5_a_blank_line_stays_blank(self, here: Cli, random_runs: dict[str, Path], kind: str) -> None:
        out = run_verb(here, random_runs, kind, " \n\t\n\u2003\n\u00a0 \u3000\n\u2028\n".encode())
        assert out == "\n" * 5


@pytest.mark.parametrize("kind", KINDS)
def test_12_alone_as_in_a_batch(random_runs: dict[str, Path], kind: str) -> None:
    run, draw = load(random_runs[kind]), random.Random(4)
    texts = ["".join(draw.choices("abc äß€", k=draw.randint(1, 40))) + "." for _ in range(50)]
    alone = written_by(run, texts, 1)
    for batch_size in (2, 7, 50, 512):
        order = draw.sample(range(50), 50)
        found = written_by(run, [texts[i] for i in order], batch_size)
        for i, (text, score) in zip(order, found, strict=True):
            assert text == alone[i][0]
            assert score == pytest.approx(alone[i][1], abs=1e-4)


def test_12_of_the_trained_toy(run: Run) -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choices("abcdefghij", k=draw.randint(1, 12))) for _ in range(50)]
    alone = written_by(run, texts, 1)
    for batch_size in (3, 50):
        found = written_by(run, texts, batch_size)
        assert [text for text, _ in found] == [text for text, _ in alone]
        assert [score for _, score in found] == pytest.approx([score for _, score in alone], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_13_a_row_of_padding(random_runs: dict[str, Path], kind: str) -> None:
    """Outputs and gradients stay finite, and the other rows as they are."""
    model = load(random_runs[kind]).model
    ids = torch.tensor([[5, 6, 7], [8, 9, 0], [3, 3, 3]])
    some = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    none = some.clone()
    none[2] = False
    outs, grads = [], []
    for is_real in (some, none):
        model.zero_grad()
        given = {"source": ids, "source_is_real": is_real} if kind != "decoder" else {}
        given |= {"target": ids, "target_is_real": is_real} if kind != "encoder" else {}
        out = model(**given)
        assert torch.isfinite(out).all()
        torch.autograd.backward(out[:2].square().sum() + 0.0 * out.sum())
        outs.append(out[:2].detach())
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    keep = some[:2] if outs[0].ndim == 3 else slice(None)
    assert torch.allclose(outs[0][keep], outs[1][keep], atol=1e-5)
    for one, other in zip(*grads, strict=True):
        assert torch.isfinite(other).all()
        assert (one - other).abs().max() <= 1e-4 * (1 + one.abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_14_half_precision(random_runs: dict[str, Path], kind: str, dtype: torch.dtype) -> None:
    run = load(random_runs[kind])
    run.model.to(dtype)
    found = written_by(run, ["a", "some longer text", "", "b" * 60], 4)
    assert all(abs(score) < 1e4 for _, score in found)  # which no NaN is
    assert found[2] == ("", 0.0)
    ids, is_real = pad([[5] * 40, [6]])
    with torch.inference_mode():
        given = {"source": ids, "source_is_real": is_real} if kind != "decoder" else {}
        given |= {"target": ids, "target_is_real": is_real} if kind != "encoder" else {}
        assert torch.isfinite(run.model(**given)).all()
        with watch(run.model, "*.weights"):
            assert torch.isfinite(run.model(**given)).all()


def test_15_attention_is_on_the_text(random_runs: dict[str, Path]) -> None:
    """The rows that come back are as long as the source and sum to 1, however much padding was beside it."""
    writer = load(random_runs["encoder-decoder"]).writer({"max_length": 7})
    prompts = [writer.prompt(text) for text in ("a", "", "a longer one", "ab", "the longest of them all")]
    results = [row[0] for row in writer.write(prompts)]
    for prompt, written, rows in zip(
        prompts, results, writer.attention(prompts, [written.ids for written in results]), strict=True
    ):
        assert len(rows) == len(written.ids)
        for row in rows:
            assert len(row) == len(prompt.source or ())
            assert float(row.sum()) == pytest.approx(1, abs=1e-5)
        alone = writer.attention([prompt], [written.ids])[0]
        assert torch.allclose(rows, alone, atol=1e-5)


POSITIONS = {
    "sinusoidal": {"kind": "sinusoidal"},
    "learned": {"kind": "learned", "size": 24},
    "rotary": {"kind": "rotary"},
    "none": {"kind": "none"},
}


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_22_cached_as_uncached(kind: str, positions: str) -> None:
    """With beams that change places, prefixes and prompts of different lengths (so with padding on the left)."""
    model = small(kind, 7, positions=POSITIONS[positions], n_kv_heads=1)
    texts, prefixes = [[3, 4, 0, 6], [4], [0, 0, 3, 4, 4, 3]], [[], [5, 6, 0], [3]]
    prompts = [
        Prompt(text, [START], 8, prefix) if kind == "encoder-decoder" else Prompt(None, [START, *text], 8, prefix)
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    for prompt, found in zip(prompts, find(model, prompts, beam_size=4, n_best=4, alpha=0.0), strict=True):
        source = None if prompt.source is None else list(prompt.source)
        ask = following(model, source, [*prompt.read, *prompt.prefix])  # the prefix as if it were read
        first = following(model, source, list(prompt.read))
        prefix = tuple(prompt.prefix)
        before = sum(float(first(prefix[:i])[token]) for i, token in enumerate(prefix))
        limit = 8 - len(prefix)
        expected = plain_beam(ask, width=4, limit=limit, end=END, kind="none", alpha=0.0)
        assert [whole(hypothesis) for hypothesis in found] == [(*prefix, *ids) for _, _, ids in expected[:4]]
        totals = [before + total for _, total, _ in expected[:4]]
        assert [hypothesis.log_probability for hypothesis in found] == pytest.approx(totals, abs=1e-9)


def test_a_thousand_lines_of_any_unicode(here: Cli, random_runs: dict[str, Path]) -> None:
    """As many out as in, and the same text at every batch size."""
    draw = random.Random(0)
    planes = [
        (0x20, 0x7F),
        (0xA0, 0x24F),
        (0x370, 0x1FFF),
        (0x2000, 0x206F),
        (0x3040, 0xD7FF),
        (0x1F300, 0x1FAFF),
        (1, 0x1F),
    ]
    lines = []
    for _ in range(1000):
        low, high = draw.choice(planes)
        line = "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(0, 12)))
        lines.append(line.replace("\n", ""))
    data = "".join(f"{line}\n" for line in lines).encode()
    call = ("translate", random_runs["encoder-decoder"], "--max-length", 8)
    outs = [here(*call, "--batch-size", size, stdin=data) for size in (1, 7, 64)]
    assert {done.returncode for done in outs} == {0}
    assert outs[0].stdout == outs[1].stdout == outs[2].stdout
    out = outs[0].stdout.split("\n")
    assert len(out) == 1001
    assert "\r" not in outs[0].stdout
    blank = [not line.strip() for line in lines]
    assert 50 < sum(blank) < 500
    assert not any(text for text, is_blank in zip(out, blank, strict=False) if is_blank)
