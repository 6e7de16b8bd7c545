"""Training speed of `translate-small` beside a plain loop: the same model and optimiser on Multi30k, in turn.

    python bench/train_speed.py

The plain loop takes random batches of a fixed number of rows, in float32, as tutorials do: each batch is as wide as its
longest sentence. Ours takes like lengths together, in bfloat16. Both have the same number of padded tokens a batch, and
what is counted is real source and target tokens a second. First with one thread, as one trains two models on two
cores, then with all, each in a process of its own. Run it alone; the figures go into bench/results/train_speed.json.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from translation import multi30k

from glassformer.data.batch import IGNORED, Batch
from glassformer.data.corpus import Corpus
from glassformer.data.feed import Feed
from glassformer.learn.learner import Learner
from glassformer.learn.loss import Objective
from glassformer.model.transformer import Transformer

RESULT = Path(__file__).parent / "results" / "train_speed.json"
STEPS, ROUNDS = 30, 5


def padded(batch: Batch) -> int:
    assert batch.source is not None
    assert batch.target is not None
    return batch.source.numel() + batch.target.numel()


class Plain:
    """The loop of a tutorial."""

    def __init__(self, model: Transformer, examples: object, n_rows: int) -> None:
        self.model, self._examples, self._n_rows = model, examples, n_rows
        self._adam = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
        self._random = np.random.default_rng(0)

    def draw(self) -> Batch:
        rows = self._random.integers(len(self._examples), size=self._n_rows)
        return self._examples.batch(rows)

    def step(self) -> tuple[int, int]:
        """Return the real and the padded tokens of the batch."""
        batch = self.draw()
        logits = self.model(batch.source, batch.target, source_is_real=batch.source_is_real)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=0.1)
        self._adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._adam.step()
        return batch.n_tokens, padded(batch)


class Ours:
    """What the trainer does at each step."""

    def __init__(self, learner: Learner, feed: Feed) -> None:
        self._learner, self._steps = learner, self._endless(feed)

    @staticmethod
    def _endless(feed: Feed) -> Iterator[list[Batch]]:
        epoch = 0
        while True:
            epoch += 1
            yield from feed.steps(epoch)

    def step(self) -> tuple[int, int]:
        batches = next(self._steps)
        self._learner.step(batches, 1e-3)
        return sum(batch.n_tokens for batch in batches), sum(map(padded, batches))


def main() -> None:
    result: dict[str, object] = {"torch": torch.__version__}
    for n_threads in (1, torch.get_num_threads()):
        environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads)}
        call = [sys.executable, __file__, "one"]
        lines = subprocess.run(call, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        result[f"{n_threads} threads"] = found = json.loads(lines[-1])
        print(f"{n_threads} threads: {found['median_ratio']:.2f}, {found['lowest']:.2f} to {found['highest']:.2f}")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


def one() -> dict[str, object]:
    """Measure with the threads that this process has."""
    corpus = Corpus(multi30k("en", "de"))
    config = corpus.config
    assert config.train is not None
    torch.manual_seed(0)
    feed, examples = corpus.feed(config.train), corpus.examples("train")
    ours = Ours(Learner(Transformer(config).train(), config.train, Objective(config.train.label_smoothing)), feed)
    area = statistics.mean(ours.step()[1] for _ in range(20))
    width = statistics.mean(padded(Plain(Transformer(config), examples, 64).draw()) for _ in range(20)) / 64
    plain = Plain(Transformer(config).train(), examples, round(area / width))
    return {"rows_of_the_plain_loop": round(area / width), **measured(plain, ours)}


def measured(plain: Plain, ours: Ours) -> dict[str, object]:
    """Let both take turns; return each round's speeds and their ratio."""
    rounds = []
    for number in range(ROUNDS + 1):
        found = {}
        for name, loop in (("plain", plain), ("ours", ours)):
            started, real, wide = time.perf_counter(), 0, 0
            for _ in range(STEPS):
                a, b = loop.step()
                real, wide = real + a, wide + b
            seconds = time.perf_counter() - started
            found[name] = {
                "tokens_a_second": real / seconds,
                "padded_tokens_a_batch": wide / STEPS,
                "real": real / wide,
            }
        if number:  # the first round warms up
            rounds.append({**found, "ratio": found["ours"]["tokens_a_second"] / found["plain"]["tokens_a_second"]})
    ratios = [one["ratio"] for one in rounds]
    return {
        "median_ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "rounds": rounds,
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["one"]:
        print(json.dumps(one()))
    else:
        main()
