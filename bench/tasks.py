"""Train the small tasks as their presets say and write down how good they are.

    python bench/tasks.py [number-words] [microscope] [router] [char-lm]

The figures go into bench/results/tasks.json. The tickets and tiny Shakespeare are read from the folder that
GLASSFORMER_SHARED names (its data/; by default ../shared). What was chosen, was chosen on validation data (of
number-words: on other numbers held out); a test set is read once, by the run that is reported.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from glassformer.config import preset
from glassformer.data.corpus import Corpus
from glassformer.evaluate import evaluate
from glassformer.learn.events import Averaged, Evaluated, Event
from glassformer.learn.trainer import Trainer
from glassformer.run import Run

RESULT = Path(__file__).parent / "results" / "tasks.json"
DATA = Path(os.environ.get("GLASSFORMER_SHARED", "../shared")) / "data"
TASKS: dict[str, tuple[int, list[str], list[str]]] = {  # seeds, changes, metrics on the test set
    "number-words": (5, [], ["exact_match"]),
    "microscope": (3, [], ["exact_match"]),
    "router": (3, [f"data.folder={DATA}"], ["accuracy", "macro_f1"]),
    "char-lm": (3, [f"data.folder={DATA}"], []),
}


def main(names: list[str]) -> None:
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in names:
        n_seeds, changes, metrics = TASKS[name]
        runs = [one(name, [*changes, f"train.seed={seed}"], metrics) for seed in range(n_seeds)]
        figures = {key for key in runs[0] if isinstance(runs[0][key], float)}
        spread = {
            key: {"mean": statistics.mean(values), "lowest": min(values), "highest": max(values)}
            for key in sorted(figures)
            for values in [[run[key] for run in runs]]
        }
        results[name] = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "summary": spread,
            "seeds": runs,
        }
        RESULT.write_text(json.dumps(results, indent=2) + "\n")


def one(name: str, changes: list[str], metrics: list[str]) -> dict[str, Any]:
    """Train once; return the figures."""
    events: list[Event] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = preset(name, changes)
        run = Trainer(config, Path(folder) / "run", events.append).train()
        minutes = (time.perf_counter() - started) / 60
        found: dict[str, Any] = {"changes": changes[-1], "minutes": round(minutes, 3), **training(events)}
        if metrics:
            found |= test(run, Path(folder) / "out.txt", metrics)
    print(name, json.dumps(found), flush=True)
    return found


def training(events: list[Event]) -> dict[str, Any]:
    """What the trainer reported."""
    looks = [event for event in events if isinstance(event, Evaluated)]
    averaged = next(event for event in events if isinstance(event, Averaged))
    found: dict[str, Any] = {"steps": looks[-1].step, "validation_loss": averaged.validation_loss}
    second = [look for look in looks if look.epoch == 2]
    if averaged.metric is not None:
        found["validation_metric"] = averaged.metric
        if second:
            found["metric_after_2_epochs"] = second[-1].metric
    return found


def test(run: Run, out: Path, metrics: list[str]) -> dict[str, float]:
    """Measure a run on its test examples."""
    sources, references = Corpus(run.config, run.vocabularies).texts("test")
    found = evaluate(run, sources, references, out, metrics=metrics)
    return {f"test_{one.name}": one.value for one in found.metrics}


if __name__ == "__main__":
    main(sys.argv[1:] or list(TASKS))
