"""Time the toy run's steps beside a plain PyTorch script of the same recipe, in alternating pairs.

    python bench/toy_speed.py [STEPS] [PAIRS]

Each run is a process of its own with two threads. What is timed on both sides is the steps alone (batch, forward,
backward, update), not the imports, evaluations or files. The peer lies beside the repository; see the Makefile.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from glassformer.config import preset
from glassformer.learn.trainer import Event, Stepped, Trainer

HERE = Path(__file__).parent
PEER = Path(os.environ.get("GLASSFORMER_SHARED", HERE.parents[1] / "shared")) / "bench" / "tutorial_reversal.py"
RESULT = HERE / "results" / "toy_speed.json"


def ours(steps: int) -> float:
    """Return the seconds that so many steps take here."""
    seconds = [0.0]

    def keep(event: Event) -> None:
        if isinstance(event, Stepped):
            seconds[0] = event.seconds

    with tempfile.TemporaryDirectory() as directory:
        overrides = [f"train.{field}={steps}" for field in ("steps", "evaluate_every", "snapshot_every")]
        Trainer(preset("reversal", overrides), Path(directory) / "run", keep).train()
    return seconds[0]


def timed(*command: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=environment)
    return float(json.loads(done.stdout)["seconds"])


def main(steps: int = 600, pairs: int = 5) -> None:
    if not PEER.is_file():
        sys.exit(f"the peer is not at {PEER}; say where with GLASSFORMER_SHARED")
    rows = []
    for pair in range(pairs):
        theirs, own = timed(str(PEER), str(steps)), timed(__file__, "--ours", str(steps))
        rows.append({"peer_seconds": theirs, "seconds": round(own, 2), "ratio": round(own / theirs, 3)})
        print(f"pair {pair + 1}: peer {theirs:.2f} s, here {own:.2f} s, ratio {own / theirs:.3f}")
    median = statistics.median(row["ratio"] for row in rows)
    print(f"median ratio {median:.3f} over {pairs} pairs of {steps} steps")
    RESULT.parent.mkdir(exist_ok=True)
    result = {"steps": steps, "threads": 2, "pairs": rows, "median_ratio": median}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ours"]:
        print(json.dumps({"seconds": ours(int(sys.argv[2]))}))
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
