"""Train translators from scratch and write down how good they are.

    python bench/translation.py multi30k-en-de | multi30k-de-en | tatoeba-en-de [FIELD=VALUE ...] [--run DIR] [--test]

Each is the preset `translate-small` with the changes below, chosen on validation data alone (bench/study.py). The data
are read from the folder that GLASSFORMER_SHARED names (its data/; by default ../shared); the run stands in
runs/bench-NAME, and a training that was stopped goes on. It is measured on validation data; with --test the test set is
read, once, and the figures go into bench/results/translation.json. --processes 2 trains on two, each with one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from glassformer.config import Config, preset
from glassformer.config.files import dump
from glassformer.data.corpus import Corpus
from glassformer.evaluate import evaluate
from glassformer.run import Run, load

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "translation.json"
DATA = Path(os.environ.get("GLASSFORMER_SHARED", "../shared")).resolve() / "data"
PARTS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


# more words and less to learn by heart than in captions
FOR_TATOEBA = (
    "train.epochs=", "train.steps=22000", "train.evaluate_every=2000", "text.size=8000", "model.dropout.residual=0.1",
    "decode.alpha=0.6",
)  # fmt: skip


def multi30k(source: str, target: str, *changes: str) -> Config:
    files = [f"data.{part}={[f'{name}.{side}.gz' for side in (source, target)]}" for part, name in PARTS.items()]
    return preset("translate-small", [f"data.folder={DATA / 'multi30k'}", *files, *changes])


def tatoeba(*changes: str) -> Config:
    names = {"train": "train", "validation": "dev", "test": "test"}
    files = [f"data.{part}={[f'tatoeba.{name}.en-de.tsv.gz']}" for part, name in names.items()]
    return preset("translate-small", [f"data.folder={DATA}", *files, *FOR_TATOEBA, *changes])


TASKS = {
    "multi30k-en-de": lambda *changes: multi30k("en", "de", *changes),
    "multi30k-de-en": lambda *changes: multi30k("de", "en", *changes),
    "tatoeba-en-de": tatoeba,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--test", action="store_true")
    given = parser.parse_args()
    directory = given.run or ROOT / "runs" / f"bench-{given.name}"
    if not (directory / "model.safetensors").exists():
        train(TASKS[given.name](*given.changes), directory, given.processes)
    run = load(directory)
    found = measured(run, directory, "test" if given.test else "validation")
    print(json.dumps(found, indent=2, ensure_ascii=False))
    if given.test:
        results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        results[given.name] = found
        RESULT.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def train(config: Config, directory: Path, n_processes: int) -> None:
    """Train, or go on, and keep count of the minutes."""
    directory.parent.mkdir(exist_ok=True)
    file, spent = directory.with_suffix(".toml"), directory.with_suffix(".minutes")
    file.write_text(dump(config), encoding="utf-8")
    before, started = float(spent.read_text()) if spent.exists() else 0.0, time.perf_counter()
    call = ["-m", "glassformer", "train", str(file), "--run", str(directory), "--resume"]
    if n_processes > 1:
        call = ["-m", "torch.distributed.run", "--nproc-per-node", str(n_processes), "-m", "--", *call[1:]]
    process = subprocess.Popen([sys.executable, *call], env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None:
        time.sleep(1)
        spent.write_text(str(before + (time.perf_counter() - started) / 60))
    if process.returncode:
        sys.exit(process.returncode)


def measured(run: Run, directory: Path, part: str) -> dict[str, Any]:
    """Translate a part of the data, and return all that is to be known of the figures."""
    sources, references = Corpus(run.config, run.vocabularies).texts(part)
    out = directory / f"{part}.txt"
    found = evaluate(run, sources, references, out, metrics=["bleu", "chrf"])
    assert run.config.train is not None
    return {
        "seed": run.config.train.seed,
        "minutes": round(float(directory.with_suffix(".minutes").read_text()), 1),
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "weights": run.notes["weights"],
        "config": run.config.model_dump(mode="json", exclude_defaults=True, exclude={"data"}),
        "decode": found.decode,
        part: {
            one.name: {"value": one.value, "interval": [one.low, one.high], "signature": one.signature}
            for one in found.metrics
        },
        f"{part}_lower_cased": lower_cased(out.read_text(encoding="utf-8").splitlines(), references),
        "seconds_of_writing": round(found.seconds, 1),
    }


def lower_cased(written: list[str], references: list[list[str]]) -> dict[str, Any]:
    """BLEU as the literature on small data has it: lower-cased, on tokens."""
    most = max(map(len, references))
    streams = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    metric = sacrebleu.BLEU(lowercase=True)
    return {"value": metric.corpus_score(written, streams).score, "signature": str(metric.get_signature())}


if __name__ == "__main__":
    main()
