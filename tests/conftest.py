"""What several tests share: one short training, and a way to call the command line."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.checkpoint import save_weights
from glassformer.cli.main import main
from glassformer.config import Config, ModelConfig, TextConfig, preset
from glassformer.config.files import dump
from glassformer.learn.events import Event
from glassformer.learn.trainer import Trainer
from glassformer.run import Run, RunFiles, load
from glassformer.text.learn import learn
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies
from tests.agreement.variants import build
from tests.learn.corpora import write_labelled, write_pairs

Cli = Callable[..., subprocess.CompletedProcess[str]]
CLASSES = ["network", "printer", "account"]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep token ids apart from those of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """Train the toy for 800 steps, enough for weights that are far from fresh; give its directory and events."""
    directory = tmp_path_factory.mktemp("runs") / "reversal"
    events: list[Event] = []
    Trainer(preset("reversal", ["train.steps=800"]), directory, events.append).train()
    return directory, events


@pytest.fixture(scope="session")
def run_directory(trained: tuple[Path, list[Event]]) -> Path:
    return trained[0]


@pytest.fixture
def run(run_directory: Path) -> Run:
    return load(run_directory)


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Run `glassformer ...` as a process of its own."""

    def call(*arguments: object, stdin: str | bytes = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "glassformer", *map(str, arguments)],
            input=data,
            capture_output=True,
            cwd=cwd,
            env={**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"},
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `glassformer ...` in this process: what `cli` does, without two seconds of starting up."""

    def call(*arguments: object, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        monkeypatch.setattr(sys, "argv", ["glassformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out.flush()
        err.flush()
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        monkeypatch.undo()
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    return call


def random_run(directory: Path, kind: str, *, seed: int = 0, words: str = "", **changes: Any) -> Path:
    """Write a run over bytes, or some words, whose weights are random: any text in, any bytes out."""
    tokenizer = learn([words], TextConfig(kind="words")) if words else Tokenizer.bytes()
    values: dict[str, Any] = {"kind": kind, "d_model": 32, "d_ff": 48, "n_heads": 4, "tying": "none"}
    if kind != "decoder":
        values |= {"source_vocabulary": tokenizer.size, "n_encoder_layers": 2}
    if kind != "encoder":
        values |= {"target_vocabulary": tokenizer.size, "n_decoder_layers": 2}
    else:
        values["classifier"] = {"classes": len(CLASSES)}
    config = Config(model=ModelConfig.model_validate(values | changes))
    files = RunFiles(directory)
    directory.mkdir(parents=True)
    files.config.write_text(dump(config), encoding="utf-8")
    Vocabularies.one(tokenizer, tuple(CLASSES) if kind == "encoder" else ()).save(directory)
    save_weights(build(config.model, seed), files.weights, {"weights": f"random, seed {seed}"})
    return directory


@pytest.fixture(scope="session")
def random_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind, with random weights."""
    place = tmp_path_factory.mktemp("random")
    return {kind: random_run(place / kind, kind) for kind in ("encoder-decoder", "decoder", "encoder")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to learn from; runs go beside it."""
    place = tmp_path / "data"
    place.mkdir()
    write_pairs(place)
    write_labelled(place)
    return place


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
