"""Does a token cost more when many stand before it? Rotary decoder-only model, 4 layers, d_model 256, one row.

The attention itself has to: it reads every key. All else should not: no copy of the cache, no table made anew. So the
profiler's time of 40 tokens from position 200 on is compared with that from 2 000 on, without the attention kernels.
Run it alone: `python bench/long_context.py`.
"""

import json
import statistics
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from glassformer.config import ModelConfig
from glassformer.decode.greedy import steps
from glassformer.decode.hypothesis import Prompt
from glassformer.decode.rules import Rules
from glassformer.decode.state import begin
from glassformer.model.transformer import Transformer

PLACES, TOKENS, ROUNDS = (200, 2000), 40, 7
RESULTS = Path(__file__).parent / "results" / "long_context.json"


def time_of_a_token(model: Transformer, position: int) -> tuple[float, float]:
    """Return milliseconds a token from a position on: all but the attention kernels, and these."""
    prompt = Prompt(None, [5] * (position - 5), TOKENS + 10)
    rules = Rules(2, forbidden=[2])
    writing = steps(begin([model], [prompt], rules), [prompt], rules)
    for _ in range(5):
        next(writing)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(TOKENS):
            next(writing)
    rest = attention = 0.0
    for event in profiler.key_averages():
        if "scaled_dot_product" in event.key:
            attention += event.self_cpu_time_total
        else:
            rest += event.self_cpu_time_total
    return rest / TOKENS / 1000, attention / TOKENS / 1000


def main() -> None:
    torch.manual_seed(0)
    sizes = {"target_vocabulary": 1000, "n_decoder_layers": 4, "d_model": 256, "d_ff": 1024, "n_heads": 4}
    positions = {"kind": "rotary"}
    config = ModelConfig.model_validate({"kind": "decoder", "tying": "target-output", "positions": positions, **sizes})
    model = Transformer(config).eval()
    times: dict[int, list[tuple[float, float]]] = {place: [] for place in PLACES}
    for _ in range(ROUNDS):  # in turn, so that a busy moment of the machine hits both
        for place in PLACES:
            times[place].append(time_of_a_token(model, place))
    rest = {place: statistics.median(row[0] for row in times[place]) for place in PLACES}
    attention = {place: statistics.median(row[1] for row in times[place]) for place in PLACES}
    ratio = statistics.median(late[0] / early[0] for early, late in zip(*times.values(), strict=True))
    for place in PLACES:
        print(f"from {place:5}: {rest[place]:.3f} ms a token and {attention[place]:.3f} ms of attention kernels")
    print(f"ratio without the attention kernels: {ratio:.2f}")
    result = {"rest_ms": rest, "attention_ms": attention, "ratio": ratio, "threads": torch.get_num_threads()}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
