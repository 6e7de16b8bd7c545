"""What one change brings: `translate-small` on Multi30k, English to German, for some minutes, judged on validation.

    python bench/study.py [--minutes 12]

For each entry below two seeds train at the same time, each with one thread, for as many steps as fit into the minutes.
First it is measured how many these are, for all entries, with nothing else running; then they are trained, one by one,
and the figures, BLEU with beam 4 among them, go into bench/results/study.json. What stands there is not done again.
The test set is not read.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from translation import multi30k

from glassformer.checkpoint import fill, read_weights
from glassformer.data.corpus import Corpus
from glassformer.evaluate import evaluate
from glassformer.learn.events import Event, Stepped
from glassformer.learn.trainer import Trainer
from glassformer.run import Run, RunFiles

RESULT = Path(__file__).parent / "results" / "study.json"
TRIED = 60  # steps, to see how long one takes
SHORT = ("train.schedule.warmup_steps=300", "model.dropout.residual=0.1")  # a training of 12 minutes does not overfit
ENTRIES = {
    "the preset": (),
    "no smoothing": ("train.label_smoothing=0.0",),
    "moving average": ("train.ema=0.998",),
    "6 + 6 layers": ("model.n_encoder_layers=6", "model.n_decoder_layers=6"),
    "10000 byte pairs": ("text.size=10000",),
    "inverse square root": ("train.schedule.kind=inverse-sqrt",),
    "4000 byte pairs": ("text.size=4000",),
    "3 + 3 layers": ("model.n_encoder_layers=3", "model.n_decoder_layers=3"),
}


class Enough(Exception):  # noqa: N818  no error
    """The speed is known."""


def steps_in(changes: list[str], minutes: float) -> int:
    """Return how many steps fit into so many minutes, looks included."""
    seconds: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Stepped):
            seconds.append(event.seconds)
            if len(seconds) == TRIED:
                raise Enough

    own = ["train.epochs=", "train.steps=1000", "train.evaluate_every=1000"]
    with contextlib.suppress(Enough), tempfile.TemporaryDirectory() as folder:
        Trainer(multi30k("en", "de", *changes, *own), Path(folder) / "run", on_event).train()
    return int(0.95 * minutes * 60 * (TRIED - 10) / (seconds[-1] - seconds[9]))


def one(changes: list[str], n_steps: int) -> dict[str, Any]:
    """Train once; return the figures."""
    own = [
        "train.epochs=", f"train.steps={n_steps}", f"train.evaluate_every={n_steps // 8}",
        f"train.snapshot_every={n_steps // 40}", "train.metric=loss",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = Trainer(multi30k("en", "de", *changes, *own), Path(folder) / "run", lambda _: None).train()
        spent = (time.perf_counter() - started) / 60
        found = measured(run)
        files = RunFiles(Path(folder) / "run")
        fill(run.model, read_weights(files.snapshot(files.snapshot_steps()[-1]))[0])
        found["bleu_of_the_last_snapshot"] = measured(run)["bleu"]
    n = sum(p.numel() for p in run.model.parameters())
    return {**found, "steps": n_steps, "minutes": round(spent, 1), "parameters": n}


def measured(run: Run) -> dict[str, Any]:
    """Return the figures on validation."""
    sources, references = Corpus(run.config, run.vocabularies).texts("validation")
    with tempfile.TemporaryDirectory() as folder:
        found = evaluate(run, sources, references, Path(folder) / "out.txt", metrics=["bleu", "chrf"])
    return {**{metric.name: metric.value for metric in found.metrics}, "perplexity": found.perplexity}


def both_seeds(what: str, changes: tuple[str, ...], number: float) -> list[Any]:
    """Do one thing for two seeds at the same time, in two processes of one thread each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    calls = [[sys.executable, __file__, what, str(number), *SHORT, *changes, f"train.seed={seed}"] for seed in (0, 1)]
    running = [subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) for call in calls]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]


def main() -> None:
    if sys.argv[1:2] == ["steps-in"]:
        print(json.dumps(steps_in(sys.argv[3:], float(sys.argv[2]))))
        return
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(sys.argv[3:], int(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=12)
    minutes = parser.parse_args().minutes
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    left = {name: changes for name, changes in ENTRIES.items() if name not in results}
    steps = {name: min(both_seeds("steps-in", changes, minutes)) for name, changes in left.items()}
    print(steps, flush=True)
    for name, changes in left.items():
        seeds = both_seeds("one", changes, steps[name])
        mean = {key: statistics.mean(seed[key] for seed in seeds) for key in ("bleu", "chrf", "perplexity")}
        mean["last"] = statistics.mean(seed["bleu_of_the_last_snapshot"] for seed in seeds)
        results[name] = {"changes": [*SHORT, *changes], "asked_minutes": minutes, **mean, "seeds": seeds}
        RESULT.write_text(json.dumps(results, indent=2) + "\n")
        print(name, {key: round(value, 2) for key, value in mean.items()}, flush=True)


if __name__ == "__main__":
    main()
