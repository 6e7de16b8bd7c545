"""Time the toy run's steps beside a plain PyTorch script of the same recipe.

    python bench/toy_speed.py [STEPS] [PAIRS]

What is timed on both sides is the steps alone (batch, forward, backward, update), not imports, evaluations or files,
with two threads. In each pair both take their steps in turn, one by one, in one process: what else the machine does
meets both alike. Between whole processes, one after the other, the same ratio swings by a fifth on a shared machine;
those pairs are measured too, and written down beside it. The script lies beside the repository; say where with
GLASSFORMER_SHARED.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from glassformer.config import preset
from glassformer.learn.events import Event, Stepped
from glassformer.learn.trainer import Trainer

HERE = Path(__file__).parent
PEER = Path(os.environ.get("GLASSFORMER_SHARED", HERE.parents[1] / "shared")) / "bench" / "tutorial_reversal.py"
RESULT = HERE / "results" / "toy_speed.json"


def train_here(steps: int, after_each: Callable[[], None] = lambda: None) -> float:
    """Return the seconds that so many steps take here; `after_each` runs between them and is not counted."""
    seconds = [0.0]

    def keep(event: Event) -> None:
        if isinstance(event, Stepped):
            seconds[0] = event.seconds
            after_each()

    with tempfile.TemporaryDirectory() as directory:
        overrides = [f"train.{field}={steps}" for field in ("steps", "evaluate_every", "snapshot_every")]
        Trainer(preset("reversal", overrides), Path(directory) / "run", keep).train()
    return seconds[0]


def peer_step(peer: ModuleType) -> Callable[[], None]:
    """Return the script's training step, with a model of its own."""
    model, generator = peer.Transformer(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: 64**-0.5 * min((s + 1) ** -0.5, (s + 1) * 400**-1.5)
    )
    loss_fn = torch.nn.CrossEntropyLoss(ignore_index=peer.PAD, label_smoothing=0.1)

    def step() -> None:
        model.train()
        source, target_in, target_out = peer.batch(64, generator)
        loss = loss_fn(model(source, target_in).reshape(-1, peer.VOCAB), target_out.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    return step


def in_turn(steps: int) -> tuple[float, float]:
    """Return the seconds of the script's steps and of the steps here, taken in turn."""
    spec = importlib.util.spec_from_file_location("peer", PEER)
    assert spec is not None
    assert spec.loader is not None
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    step, theirs = peer_step(peer), [0.0]

    def timed() -> None:
        started = time.perf_counter()
        step()
        theirs[0] += time.perf_counter() - started

    own = train_here(steps, timed)
    return theirs[0], own


def in_processes(steps: int) -> tuple[float, float]:
    """Return the same for two processes, one after the other."""

    def seconds(*command: str) -> float:
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=environment)
        return float(json.loads(done.stdout)["seconds"])

    return seconds(str(PEER), str(steps)), seconds(__file__, "--here", str(steps))


def main(steps: int = 600, pairs: int = 5) -> None:
    if not PEER.is_file():
        sys.exit(f"the peer is not at {PEER}; say where with GLASSFORMER_SHARED")
    torch.set_num_threads(2)
    result: dict[str, object] = {"steps": steps, "threads": 2}
    for name, measure in (("steps_in_turn", in_turn), ("processes_in_turn", in_processes)):
        rows = []
        for pair in range(pairs):
            theirs, own = measure(steps)
            ratio = round(own / theirs, 3)
            rows.append({"peer_seconds": round(theirs, 2), "seconds": round(own, 2), "ratio": ratio})
            print(f"{name}, pair {pair + 1}: peer {theirs:.2f} s, here {own:.2f} s, ratio {ratio}", flush=True)
        median = statistics.median(row["ratio"] for row in rows)
        print(f"{name}: median ratio {median:.3f} over {pairs} pairs of {steps} steps")
        result[name] = {"median_ratio": median, "pairs": rows}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        print(json.dumps({"seconds": train_here(int(sys.argv[2]))}))
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
