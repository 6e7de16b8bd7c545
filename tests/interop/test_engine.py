"""`translate` and `generate --engine`: what the run writes, in the same format."""

import json
import shutil
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError, DecodingError
from glassformer.interop.convert import convert
from glassformer.interop.ctranslate2 import FILE
from glassformer.interop.engine import open_writer
from glassformer.run import load
from tests.conftest import Cli

TEXTS = [" ".join("abcdefghij"[(7 * i + 3 * j) % 10] for j in range(3 + i % 6)) for i in range(100)]
LINES = "c a b e d\n\na b c\ncabed\nj i h g f e d c\na a a\n"
ENGINES = ("ctranslate2", "onnx")


@pytest.fixture(scope="module")
def exported(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("engine")
    for engine in ENGINES:
        convert(run_directory, place / engine, to=engine)
    return {engine: place / engine for engine in ENGINES}


@pytest.mark.parametrize("options", [(), ("--beam-size", "4"), ("--beam-size", "4", "--n-best", "2"), ("--beam-size", "3", "--alpha", "1.2"),
                                     ("--beam-size", "4", "--length-penalty", "power"), ("--max-length", "2")])  # fmt: skip
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_lines(
    here: Cli, options: tuple[str, ...], engine: str, exported: dict[str, Path], run_directory: Path
) -> None:
    own = here("translate", run_directory, *options, "--json", stdin=LINES)
    theirs = here("translate", exported[engine], "--engine", engine, *options, "--json", stdin=LINES)
    assert theirs.stderr == own.stderr
    assert theirs.returncode == own.returncode
    ours, found = ([json.loads(line) for line in done.stdout.splitlines()] for done in (own, theirs))
    assert len(ours) == len(found) == 6
    for a, b in zip(ours, found, strict=True):
        assert a.keys() == b.keys()
        assert a["source"] == b["source"]
        assert (a["target"], a["tokens"]) == (b["target"], b["tokens"])
        assert a["score"] == pytest.approx(b["score"], abs=2e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hundred(engine: str, exported: dict[str, Path], run_directory: Path) -> None:
    """Token for token on 100 texts of a trained run."""
    run, other = load(run_directory), open_writer(engine, exported[engine])
    own = run.writer().write([run.writer().prompt(text) for text in TEXTS])
    found = other.write([other.prompt(text) for text in TEXTS])
    assert [row[0].ids for row in found] == [row[0].ids for row in own]
    assert {row[0].stopped for row in found} == {"end"}


def test_all_that_onnx_does(exported: dict[str, Path], run_directory: Path) -> None:
    """Samples, prefixes, streams, steps and scores are ours, over logits of onnxruntime."""
    run, path = load(run_directory), exported["onnx"]
    for way in ({"sample": True, "n_best": 2}, {"no_repeat_ngram": 2, "beam_size": 3, "min_length": 7}):
        own, other = run.writer(way), open_writer("onnx", path, way)
        prompts = [own.prompt(text, prefix="b", number=i) for i, text in enumerate(TEXTS[:20])]
        a, b = own.write(prompts), other.write(prompts)
        assert [[one.ids for one in row] for row in b] == [[one.ids for one in row] for row in a]
    own, other = run.writer(), open_writer("onnx", path)
    assert list(other.stream(other.prompt("c a b"))) == list(own.stream(own.prompt("c a b")))
    for a, b in zip(own.steps(own.prompt("c a b")), other.steps(other.prompt("c a b")), strict=True):
        assert a.chosen.token == b.chosen.token
        assert a.chosen.probability == pytest.approx(b.chosen.probability, abs=1e-6)
    pairs = [own.pair(text, "d e b a c") for text in TEXTS[:5]]
    scores = [writer.score([p for p, _ in pairs], [ids for _, ids in pairs]) for writer in (own, other)]
    for a, b in zip(*scores, strict=True):
        assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-4)
    with pytest.raises(DecodingError, match="this engine gives texts and scores only"):
        other.alignments([other.prompt("a b")], [[3]])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_decoder_alone(engine: str, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
    out, lines = tmp_path / "out", "ab\n\nlonger than that\nof 8 too\n"
    assert convert(random_runs["decoder"], out, to=engine)[-1] == "tried on 20 inputs: 20 come out the same"
    both = (
        (),
        ("--beam-size", "3", "--n-best", "2"),
        ("--min-length", "5", "--no-repeat-ngram", "2"),
        ("--with-prompt",),
    )
    for options in (
        both if engine == "ctranslate2" else (*both, ("--sample", "--n-best", "2"), ("--stream",), ("--scores",))
    ):
        own = here("generate", random_runs["decoder"], *options, "--max-length", "9", stdin=lines)
        found = here("generate", out, "--engine", engine, *options, "--max-length", "9", stdin=lines)
        assert (found.stdout, found.stderr, found.returncode) == (own.stdout, own.stderr, own.returncode), options


def test_an_encoder_alone(here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "onnx"
    assert convert(random_runs["encoder"], out, to="onnx")[-1] == "tried on 20 inputs: 20 come out the same"
    assert json.loads((out / "classes.json").read_text()) == ["network", "printer", "account"]
    done = here("translate", out, "--engine", "onnx", "a b")
    assert done.returncode == 1
    assert "was not made for ONNX, to write with" in done.stderr


def test_what_they_do_not_do(here: Cli, exported: dict[str, Path], run_directory: Path, tmp_path: Path) -> None:
    ct2, graphs = (exported[engine] for engine in ENGINES)
    for engine, other, name in (("ctranslate2", graphs, "CTranslate2"), ("onnx", ct2, "ONNX")):
        for path in (run_directory, other, tmp_path / "nowhere"):
            with pytest.raises(
                CheckpointError, match=f"was not made for {name}, .* make it: glassformer convert RUN .* --to {engine}"
            ):
                open_writer(engine, path)
    with pytest.raises(DecodingError, match="does not sample"):
        open_writer("ctranslate2", ct2, {"sample": True})
    writer = open_writer("ctranslate2", ct2)
    with pytest.raises(DecodingError, match="gives a prefix no score"):
        writer.write([writer.prompt("a b", prefix="b")])
    prompt = writer.prompt("a b")
    for ask in (
        writer.steps,
        writer.stream,
        writer.record,
        lambda one: writer.score([one], [[3]]),
        lambda one: writer.alignments([one], [[3]]),
    ):
        with pytest.raises(DecodingError, match="gives texts and scores only"):
            ask(prompt)
    damaged = tmp_path / "damaged"
    shutil.copytree(ct2, damaged)
    (damaged / FILE).write_bytes((ct2 / FILE).read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="CTranslate2 cannot open"):
        open_writer("ctranslate2", damaged)
    for options in (("--alignments",), ("--ensemble", ct2), ("--truncate",), ("--device", "cuda")):
        assert here("translate", ct2, "--engine", "ctranslate2", *options, "a b").returncode == 2
    for verb, arguments in (("translate", (ct2,)), ("generate", (graphs, "--engine", "onnx"))):
        done = here(verb, *arguments, "a b")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
    assert "is no decoder-only model: it does not go on from a text; use translate" in done.stderr
