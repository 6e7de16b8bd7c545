"""`translate --engine ctranslate2`: what the run writes, in the same format."""

import json
import shutil
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError, DecodingError
from glassformer.interop.convert import convert
from glassformer.interop.engine import CTranslate2Writer
from glassformer.run import load
from tests.conftest import Cli


@pytest.fixture(scope="module")
def exported(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engine") / "out"
    convert(run_directory, out, to="ctranslate2")
    return out


LINES = "c a b e d\n\na b c\ncabed\nj i h g f e d c\na a a\n"


@pytest.mark.parametrize("options", [(), ("--beam-size", "4"), ("--beam-size", "4", "--n-best", "2"), ("--beam-size", "3", "--alpha", "1.2"),
                                     ("--beam-size", "4", "--length-penalty", "power"), ("--max-length", "2")])  # fmt: skip
def test_the_same_lines(cli: Cli, options: tuple[str, ...], exported: Path, run_directory: Path) -> None:
    own = cli("translate", run_directory, *options, "--json", stdin=LINES)
    theirs = cli("translate", exported, "--engine", "ctranslate2", *options, "--json", stdin=LINES)
    assert theirs.stderr == own.stderr
    assert theirs.returncode == own.returncode
    ours, found = ([json.loads(line) for line in done.stdout.splitlines()] for done in (own, theirs))
    assert len(ours) == len(found) == 6
    for a, b in zip(ours, found, strict=True):
        assert a.keys() == b.keys()
        assert a["source"] == b["source"]
        assert (a["target"], a["tokens"]) == (b["target"], b["tokens"])
        assert a["score"] == pytest.approx(b["score"], abs=2e-3)


def test_a_hundred(exported: Path, run_directory: Path) -> None:
    """Token for token on 100 texts of a trained run."""
    texts = [" ".join("abcdefghij"[(7 * i + 3 * j) % 10] for j in range(3 + i % 6)) for i in range(100)]
    run, engine = load(run_directory), CTranslate2Writer(exported)
    own = run.writer().write([run.writer().prompt(text) for text in texts])
    found = engine.write([engine.prompt(text) for text in texts])
    assert [row[0].ids for row in found] == [row[0].ids for row in own]
    assert {row[0].stopped for row in found} == {"end"}


def test_what_it_does_not_do(cli: Cli, exported: Path, run_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was not made for CTranslate2; make it: glassformer convert RUN"):
        CTranslate2Writer(run_directory)
    with pytest.raises(DecodingError, match="does not sample"):
        CTranslate2Writer(exported, {"sample": True})
    engine = CTranslate2Writer(exported)
    with pytest.raises(DecodingError, match="gives a prefix no score"):
        engine.write([engine.prompt("a b", prefix="b")])
    with pytest.raises(DecodingError, match="gives texts and scores only"):
        engine.steps(engine.prompt("a b"))
    damaged = tmp_path / "damaged"
    shutil.copytree(exported, damaged)
    (damaged / "model.bin").write_bytes((exported / "model.bin").read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="CTranslate2 cannot open"):
        CTranslate2Writer(damaged)
    done = cli("translate", exported, "--engine", "ctranslate2", "--alignments", "a b")
    assert done.returncode == 2
    done = cli("translate", exported, "a b")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
