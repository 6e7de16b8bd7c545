"""Small files to learn from, and configurations that do it in a second."""

import random
from pathlib import Path

from glassformer.config import Config
from glassformer.config.files import parse

WORDS = ["red", "green", "blue", "grey", "pink", "gold", "black", "white", "brown", "teal"]
KINDS = {
    "encoder-decoder": "n_encoder_layers = 1\nn_decoder_layers = 1",
    "decoder": "n_decoder_layers = 2\ntying = 'target-output'",
    "encoder": "n_encoder_layers = 1\ntying = 'none'\n[model.classifier]",
}


def write_pairs(folder: Path, n: int = 120, *, seed: int = 0) -> None:
    """Write train.tsv and dev.tsv, whose targets are the words of their sources backwards."""
    draw = random.Random(seed)
    for name, size in (("train", n), ("dev", 20)):
        lines = []
        for _ in range(size):
            words = draw.choices(WORDS, k=draw.randint(1, 6))
            lines.append(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def write_labelled(folder: Path, n: int = 120) -> None:
    """Write train.csv and dev.csv: texts of colours, named by the colour that comes first; `red` is rare."""
    draw = random.Random(1)
    for name, size in (("train", n), ("dev", 20)):
        lines = ["text,team\n"]
        for i in range(size):
            first = "red" if i % 10 == 0 else draw.choice(["green", "blue"])
            lines.append(f"{first} {' '.join(draw.choices(WORDS[3:], k=draw.randint(1, 6)))},{first}\n")
        (folder / f"{name}.csv").write_text("".join(lines), encoding="utf-8")


def small(folder: Path, *overrides: str, kind: str = "encoder-decoder") -> Config:
    """Return a configuration for those files."""
    data = "train = ['train.tsv']\nvalidation = ['dev.tsv']"
    if kind == "encoder":
        data = "train = ['train.csv']\nvalidation = ['dev.csv']\nsource = 'text'\ntarget = 'team'"
    text = (
        f"[model]\nkind = '{kind}'\nd_model = 16\nd_ff = 32\nn_heads = 2\n{KINDS[kind]}\n"
        f"[data]\nfolder = '{folder}'\n{data}\n[text]\nkind = 'words'\n"
        "[train]\nsteps = 12\nbatch_size = 8\nevaluate_every = 5\nsnapshot_every = 4\naverage = 2\nmetric_examples = 10\n"
        "[train.schedule]\nkind = 'constant'\npeak = 0.003\nwarmup_steps = 2\n"
    )
    return parse(text, "small", overrides)
