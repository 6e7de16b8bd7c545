"""Two architectures side by side: what the documents say of them, and reasons that fit."""

import json

import pytest

from glassformer.config import preset, preset_names
from glassformer.inspect.compare import PARTS, SAME, compare
from tests.conftest import Cli

TABLE = {  # the 2017 base model against SmolLM2-135M
    "shape": ("encoder + decoder, 6 + 6 layers", "decoder only, 30 layers"),
    "width d_model": ("512", "576"),
    "normalisation": (
        "LayerNorm after each residual addition, ε 1e-05", "RMSNorm before each sublayer, and a final one, ε 1e-05",
    ),
    "positions": ("sinusoids added to the embedding", "rotary, base 100,000, on queries and keys in every layer (halves)"),
    "attention heads": (
        "8, each with its own keys and values, d_k 64", "9 query heads on 3 of keys and values, d_k 64",
    ),
    "feed-forward": ("ReLU, 512 → 2048 → 512", "SiLU-gated, 576 → 1536 → 576"),
    "biases": ("all linear layers (the paper prints them in the feed-forward network only)", "none"),
    "embeddings": (
        "one matrix for source, target and output, × √d_model", "the output is the input's matrix, not scaled",
    ),
    "vocabulary": (
        "37,000, shared (byte pairs of both languages, about 37,000)", "49,152 (byte pairs of many kinds of text)",
    ),
    "context": ("no fixed limit, as sinusoids go on; learnt from sentences", "8,192 tokens"),
    "dropout": ("0.1", "0"),
    "parameters": ("63,082,496 (the paper: 65 million)", "134,515,008"),
    "training task": ("translation, learnt from sentence pairs", "the next token of raw text"),
}  # fmt: skip


def test_2017_and_2024() -> None:
    rows = compare(preset("paper-base"), preset("smollm2-135m"))
    assert {row.part: (row.first, row.second) for row in rows} == TABLE
    why = {row.part: row.why for row in rows}
    assert why["attention heads"].endswith("3 times smaller.")
    assert why["embeddings"].startswith("Tying saves 28.3 million parameters.")
    assert all(text.endswith(".") and text != SAME for text in why.values())


@pytest.mark.parametrize("name", preset_names())
def test_every_pair_of_presets(name: str) -> None:
    for other in preset_names():
        rows = compare(preset(name), preset(other))
        assert all((row.why == SAME) == (row.first == row.second) for row in rows)
        if name == other:
            assert {row.why for row in rows} == {SAME}
            assert len(rows) >= len(PARTS) - 3  # context, task and size may not be said


def test_reasons_go_with_the_direction() -> None:
    there, back = (
        {row.part: row.why for row in compare(preset(a), preset(b))}
        for a, b in (("paper-base", "smollm2-135m"), ("smollm2-135m", "paper-base"))
    )
    differing = [
        part for part in there if part not in ("parameters", "context", "biases", "width d_model", "vocabulary")
    ]
    assert all(there[part] != back[part] for part in differing if part != "feed-forward")
    assert "read it in both directions" in back["shape"]
    assert "larger cache" in back["attention heads"]


def test_what_one_field_changes() -> None:
    """No field of the architecture may differ while all parts are called the same."""
    plain = preset("paper-base")
    for change in (
        "norm.eps=1e-6", "norm.embedding=true", "norm.final=true", "positions.base=500.0", "positions.ladder=halves",
        "positions.first=1", "biases=ffn", "output_bias=true", "embedding.scale=false", "dropout.ffn=0.1", "d_ff=1024",
        "ffn.activation=gelu", "n_kv_heads=4", "n_heads=16", "n_encoder_layers=5", "tying=none",
    ):  # fmt: skip
        rows = compare(plain, preset("paper-base", [f"model.{change}"]))
        assert any(row.why != SAME for row in rows), change


def test_the_verb(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = here("compare", "paper-base", "smollm2-135m")
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "3 query heads share one of keys and values" in done.stdout
    parts = json.loads(here("compare", "paper-base", "paper-big", "--json").stdout)["parts"]
    assert {row["part"] for row in parts if row["why"] != SAME} == {
        "width d_model", "attention heads", "feed-forward", "embeddings", "parameters", "dropout",
    } - {"embeddings"}  # fmt: skip
    assert "did you mean" in here("compare", "paper-base", "paper-bigg").stderr
