"""What several tests share: one short training, and a way to call the command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glassformer.config import preset
from glassformer.learn.trainer import Event, Trainer
from glassformer.run import Run, load

Cli = Callable[..., subprocess.CompletedProcess[str]]


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


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
