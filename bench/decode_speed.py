"""Decoding speed beside Hugging Face's transformers (its Marian class), the same shape, in one run, in turn.

float32, random weights, 3 + 3 layers, d_model 256, 4 heads, d_ff 1024, 8 000 tokens; sources of 8 to 20 tokens,
exactly 15 tokens out, as the end token is forbidden. Run it alone: `python bench/decode_speed.py`.

A source's own time, what a batch of 32 takes by itself, and what many batches take are three different things:
- one: one sentence at a time;
- batch: 32 sentences in random order, as they come;
- file: 256 sentences in batches of 32, sorted by length on both sides; ours works on two batches at once.
"""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import tokenizers
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from glassformer.checkpoint import save_weights
from glassformer.config import Config, ModelConfig
from glassformer.config.files import dump
from glassformer.data.batch import pad
from glassformer.model.transformer import Transformer
from glassformer.run import Run, RunFiles, load
from glassformer.text.tokenizer import Tokenizer

VOCABULARY, WRITTEN = 8000, 15
RESULTS = Path(__file__).parent / "results" / "decode_speed.json"


def our_run(directory: Path) -> Run:
    """Make a run with random weights and open it, as a user would."""
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
    layers = {"n_encoder_layers": 3, "n_decoder_layers": 3}
    config = Config(model=ModelConfig(**sizes, **layers, d_model=256, d_ff=1024, n_heads=4))
    files = RunFiles(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files.config.write_text(dump(config), encoding="utf-8")
    tokens = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, VOCABULARY))]
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate(tokens)}))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    Tokenizer(words).save(files.tokenizer)
    torch.manual_seed(0)
    save_weights(Transformer(config), files.weights, {"weights": "random"})
    return load(directory)


def peer_model() -> MarianMTModel:
    logging.set_verbosity_error()
    shape = {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3}
    shape |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    shape |= {f"{side}_ffn_dim": 1024 for side in ("encoder", "decoder")}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    torch.manual_seed(0)
    return MarianMTModel(MarianConfig(vocab_size=VOCABULARY, **shape, **ids, forced_eos_token_id=None)).eval()


def ours(run: Run, sources: list[list[int]], beam_size: int) -> Callable[[], None]:
    settings = {"beam_size": beam_size, "forbidden": ["</s>"], "max_length": WRITTEN}
    writer = run.writer(settings, batch_size=32)
    prompts = [writer.prompt(" ".join(f"w{i}" for i in source)) for source in sources]

    def write() -> None:
        results = writer.write(prompts)
        assert all(len(row[0].ids) == WRITTEN for row in results)

    return write


def theirs(model: MarianMTModel, sources: list[list[int]], beam_size: int) -> Callable[[], None]:
    batches = [pad(sources[start : start + 32]) for start in range(0, len(sources), 32)]
    limits = {"min_new_tokens": WRITTEN, "max_new_tokens": WRITTEN}

    def write() -> None:
        with torch.inference_mode():
            for ids, is_real in batches:
                mask = torch.ones_like(ids) if is_real is None else is_real.long()
                out = model.generate(input_ids=ids, attention_mask=mask, num_beams=beam_size, do_sample=False, **limits)
                assert out.shape[1] == 1 + WRITTEN

    return write


def in_turn(functions: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Time the functions one after the other, again and again, so that a busy moment of the machine hits them all."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, own in zip(functions, times, strict=True):
            started = time.perf_counter()
            function()
            own.append(time.perf_counter() - started)
    return times


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=12)
    rounds = arguments.parse_args().rounds
    directory = Path(__file__).parents[1] / "runs" / "bench-decode"
    run, peer = our_run(directory), peer_model()
    draw = random.Random(0)
    sources = [[draw.randrange(3, VOCABULARY) for _ in range(draw.randint(8, 20))] for _ in range(256)]
    cases = [
        ("one, greedy", sources[:1], 1, 4 * rounds),
        ("one, beam 4", sources[:1], 4, 4 * rounds),
        ("batch, greedy", sources[:32], 1, 2 * rounds),
        ("batch, beam 4", sources[:32], 4, rounds),
        ("file, greedy", sorted(sources, key=len), 1, max(rounds // 2, 3)),
        ("file, beam 4", sorted(sources, key=len), 4, max(rounds // 3, 3)),
    ]
    rows = []
    for name, some, beam_size, n in cases:
        peer_times, our_times = in_turn([theirs(peer, some, beam_size), ours(run, some, beam_size)], n)
        ratios = [a / b for a, b in zip(peer_times, our_times, strict=True)]
        peer_time, our_time = statistics.median(peer_times), statistics.median(our_times)
        quarters = statistics.quantiles(ratios, n=4)
        rows.append({
            "case": name,
            "peer_sentences_a_second": len(some) / peer_time,
            "our_sentences_a_second": len(some) / our_time,
            "ratio": statistics.median(ratios),
            "middle_half": [quarters[0], quarters[2]],
            "pairs": n,
        })  # fmt: skip
        print(
            f"{name:14}  transformers {len(some) / peer_time:6.1f} a second, ours {len(some) / our_time:6.1f}: "
            f"{statistics.median(ratios):.2f} times ({quarters[0]:.2f} to {quarters[2]:.2f}), "
            f"time {statistics.median(b / a for a, b in zip(peer_times, our_times, strict=True)):.2f}",
            flush=True,
        )
    versions = {name: version(name) for name in ("torch", "transformers", "glassformer")}
    result = {"cases": rows, "threads": torch.get_num_threads(), "machine": platform.machine(), "versions": versions}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
