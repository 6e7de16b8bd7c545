"""Train on a corpus of two gigabytes and see how much memory the process takes.

    python bench/large_corpus.py [GIGABYTES]

The text is made up: words of a vocabulary of 50 000 by Zipf's law, and one word in a hundred that occurs nowhere else.
The figures go into bench/results/large_corpus.json. The corpus and its token ids lie in the folder for temporary files.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "large_corpus.json"
LETTERS = np.array(list("eeeeaaarriinnoottslcudpmhgbfywkvxzjq"))
CONFIG = """
[model]
n_encoder_layers = 2
n_decoder_layers = 2
d_model = 64
d_ff = 256
n_heads = 4
[data]
train = ["large.tsv"]
validation = ["small.tsv"]
[text]
kind = "bpe"
size = 8000
[train]
steps = 30
batch_tokens = 4096
evaluate_every = 15
"""


def write(path: Path, n_bytes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    words = np.array(["".join(random.choice(LETTERS, random.integers(2, 10))) for _ in range(50_000)])
    shares = 1 / np.arange(2, 50_002)
    edges = np.cumsum(shares / shares.sum())
    size, rare = 0, 0
    with path.open("w", encoding="utf-8") as file:
        while size < n_bytes:
            drawn = words[np.minimum(np.searchsorted(edges, random.random(200_000)), 49_999)].tolist()
            for i in range(0, len(drawn), 100):
                rare += 1
                drawn[i] = f"{drawn[i]}{rare:x}{seed}"
            cuts = np.cumsum(random.integers(3, 18, 30_000))
            cuts = cuts[cuts < len(drawn)]
            lines = [" ".join(drawn[a:b]) for a, b in pairwise(cuts)]
            text = "".join(f"{a}\t{b}\n" for a, b in zip(lines[::2], lines[1::2], strict=False))
            file.write(text)
            size += len(text)


def train(folder: Path, run: str) -> dict[str, float]:
    """Train in a process of its own; return its largest memory and its time."""
    code = (
        "import json, resource, sys, time; from glassformer.cli.main import main; started = time.time()\n"
        f"sys.argv = ['glassformer', 'train', 'large.toml', '--run', {run!r}]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.time() - started]))"
    )
    environment = os.environ | {"GLASSFORMER_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    kilobytes, seconds = json.loads(done.stdout.splitlines()[-1])
    return {"largest_resident_gigabytes": round(kilobytes / 2**20, 3), "seconds": round(seconds, 1)}


def main(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        started = time.perf_counter()
        write(folder / "large.tsv", int(gigabytes * 1e9), 1)
        write(folder / "small.tsv", 1, 2)
        lines = (folder / "small.tsv").read_text().splitlines(keepends=True)
        (folder / "small.tsv").write_text("".join(lines[:200]))
        (folder / "large.toml").write_text(CONFIG)
        result = {
            "corpus_gigabytes": round((folder / "large.tsv").stat().st_size / 1e9, 3),
            "making_it_seconds": round(time.perf_counter() - started, 1),
            "first_training": train(folder, "first"),
            "second_training_from_the_cache": train(folder, "second"),
            "cache_gigabytes": round(sum(f.stat().st_size for f in folder.glob("cache/*/*")) / 1e9, 3),
        }
    print(json.dumps(result, indent=2))
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
