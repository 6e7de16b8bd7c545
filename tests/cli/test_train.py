"""`glassformer train` as a user calls it: their own files, stopping and going on, other runs' weights."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glassformer.checkpoint import read_weights
from glassformer.config.files import dump
from tests.conftest import Cli
from tests.learn.corpora import small, write_pairs


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file beside its data."""
    write_pairs(tmp_path)
    path = tmp_path / "colours.toml"
    path.write_text(dump(small(tmp_path, "train.metric='exact_match'")), encoding="utf-8")
    return path


def test_what_is_told(cli: Cli, config: Path, tmp_path: Path) -> None:
    with (tmp_path / "train.tsv").open("a") as file:
        file.write("\tnothing\nred\t\n")
    done = cli("train", config, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The run is in runs/colours. Its weights: mean of the snapshots after steps 8, 12.\n"
    for text in (
        "120 examples to learn from\nnote: 2 of 122 examples are left out: one side is blank\n",
        "the heaviest batch, 8 rows of 7 tokens: ",
        "the learning rate has its peak of 0.003 at step 2\n",
        "   step       rate   training loss   validation loss        exact match\n      1   1.50e-03",
        "mean of 2 snapshots",
    ):
        assert text in done.stderr, text
    assert cli("translate", "runs/colours", "red green", cwd=tmp_path).returncode == 0
    done = cli("evaluate", "runs/colours", cwd=tmp_path)
    assert done.stderr.startswith("glassformer: runs/colours has no test set of its own")


def test_its_own_test_files(here: Cli, config: Path, tmp_path: Path) -> None:
    """Two lines of one source are one source with two references."""
    (tmp_path / "test.tsv").write_text("red green\tgreen red\nblue\tblue\nred green\tred green\n\tx\n")
    assert here("train", config, "--run", tmp_path / "run", "--set", "data.test=['test.tsv']").returncode == 0
    done = here("evaluate", tmp_path / "run", "--json", "--metric", "bleu")
    found = json.loads(done.stdout)
    assert (found["n_lines"], found["n_left_out"]) == (2, 0)
    assert "nrefs:var" in found["metrics"][0]["signature"]


def test_a_run_needs_no_data(here: Cli, config: Path, tmp_path: Path) -> None:
    assert here("train", config, "--run", tmp_path / "run").returncode == 0
    for path in [*tmp_path.glob("*.tsv"), config]:
        path.unlink()
    assert here("translate", tmp_path / "run", "red green").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(config: Path, tmp_path: Path, here: Cli, number: signal.Signals) -> None:
    call = [sys.executable, "-m", "glassformer", "train", str(config), "--run", str(tmp_path / "run")]
    more = ["--set", "train.steps=100000", "--set", "train.evaluate_every=10"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*call, *more], stderr=subprocess.PIPE, text=True, env=environment) as process:
        metrics = tmp_path / "run/metrics.jsonl"
        for _ in range(600):
            if metrics.exists() and len(metrics.read_text().splitlines()) > 2:
                break
            time.sleep(0.1)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    last = told.splitlines()[-1]
    assert last.startswith("glassformer: stopped after step ")
    assert last.endswith(f"; go on with: glassformer train {tmp_path / 'run'} --resume")
    step = int(last.split("step ")[1].split(";")[0])
    progress = json.loads(read_weights(tmp_path / "run/state.safetensors")[1]["progress"])
    assert progress["step"] == step
    refused = here("train", config, "--run", tmp_path / "run")
    assert "holds an unfinished run: go on with --resume" in refused.stderr
    again = here("train", config, "--run", tmp_path / "run", "--resume", *more[:1], f"train.steps={step + 7}")
    assert again.returncode == 2
    assert f"differs: train.steps={step + 7}, not 100000; train.evaluate_every=5, not 10" in again.stderr


def test_resume_of_a_finished_run_is_no_error(here: Cli, config: Path, tmp_path: Path) -> None:
    assert here("train", config, "--run", tmp_path / "run", "--resume").returncode == 0
    done = here("train", tmp_path / "run", "--resume")
    assert (done.returncode, done.stderr) == (0, f"The run in {tmp_path / 'run'} is finished.\n")


def test_from_another_run(here: Cli, config: Path, tmp_path: Path) -> None:
    assert here("train", config, "--run", tmp_path / "first").returncode == 0
    done = here("train", config, "--run", tmp_path / "second", "--from", tmp_path / "first", "--tensorboard")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "second/tensorboard").glob("events*"))
    done = here("train", config, "--run", tmp_path / "x", "--from", tmp_path / "nothing")
    assert (done.returncode, "there is no run at" in done.stderr) == (1, True)
    done = here("train", config, "--run", tmp_path / "x", "--device", "cuda:99")
    assert (done.returncode, "cuda:99" in done.stderr) == (1, True)


def test_json(here: Cli, config: Path, tmp_path: Path) -> None:
    report = json.loads(here("train", config, "--run", tmp_path / "run", "--json").stdout)
    assert report.keys() == {"run", "weights", "evaluations", "averaged"}
    assert [look["step"] for look in report["evaluations"]] == [1, 5, 10, 12]
    assert report["averaged"]["steps"] == [8, 12]
