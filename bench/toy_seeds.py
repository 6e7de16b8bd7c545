"""Train the toy run with several seeds and write down what came out.

    python bench/toy_seeds.py [SEED ...]

The figures go into bench/results/toy_seeds.json. Weights are averaged as the preset says, fixed before any test.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from glassformer.config import preset
from glassformer.data.tasks import Reversal
from glassformer.learn.events import Averaged, Evaluated, Event
from glassformer.learn.trainer import Trainer
from glassformer.run import Run

RESULT = Path(__file__).parent / "results" / "toy_seeds.json"
FRESH = np.random.default_rng(20170612)  # neither a training stream nor the test set


def main(seeds: list[int]) -> None:
    random_state = FRESH.bit_generator.state
    results = []
    for seed in seeds:
        FRESH.bit_generator.state = random_state
        events: list[Event] = []
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            run = Trainer(preset("reversal", [f"train.seed={seed}"]), Path(directory) / "run", events.append).train()
        minutes = (time.perf_counter() - started) / 60
        result = {"seed": seed, "minutes": round(minutes, 2), **training(events), **fresh(run)}
        if seed == 0:
            result["evidence"] = evidence(run)
        print(json.dumps(result), flush=True)
        results.append(result)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"preset": "reversal", "torch": torch.__version__, "runs": results}, indent=2) + "\n")


def training(events: list[Event]) -> dict[str, object]:
    """What the trainer itself reported."""
    evaluations = {event.step: event for event in events if isinstance(event, Evaluated)}
    averaged = next(event for event in events if isinstance(event, Averaged))
    last = evaluations[max(evaluations)]
    return {
        "loss_step_1": round(evaluations[1].loss, 3),
        "smoothed_loss_last_100_steps": round(last.loss, 4),
        "exact_match": {step: evaluations[step].metric for step in (500, 1000, 2000, 3000)},
        "test_loss": {step: round(evaluations[step].validation_loss, 3) for step in (100, 200, 500, 3000)},
        "averaged_steps": averaged.steps,
        "averaged_test_loss": round(averaged.validation_loss, 4),
        "averaged_exact_match": averaged.metric,
    }


def fresh(run: Run) -> dict[str, object]:
    """The averaged weights on 4 000 fresh sequences, and where the decoder looks on 100 fresh words."""
    task = Reversal(run.config.data)
    batch = task.examples(4000, FRESH)
    words = [run.tokenizer.decode(row[: int(row.count_nonzero())].tolist()) for row in batch.source]
    right = sum(
        written == " ".join(reversed(word.split())) for word, written in zip(words, run.translate(words), strict=True)
    )
    looks = mirrored_weight(run, words[:100])
    return {"fresh_exact_match": right / len(words), "mirrored_weight_by_decoder_layer": looks}


def mirrored_weight(run: Run, words: list[str]) -> list[float]:
    """Mean cross-attention weight, over heads, words and places, on the letter that is to be written."""
    by_layer: list[list[float]] = [[] for _ in range(run.config.model.n_decoder_layers or 0)]
    for word in words:
        seen = run.trace(word, " ".join(reversed(word.split())), only="decoder.layers.*.cross_attention.weights")
        for layer, weights in enumerate(seen.values()):
            mean = weights.select(B=0).mean("H").values  # (T, S), T = S + 1
            by_layer[layer] += mean[:-1].flip(1).diagonal().tolist()
    return [round(float(np.mean(weights)), 3) for weights in by_layer]


def evidence(run: Run) -> dict[str, object]:
    """The ranges of the 2017 page's example, `c a b e d`."""
    seen = run.trace("c a b e d")
    encoder = seen["encoder.layers.0.self_attention.weights"].select(B=0).values  # (H, T, S)
    flattest = min(encoder, key=lambda head: float(head.max() - head.min()))
    cross = [seen[f"decoder.layers.{i}.cross_attention.weights"].select(B=0).mean("H").values for i in (0, 1)]
    hidden = seen["encoder.layers.0.ffn.hidden"].select(B=0).values
    written = run.steps("c a b e d", top=4)
    return {
        "encoder_layer_1_flattest_head_weights": [
            round(float(flattest.min()), 3),
            round(float(flattest.max()), 3),
        ],
        "cross_attention_largest_weight_of_each_row": [
            [round(value, 3) for value in layer.max(dim=-1).values.tolist()] for layer in cross
        ],
        "hidden_numbers_at_zero": [round(float((row == 0).float().mean()), 3) for row in hidden],
        "chosen_probabilities": [round(step.chosen.probability, 3) for step in written],
        "largest_runner_up": round(max(step.candidates[1].probability for step in written), 4),
    }


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [0, 1, 2, 3, 4])
