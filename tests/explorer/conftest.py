"""Runs to look at: the toy, the number machine's microscope, and random ones."""

from pathlib import Path

import pytest

from glassformer.config import preset
from glassformer.explorer.shelf import Shelved, open_run
from glassformer.learn.trainer import Trainer
from tests.conftest import random_run


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
def modern(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """Random, with what 2017 did not have: RMSNorm first, rotary positions, shared keys, gates."""
    fields = {
        "norm": {"kind": "rmsnorm", "placement": "pre"}, "positions": {"kind": "rotary"}, "n_kv_heads": 2,
        "ffn": {"activation": "gelu", "gated": True}, "biases": "none",
    }  # fmt: skip
    place = tmp_path_factory.mktemp("modern") / "modern"
    return open_run(random_run(place, "encoder-decoder", words="one two three four", **fields))


@pytest.fixture(scope="session")
def classifier(random_runs: dict[str, Path]) -> Shelved:
    return open_run(random_runs["encoder"])
