"""Runs to look at: the toy, the number machine's microscope, and random ones."""

from pathlib import Path

import pytest

from glassformer.config import preset
from glassformer.explorer.shelf import Shelved, open_run
from glassformer.learn.trainer import Trainer


@pytest.fixture(scope="session")
def toy(run_directory: Path) -> Shelved:
    return open_run(run_directory)


@pytest.fixture(scope="session")
def microscope(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    directory = tmp_path_factory.mktemp("runs") / "microscope"
    settings = ["train.epochs=20", "train.snapshot_every=150"]
    Trainer(preset("microscope", settings), directory, lambda _: None).train()
    return open_run(directory)


@pytest.fixture(scope="session")
def classifier(random_runs: dict[str, Path]) -> Shelved:
    return open_run(random_runs["encoder"])
