"""Train translators from scratch and write down how good they are.

    python bench/translation.py multi30k-en-de | multi30k-de-en | tatoeba-en-de

Each is the preset `translate-small` with the changes below, chosen on validation data alone (bench/study.py). The
data are read from the folder that GLASSFORMER_SHARED names (its data/; by default ../shared), the run stands in
runs/bench-NAME, and a training that was stopped goes on. The test set is read once, at the end.
The figures go into bench/results/translation.json.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from glassformer.config import Config, preset
from glassformer.data.corpus import Corpus
from glassformer.evaluate import evaluate
from glassformer.learn.events import Averaged, Evaluated, Event
from glassformer.learn.trainer import Trainer
from glassformer.run import load

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "translation.json"
DATA = Path(os.environ.get("GLASSFORMER_SHARED", "../shared")) / "data"
PARTS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


def multi30k(source: str, target: str, *changes: str) -> Config:
    files = [f"data.{part}={[f'{name}.{side}.gz' for side in (source, target)]}" for part, name in PARTS.items()]
    return preset("translate-small", [f"data.folder={DATA / 'multi30k'}", *files, *changes])


def tatoeba(*changes: str) -> Config:
    names = {"train": "train", "validation": "dev", "test": "test"}
    files = [f"data.{part}={[f'tatoeba.{name}.en-de.tsv.gz']}" for part, name in names.items()]
    return preset("translate-small", [f"data.folder={DATA}", *files, *changes])


TASKS = {
    "multi30k-en-de": lambda: multi30k("en", "de"),
    "multi30k-de-en": lambda: multi30k("de", "en"),
    "tatoeba-en-de": lambda: tatoeba(),
}


def main(name: str) -> None:
    config, directory = TASKS[name](), ROOT / "runs" / f"bench-{name}"
    spent = directory.with_name(f"{directory.name}.minutes")  # of earlier sittings of this training
    before = float(spent.read_text()) if spent.exists() else 0.0
    started, events = time.perf_counter(), list[Event]()

    def on_event(event: Event) -> None:
        if isinstance(event, (Evaluated, Averaged)):
            events.append(event)
            spent.write_text(str(before + (time.perf_counter() - started) / 60))
            print(event, flush=True)

    if not (directory / "model.safetensors").exists():
        Trainer(config, directory, on_event, resume=True).train()
    run = load(directory)
    sources, references = Corpus(run.config, run.vocabularies).texts("test")
    out = directory / "test.txt"
    found = evaluate(run, sources, references, out, metrics=["bleu", "chrf"])
    assert run.config.train is not None
    result: dict[str, Any] = {
        "seed": run.config.train.seed,
        "minutes": round(float(spent.read_text()), 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "weights": run.notes["weights"],
        "decode": found.decode,
        "test": {
            one.name: {"value": one.value, "interval": [one.low, one.high], "signature": one.signature}
            for one in found.metrics
        },
        "test_lower_cased": lower_cased(out.read_text(encoding="utf-8").splitlines(), references),
        "seconds_of_writing": round(found.seconds, 1),
    }
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results[name] = result
    RESULT.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2))


def lower_cased(written: list[str], references: list[list[str]]) -> dict[str, Any]:
    """BLEU as the literature on small data has it: lower-cased, on tokens."""
    most = max(map(len, references))
    streams = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    metric = sacrebleu.BLEU(lowercase=True)
    return {"value": metric.corpus_score(written, streams).score, "signature": str(metric.get_signature())}


if __name__ == "__main__":
    main(sys.argv[1])
