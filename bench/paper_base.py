"""The paper's base model, as its preset has it, for 20 updates on Tatoeba: does it learn, and what does a step take?

    python bench/paper_base.py

Run it alone; it takes some 20 minutes on two cores. The figures go into bench/results/paper_base.json.
"""

import itertools
import json
import resource
import statistics
import tempfile
from pathlib import Path

import torch
from translation import DATA

from glassformer.config import preset
from glassformer.inspect.count import count
from glassformer.learn.events import Event, Stepped
from glassformer.learn.trainer import Trainer

RESULT = Path(__file__).parent / "results" / "paper_base.json"
STEPS = 20


def main() -> None:
    files = [f"data.folder={DATA}", "data.train=['tatoeba.train.en-de.tsv.gz']", "data.validation=[]", "data.test=[]"]
    config = preset("paper-base", [*files, f"train.steps={STEPS}"])
    steps: list[Stepped] = []

    def heard(event: Event) -> None:
        if isinstance(event, Stepped):
            steps.append(event)
            print(
                f"step {event.step}: loss {event.loss:.3f}, {event.n_tokens} tokens, {event.seconds:.0f} s", flush=True
            )

    with tempfile.TemporaryDirectory() as place:
        Trainer(config, Path(place) / "run", heard).train()
    losses = [step.loss for step in steps]
    spans = [b.seconds - a.seconds for a, b in itertools.pairwise(steps)]
    result = {
        "parameters": count(config).total,
        "losses": losses,
        "mean_of_the_first_five": statistics.mean(losses[:5]),
        "mean_of_the_last_five": statistics.mean(losses[-5:]),
        "seconds_a_step": statistics.median(spans),
        "tokens_a_step": statistics.mean(step.n_tokens for step in steps),  # real ones, of both sides
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "losses"}, indent=2))


if __name__ == "__main__":
    main()
