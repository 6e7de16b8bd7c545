"""CTranslate2's format: read as CTranslate2 does, written so that it writes what we write."""

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from glassformer.config.model import ModelConfig
from glassformer.config.run import Config
from glassformer.errors import CheckpointError
from glassformer.interop.convert import convert, read
from glassformer.interop.ctranslate2_write import refusal, write
from glassformer.model.transformer import Transformer
from glassformer.run import Run, save
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies
from tests.agreement.variants import CORE, VOCABULARY, build, config, drawn

SIZES: dict[str, Any] = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 3}
SOURCE, TARGET = Tokenizer.letters("abcdefghijk"), Tokenizer.letters("lmnopqrstuvwxyz")
CASES: dict[str, dict[str, Any]] = {
    "as the paper": {"tying": "all"},
    "two vocabularies": {"tying": "target-output"},
    "nothing tied, a bias": {"tying": "none", "output_bias": True},
    "pre-norm, gelu": {"tying": "target-output", "norm": {"placement": "pre"}, "ffn": {"activation": "gelu"}},
    "silu, halves, not scaled": {
        "tying": "all", "ffn": {"activation": "silu"}, "positions": {"ladder": "halves"}, "embedding": {"scale": False},
    },
    "tensor2tensor from 1": {"tying": "all", "positions": {"ladder": "tensor2tensor", "first": 1}},
}  # fmt: skip


def a_run(name: str, directory: Path) -> Run:
    torch.manual_seed(len(name))
    source = TARGET if CASES[name]["tying"] == "all" else SOURCE
    config = ModelConfig(**SIZES, **CASES[name], source_vocabulary=source.size, target_vocabulary=TARGET.size)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    run = Run(Config(model=config), model, Vocabularies(source, TARGET), {})
    save(run, directory)
    return run


def others(directory: Path) -> ctranslate2.Translator:
    return ctranslate2.Translator(
        str(directory), device="cpu", inter_threads=1, intra_threads=1, compute_type="float32"
    )


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    """Greedily the same tokens and scores; read again, the same numbers, bit for bit."""
    run = a_run(name, tmp_path / "run")
    before = [p.clone() for p in run.model.parameters()]
    assert (
        convert(tmp_path / "run", tmp_path / "out", to="ctranslate2")[-1] == "tried on 20 inputs: 20 come out the same"
    )
    translator, draw = others(tmp_path / "out"), random.Random(0)
    letters = run.vocabularies.source.tokens(range(3, run.vocabularies.source.size))
    for _ in range(20):
        words = draw.choices(letters, k=draw.randint(1, 9))
        (theirs,) = translator.translate_batch(
            [words], beam_size=1, return_scores=True, max_decoding_length=20, min_decoding_length=0
        )
        writer = run.writer({"beam_size": 1, "length_penalty": "power", "alpha": 1.0, "max_length": 20})
        ours = writer.write([writer.prompt(" ".join(words))])[0][0]
        assert [one for one in ours.tokens if one != "</s>"] == theirs.hypotheses[0]
        assert ours.score == pytest.approx(theirs.scores[0], abs=2e-3)
    back, _ = read(tmp_path / "out")
    assert back.config.model.final_norm == run.config.model.final_norm
    for (a, x), (b, y), z in zip(run.model.named_parameters(), back.model.named_parameters(), before, strict=True):
        assert a == b
        assert torch.equal(x, y)
        assert torch.equal(x, z)
    ids = torch.randint(3, 13, (2, 7))
    with torch.no_grad():
        assert torch.equal(back.model(ids, ids[:, :5]), run.model(ids, ids[:, :5]))


def test_int8(tmp_path: Path) -> None:
    run = a_run("as the paper", tmp_path / "run")
    tensors = {name: p.detach() for name, p in run.model.named_parameters()}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    write(run.config, tensors, run.vocabularies, tmp_path / "directly", "int8")
    assert all(torch.equal(tensors[name], before[name]) for name in tensors)  # the library rounds in place
    convert(tmp_path / "run", tmp_path / "out", to="ctranslate2", precision="int8")
    convert(tmp_path / "run", tmp_path / "whole", to="ctranslate2")
    n = sum(p.numel() for p in run.model.parameters() if p.ndim == 2)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("whole", "out")]
    assert sizes[0] - sizes[1] > 2.8 * n  # four bytes become one, and a scale for each row
    back, _ = read(tmp_path / "out")
    for (name, x), y in zip(run.model.named_parameters(), back.model.parameters(), strict=True):
        rounded = 0.51 * x.abs().amax(dim=-1, keepdim=True) / 127 if x.ndim == 2 else torch.zeros(1)
        assert ((x - y).abs() <= rounded).all(), name


@pytest.fixture(scope="module")
def shared() -> Path:
    found = (
        Path(os.environ.get("GLASSFORMER_SHARED", Path(__file__).parents[3] / "shared"))
        / "data"
        / "ct2-aren-transliteration"
    )
    if not found.is_dir():
        pytest.skip("the trained model that GLASSFORMER_SHARED names is not here")
    return found


def test_a_trained_one(shared: Path) -> None:
    """Its own hypotheses and scores, from an old file that leaves most settings out."""
    run, _ = read(shared)
    translator, draw = others(shared), random.Random(1)
    letters = (shared / "source_vocabulary.txt").read_text(encoding="utf-8").split("\n")[3:]
    words = [list("آتزمون"), *(draw.choices([one for one in letters if one], k=draw.randint(2, 9)) for _ in range(50))]
    for word in words:
        for beam in (1, 4):  # patience: it would stop at the first finished hypothesis that is best at that moment
            (theirs,) = translator.translate_batch([word], beam_size=beam, patience=4, return_scores=True)
            writer = run.writer({"beam_size": beam, "max_length": 256})
            ours = writer.write([writer.prompt(" ".join(word))])[0][0]
            assert ours.text == " ".join(theirs.hypotheses[0])
            assert ours.score == pytest.approx(theirs.scores[0], abs=1e-3)
    first = run.translate("آ ت ز م و ن")
    assert first == "a t z m o n"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "in the middle of something"),
        ("huge count", "in the middle of something"),
        ("huge tensor", "in the middle of something"),
        ("another version", "its version is 99; we read 2 to 6"),
        ("too long", "3 bytes are left at its end"),
        ("another kind", "is of kind"),
        ("no vocabulary", "has no source_vocabulary.json"),
        ("a vocabulary too many", "its vocabulary has 19 tokens, but its model knows 18"),
        ("unknown setting", "has prefix='x', which we do not know"),
        ("another norm", "has layer_norm_epsilon='small', where a number belongs"),
        ("another type", "is no CTranslate2 model, or damaged"),
        ("a list", "holds a list, where a table of settings belongs"),
        ("a number for a token", "has eos_token=3, where a text belongs"),
        ("no heads", "has encoder/num_heads=0, where a whole number above 0 belongs"),
        ("an activation past the last", "has encoder/activation=77, which we do not have"),
    ],
)
def test_files_that_lie(how: str, message: str, tmp_path: Path) -> None:
    a_run("as the paper", tmp_path / "run")
    out = tmp_path / "out"
    convert(tmp_path / "run", out, to="ctranslate2")
    path, config = out / "model.bin", json.loads((out / "config.json").read_text())
    raw = bytearray(path.read_bytes())
    kind = raw.index(b"TransformerSpec\0")
    count = kind + 16 + 4
    match how:
        case "cut":
            raw = raw[: len(raw) // 2]
        case "huge count":
            raw[count : count + 4] = struct.pack("<I", 2**32 - 1)
        case "huge tensor":
            name = count + 4
            place = (
                name
                + 2
                + struct.unpack("<H", raw[name : name + 2])[0]
                + 1
                + 4 * raw[name + 2 + struct.unpack("<H", raw[name : name + 2])[0]]
                + 1
            )
            raw[place : place + 4] = struct.pack("<I", 2**31)
        case "another version":
            raw[:4] = struct.pack("<I", 99)
        case "too long":
            raw += b"abc"
        case "another kind":
            raw[kind : kind + 15] = b"WhisperSpecXXXX"
        case "no vocabulary":
            (out / "shared_vocabulary.json").unlink()
        case "a vocabulary too many":
            tokens = json.loads((out / "shared_vocabulary.json").read_text())
            (out / "shared_vocabulary.json").write_text(json.dumps([*tokens, "more"]))
        case "another type":
            place = count + 4
            length = struct.unpack("<H", raw[place : place + 2])[0]
            raw[place + 2 + length + 1 + 4 * raw[place + 2 + length]] = 9
        case "no heads" | "an activation past the last":
            name, number, kind = (b"num_heads", 0, "<h") if how == "no heads" else (b"activation", 77, "<b")
            place = raw.index(b"encoder/" + name + b"\0") + 8 + len(name) + 1 + 1 + 1 + 4  # no axis, its type, its size
            raw[place : place + struct.calcsize(kind)] = struct.pack(kind, number)
        case "a list":
            config = [1]
        case "a number for a token":
            config["eos_token"] = 3
        case "unknown setting":
            config["prefix"] = "x"
        case _:
            config["layer_norm_epsilon"] = "small"
    path.write_bytes(raw)
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as caught:
        read(out)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def variants() -> list[ModelConfig]:
    """Return all architectures of the agreement tests that CTranslate2 has an equal of."""
    found = [config(core, other) for core in CORE for other in drawn(*core)]
    return [one for one in found if refusal(one) is None]


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
@torch.inference_mode()
def test_architectures(kind: str, tmp_path: Path) -> None:
    """The log-probability of each token of a text is ours; read again, the same numbers, bit for bit."""
    chosen = [one for one in variants() if one.kind == kind]
    assert len(chosen) > 50
    vocabularies = Vocabularies.one(Tokenizer.letters("abcdefghijklmnopqrst"))
    tokenizer = vocabularies.target
    assert tokenizer.size == VOCABULARY
    for i, model_config in enumerate(chosen):
        model, out = build(model_config, i), tmp_path / str(i)
        write(Config(model=model_config), dict(model.named_parameters()), vocabularies, out, "float32")
        ids = torch.randint(3, VOCABULARY, (9,), generator=torch.Generator().manual_seed(i)).tolist()
        names = tokenizer.tokens(ids)
        if kind == "decoder":
            generator = ctranslate2.Generator(str(out), intra_threads=1)
            (found,) = generator.score_batch([names])
            logits, expected = model.decode(torch.tensor([ids[:-1]])), ids[1:]
        else:
            (found,) = others(out).score_batch([names], [names])
            start, end = tokenizer.start_id or 0, tokenizer.end_id
            logits, expected = model(torch.tensor([ids]), torch.tensor([[start, *ids]])), [*ids, end]
        ours = logits[0].log_softmax(dim=-1).gather(1, torch.tensor(expected)[:, None])[:, 0].tolist()
        assert found.log_probs == pytest.approx(ours, abs=2e-4), model_config
        back = read(out)[0].model
        first = model_config.positions.first if model_config.positions.kind == "learned" else 0
        for (name, x), (other, y) in zip(model.named_parameters(), back.named_parameters(), strict=True):
            assert name == other
            assert torch.equal(x[first:] if ".position_table." in name else x, y)  # rows that nobody reads are left out
        again = (
            back.decode(torch.tensor([ids[:-1]]))
            if kind == "decoder"
            else back(torch.tensor([ids]), torch.tensor([[start, *ids]]))
        )
        torch.testing.assert_close(again, logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": {"final": True}}, "no last norm with post-norm"),
        ({"positions": {"kind": "none"}}, "positions"),
        ({"kind": "encoder", "target_vocabulary": None, "n_decoder_layers": None, "tying": "none"}, "a decoder"),
    ],
)
def test_no_equal_there(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    values = {**SIZES, "source_vocabulary": TARGET.size, "target_vocabulary": TARGET.size, **changes}
    model = Transformer(ModelConfig(**values))
    save(Run(Config(model=model.config), model, Vocabularies.one(TARGET), {}), tmp_path / "run")
    with pytest.raises(CheckpointError, match="CTranslate2 has no equal of this model: it needs") as caught:
        convert(tmp_path / "run", tmp_path / "out", to="ctranslate2")
    assert reason in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
