"""What one change brings: `translate-small` on Multi30k, English to German, for some minutes, judged on validation.

    python bench/study.py NAME [FIELD=VALUE ...] [--minutes 12]

Two seeds train at the same time, each with one thread, for as many steps as fit into the minutes. The figures, BLEU
with beam 4 among them, are added to bench/results/study.json under the name. The test set is not read.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from translation import multi30k

from glassformer.data.corpus import Corpus
from glassformer.evaluate import evaluate
from glassformer.learn.events import Event, Stepped
from glassformer.learn.trainer import Trainer

RESULT = Path(__file__).parent / "results" / "study.json"
TRIED = 60  # steps, to see how long one takes


class Enough(Exception):  # noqa: N818  no error
    """The speed is known."""


def one(changes: list[str], minutes: float) -> dict[str, Any]:
    """Train once; return the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        n_steps = steps_in(changes, minutes, Path(folder) / "tried")
        looks = max(1, n_steps // 8)
        own = [
            "train.epochs=", f"train.steps={n_steps}", f"train.evaluate_every={looks}",
            f"train.snapshot_every={max(1, n_steps // 40)}", "train.metric=loss",
        ]  # fmt: skip
        started = time.perf_counter()
        run = Trainer(multi30k("en", "de", *changes, *own), Path(folder) / "run", lambda _: None).train()
        spent = (time.perf_counter() - started) / 60
        corpus = Corpus(run.config, run.vocabularies)
        sources, references = corpus.texts("validation")
        found = evaluate(run, sources, references, Path(folder) / "out.txt", metrics=["bleu", "chrf"])
    loss = found.perplexity
    values = {metric.name: metric.value for metric in found.metrics}
    n = sum(p.numel() for p in run.model.parameters())
    return {**values, "perplexity": loss, "steps": n_steps, "minutes": round(spent, 1), "parameters": n}


def steps_in(changes: list[str], minutes: float, directory: Path) -> int:
    """Return how many steps fit into so many minutes, looks included."""
    seconds: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Stepped):
            seconds.append(event.seconds)
            if len(seconds) == TRIED:
                raise Enough

    own = ["train.epochs=", "train.steps=1000", "train.evaluate_every=1000"]
    with contextlib.suppress(Enough):
        Trainer(multi30k("en", "de", *changes, *own), directory, on_event).train()
    return int(0.95 * minutes * 60 * (TRIED - 10) / (seconds[-1] - seconds[9]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.seed is not None:
        print(json.dumps(one([*given.changes, f"train.seed={given.seed}"], given.minutes)))
        return
    call = [sys.executable, __file__, given.name, *given.changes, "--minutes", str(given.minutes)]
    both = [subprocess.Popen([*call, "--seed", str(seed)], stdout=subprocess.PIPE, text=True) for seed in (0, 1)]
    seeds = [json.loads(process.communicate()[0].splitlines()[-1]) for process in both]
    mean = {key: statistics.mean(seed[key] for seed in seeds) for key in ("bleu", "chrf", "perplexity")}
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results[given.name] = {"changes": given.changes, "asked_minutes": given.minutes, **mean, "seeds": seeds}
    RESULT.write_text(json.dumps(results, indent=2) + "\n")
    print(given.name, {key: round(value, 2) for key, value in mean.items()}, seeds, flush=True)


if __name__ == "__main__":
    main()
