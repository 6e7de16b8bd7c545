"""Several processes train what one does: the same weights, to go on from, and an end in all of them.

Each test starts two processes with torchrun, on one machine, over gloo.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from glassformer.checkpoint import read_weights
from glassformer.config.files import dump
from glassformer.data.corpus import Corpus
from glassformer.errors import ConfigError
from glassformer.learn.distributed import Processes
from glassformer.learn.trainer import Trainer
from glassformer.run import load
from tests.learn.corpora import small

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
PATHS = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}

# Trains several configurations one after the other, in float64, as one process or two.
WORKER = """
import json, os, sys
from pathlib import Path
import torch
from glassformer.learn import validation
from glassformer.learn.distributed import processes
from glassformer.learn.events import Stepped
from glassformer.learn.trainer import Trainer
from tests.learn.corpora import small

validation.LOGITS = 500  # so that there are several batches to validate on, for both processes
folder, out, plans = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
torch.set_default_dtype(torch.float64)
with processes("cpu") as together:
    for name, (kind, changes) in plans.items():
        events = []
        trainer = Trainer(small(folder, *changes, kind=kind), out / name, events.append, processes=together)
        trainer.train()
        assert bool(events) == together.is_first
        told = [(one.loss, one.gradient_norm, one.n_tokens) for one in events if isinstance(one, Stepped)]
        if together.is_first:
            (out / f"{name}.json").write_text(json.dumps(told))
os._exit(0)  # as the command line does: at the end of Python, threads of PyTorch can abort a process that is done
"""
SHARED = [
    "train.steps=5", "train.accumulate=3", "train.optimizer.clip=0.5", "train.ema=0.9", "train.label_smoothing=0.2",
    "model.dropout.attention=0.1",
]  # fmt: skip
PLANS: dict[str, tuple[str, list[str]]] = {
    "pairs": ("encoder-decoder", [*SHARED, "train.metric=chrf"]),
    "tied": ("encoder-decoder", [*SHARED, "model.tying=all"]),
    "decoder": ("decoder", SHARED),
    "classes": ("encoder", [*SHARED, "train.class_weights=balanced", "train.metric=accuracy"]),
    # 15 batches of 8, two a step: an epoch of 8 steps, the last of which has but one batch
    "epoch": ("encoder-decoder", ["train.steps=", "train.epochs=1", "train.accumulate=2"]),
    # stops early in both, after the third look without a better one
    "patience": ("encoder-decoder", ["train.accumulate=2", "train.patience=3", "train.schedule.peak=3.0", "train.evaluate_every=1", "train.steps=50"]),
}  # fmt: skip


def torchrun(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, "--", *map(str, arguments)],  # without it torchrun takes --run for an option of its own
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def plans() -> dict[str, tuple[str, list[str]]]:
    """The plans, and again with the weights in parts."""
    sharded = {f"{name}-sharded": (kind, [*changes, "train.shard=true"]) for name, (kind, changes) in PLANS.items()}
    return PLANS | sharded


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return path


def test_two_processes_learn_what_one_does(
    folder: Path, tmp_path: Path, worker: Path, plans: dict[str, tuple[str, list[str]]]
) -> None:
    """Loss, gradient and weights, in float64; with dropout, with three batches for two processes, with weights in parts."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = [sys.executable, worker, folder, one, json.dumps(PLANS)]
    subprocess.run(list(map(str, alone)), check=True, cwd=ROOT, env=ENVIRONMENT)
    done = torchrun(worker, folder, two, json.dumps(plans))
    assert done.returncode == 0, done.stderr
    for name in plans:
        original = name.removesuffix("-sharded")
        right, found = read_run(one / original), read_run(two / name)
        assert right.keys() == found.keys()
        for key, tensor in right.items():
            assert tensor.dtype == torch.float64
            assert (tensor - found[key]).abs().max() <= 1e-9, (name, key)
        told = [json.loads((place / f"{path}.json").read_text()) for place, path in ((one, original), (two, name))]
        assert len(told[0]) == len(told[1])
        for a, b in zip(*told, strict=True):
            assert b == pytest.approx(a, rel=1e-9)
        looks = [
            (place / path / "metrics.jsonl").read_text().splitlines() for place, path in ((one, original), (two, name))
        ]
        for a, b in zip(*looks, strict=True):
            right_look, look = json.loads(a), json.loads(b)
            assert look.get("metric") == right_look.get("metric")
            assert look["validation_loss"] == pytest.approx(right_look["validation_loss"], rel=1e-9)
    n_steps = {name: len(json.loads((two / f"{name}.json").read_text())) for name in ("epoch", "patience")}
    assert n_steps["epoch"] == 8
    assert 4 <= n_steps["patience"] < 50


def read_run(directory: Path) -> dict[str, torch.Tensor]:
    return read_weights(directory / "model.safetensors")[0]


KILLED = """
import os, signal, sys
import glassformer.cli.main as program
from glassformer.learn.learner import Learner

at, *sys.argv[1:] = sys.argv[1:]
step = Learner.step

def killed(self, batches, rate):
    if self.counters.updates == int(at) and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batches, rate)

Learner.step = killed
program.main()
"""


@pytest.mark.parametrize("shard", ["false", "true"])
def test_27_killed_and_resumed_on_two_processes(folder: Path, tmp_path: Path, shard: str) -> None:
    """40 steps equal 20, kill -9 later in an epoch, and 20 more: bit for bit, with dropout and bfloat16."""
    script, config = tmp_path / "killed.py", tmp_path / "small.toml"
    script.write_text(KILLED)
    changes = (
        "train.steps=40", "train.accumulate=2", "train.evaluate_every=10", "train.snapshot_every=10", "train.ema=0.9",
        "train.precision=bfloat16", f"train.shard={shard}",
    )  # fmt: skip
    config.write_text(dump(small(folder, *changes)))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert torchrun(script, -1, "train", config, "--run", whole).returncode == 0
    killed = torchrun(script, 27, "train", config, "--run", parts)
    assert killed.returncode == 1
    assert (parts / "state.safetensors").exists()
    assert "process 0 of 2 (counted from 0) ends, as another one has ended" in killed.stderr
    assert torchrun(script, -1, "train", config, "--run", parts, "--resume").returncode == 0
    right, found = read_run(whole), read_run(parts)
    assert all(torch.equal(right[key], found[key]) for key in right)
    assert len((parts / "metrics.jsonl").read_text().splitlines()) == 6  # steps 1, 10, 20, 30, 40, and the mean
    assert isinstance(load(parts).translate("red green"), str)  # a run like any other


STOPPED = """
import os
import sys
from pathlib import Path
import torch
from glassformer.errors import TrainingStopped
from glassformer.learn.distributed import processes
from glassformer.learn.events import Stepped
from glassformer.learn.trainer import Trainer
from tests.learn.corpora import small

def on_event(event):
    if isinstance(event, Stepped) and event.step == 8:
        trainer.request_stop()

folder, out, *changes = sys.argv[1:]
torch.set_default_dtype(torch.float64)
with processes("cpu") as together:
    trainer = Trainer(small(Path(folder), *changes), out, on_event, processes=together)
    try:
        trainer.train()
    except TrainingStopped:
        pass
os._exit(0)  # as the command line does: at the end of Python, threads of PyTorch can abort a process that is done
"""


def test_the_state_of_two_processes_is_that_of_one(folder: Path, tmp_path: Path) -> None:
    """A training that two processes began, with weights in parts, is finished by one; in float64."""
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    settings = ("train.steps=12", "train.accumulate=2", "train.shard=true", "train.ema=0.9")
    done = torchrun(script, folder, tmp_path / "run", *settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/state.safetensors").exists()
    torch.set_default_dtype(torch.float64)
    try:
        parts = Trainer(small(folder, *settings), tmp_path / "run", lambda _: None, resume=True).train()
        whole = Trainer(small(folder, *settings), tmp_path / "whole", lambda _: None).train()
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert a.dtype == torch.float64
        assert (a - b).abs().max() <= 1e-9


RAISES = """
import os, sys, time
import glassformer.cli.main as program
from glassformer.errors import TrainingError
from glassformer.learn.learner import Learner

rank, what, *sys.argv[1:] = sys.argv[1:]
step = Learner.step

def failing(self, batches, rate):
    if self.counters.updates == 3 and os.environ["RANK"] == rank:
        if what == "hangs":
            time.sleep(1000)
        raise TrainingError("this one is to fail")
    return step(self, batches, rate)

Learner.step = failing
if what == "hangs":
    import glassformer.cli.progress
    glassformer.cli.progress.PATIENCE = 3
program.main()
"""


@pytest.mark.parametrize("rank", ["0", "1"])
def test_28_one_that_fails_ends_all(folder: Path, tmp_path: Path, rank: str) -> None:
    script, config = tmp_path / "fails.py", tmp_path / "small.toml"
    script.write_text(RAISES)
    config.write_text(dump(small(folder, "train.accumulate=2")))
    started = time.monotonic()
    done = torchrun(script, rank, "raises", "train", config, "--run", tmp_path / "run")
    assert time.monotonic() - started < 30
    assert done.returncode == 1
    assert "glassformer: this one is to fail" in done.stderr
    other = 1 - int(rank)
    assert f"glassformer: process {other} of 2 (counted from 0) ends, as another one has ended" in done.stderr
    assert "glassformer/learn" not in done.stderr  # no traceback through our code, as torchrun has one of its own


def started(directory: Path, *arguments: object) -> "subprocess.Popen[str]":
    """Start two processes, and come back when the run's first step is done."""
    command = [*TORCHRUN, *map(str, arguments), "--run", str(directory)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT)
    since = time.monotonic()
    while not (directory / "metrics.jsonl").exists() and time.monotonic() - since < 60:
        time.sleep(0.1)
    return process


def test_asked_to_end(folder: Path, tmp_path: Path) -> None:
    """SIGTERM, as a cluster sends it: the step is finished in all, the state saved once, and said once."""
    config = tmp_path / "small.toml"
    config.write_text(dump(small(folder, "train.accumulate=2", "train.steps=100_000", "train.evaluate_every=1000")))
    process = started(tmp_path / "run", "-m", "--", "glassformer", "train", config)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert time.monotonic() - asked < 30
    assert told.count("glassformer: stopped after step") == 1
    assert (tmp_path / "run/state.safetensors").exists()


def test_asked_to_end_while_one_hangs(folder: Path, tmp_path: Path) -> None:
    """The step never ends, as one process does not come to it: all end nevertheless."""
    script, config = tmp_path / "hangs.py", tmp_path / "small.toml"
    script.write_text(RAISES)
    config.write_text(dump(small(folder, "train.accumulate=2")))
    process = started(tmp_path / "run", "--", script, "1", "hangs", "train", config)
    time.sleep(2)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert 2 < time.monotonic() - asked < 20


def test_too_few_batches_for_all(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"2 processes share the batches of a step, but train\.accumulate=1: set it"):
        Trainer(small(folder), tmp_path / "run", lambda _: None, processes=Processes(0, 2))
    assert not (tmp_path / "run").exists()


def test_batches_are_dealt_out(folder: Path) -> None:
    """Of three batches a step, and a last step of two: the first process has 1 and 3, the second 2 and a silent one."""
    config = small(folder, "train.accumulate=3", "train.batch_size=15")  # 120 examples: 8 batches, 3 steps
    assert config.train is not None
    feed = Corpus(config).feed(config.train)
    alone = list(feed.steps(1))
    first, second = (list(feed.steps(1, rank=rank, count=2)) for rank in (0, 1))
    assert [len(step) for step in alone] == [3, 3, 2]
    assert [len(step) for step in first] == [len(step) for step in second] == [2, 2, 1]
    for all_three, a, b in zip(alone, first, second, strict=True):
        dealt = [batch for pair in zip(a, b, strict=True) for batch in pair]
        for right, found in zip(all_three, dealt, strict=False):
            assert torch.equal(right.labels, found.labels)
        assert all(batch.n_labels == 0 for batch in dealt[len(all_three) :])
    later = list(feed.steps(1, skip=2, rank=1, count=2))
    assert torch.equal(later[0][0].labels, alone[2][1].labels)
