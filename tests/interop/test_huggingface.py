"""Directories of Hugging Face: read, run, written, and refused where we do not have what they ask for."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from glassformer.errors import CheckpointError, GlassformerError
from glassformer.interop.convert import convert, read
from glassformer.run import Run, load
from tests.interop.foreign import CASES, SIZES, V, bert, drawn, llama, marian, results, saved


def own(run: Run, source: Tensor, target: Tensor) -> Tensor:
    kind = run.config.model.kind
    with torch.no_grad():
        return run.model(source, target) if kind == "encoder-decoder" else run.model(
            *((None, source) if kind == "decoder" else (source, None))
        )  # fmt: skip


def ids() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randint(3, V, (3, 9)), torch.randint(3, V, (3, 6))


@pytest.mark.parametrize("name", CASES)
def test_theirs_to_ours_and_back(name: str, tmp_path: Path) -> None:
    """The same logits here; written again, the same tensors there, and the same model when that is read."""
    theirs = drawn(name)
    run, left_out = read(saved(theirs, tmp_path / "theirs"))
    expected, found = results(theirs, *ids()), own(run, *ids())
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    convert(tmp_path / "theirs", tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "back", to="hf")
    before, after = (load_file(tmp_path / one / "model.safetensors") for one in ("theirs", "back"))
    pooler = {key for key in before if key.startswith("pooler.")}
    assert [one for one in left_out if "pooler" in one] == (
        ["the pooler, which the states of the tokens do not pass through"] if pooler else []
    )
    for key in after:
        assert torch.equal(after[key], before[key]), key
    assert {
        key for key in before.keys() - after.keys() if "position" not in key and key not in ("lm_head.weight",)
    } == pooler
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    assert torch.equal(results(again, *ids()), expected)
    back, _ = read(tmp_path / "back")
    assert back.config.model == run.config.model
    assert back.vocabularies == load(tmp_path / "run").vocabularies
    for a, b in zip(run.model.parameters(), back.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["llama, tied", "marian"])
def test_tied_stays_tied(name: str, tmp_path: Path) -> None:
    """Fault 31: one storage after loading, one tensor on disk, counted once."""
    theirs = drawn(name)
    convert(saved(theirs, tmp_path / "theirs"), tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.model.decoder is not None
    assert run.model.output is not None
    assert run.model.output.weight.data_ptr() == run.model.decoder.embedding.tokens.weight.data_ptr()
    assert "output.weight" not in load_file(tmp_path / "run" / "model.safetensors")
    n = sum(p.numel() for n, p in theirs.named_parameters() if "embed_positions" not in n)
    n += theirs.final_logits_bias.numel() if name == "marian" else 0
    assert sum(p.numel() for p in run.model.parameters()) == n


@pytest.mark.parametrize("name", ["marian", "marian, relu, not scaled"])
def test_the_first_step_of_a_translator(name: str, tmp_path: Path) -> None:
    """Fault 32: start token, scale, ladder of sinusoids, bias on the scores: the first scores are theirs."""
    theirs = drawn(name)
    run, _ = read(saved(theirs, tmp_path / "theirs"))
    prompt = run.writer().prompt("a b c d e")
    source, first = torch.tensor([prompt.source]), torch.tensor([list(prompt.read)])
    assert first.tolist() == [[theirs.config.decoder_start_token_id]]
    expected = results(theirs, source, first)
    assert (own(run, source, first) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_twenty_sentences_token_for_token(tmp_path: Path) -> None:
    """Fault 33: what is written out writes the same there, greedily."""
    theirs = drawn("marian")
    convert(saved(theirs, tmp_path / "theirs"), tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "back", to="hf")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    run = load(tmp_path / "run")
    writer = run.writer({"max_length": 12})
    torch.manual_seed(1)
    texts = [" ".join(run.tokenizer.tokens(torch.randint(3, V, (n,)).tolist())) for n in range(3, 23)]
    for text in texts:
        prompt = writer.prompt(text)
        (found,) = writer.write([prompt])[0]
        out = again.generate(torch.tensor([prompt.source]), max_new_tokens=12, num_beams=1, do_sample=False)[0].tolist()
        assert out[1 : 1 + len(found.ids)] == found.ids


def edited(directory: Path, **changes: Any) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (llama, {"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel; we read LlamaForCausalLM, Bert"),
        (llama, {"architectures": None}, "architecture unknown"),
        (llama, {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "stretches rotary positions"),
        (llama, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "stretches rotary positions"),
        (llama, {"attention_bias": True}, "mlp_bias"),
        (llama, {"rope_interleaved": True}, "rope_interleaved=True"),
        (llama, {"hidden_act": "relu2"}, "hidden_act='relu2', which we do not have; we have 'silu'"),
        (llama, {"sliding_window": 128}, "sliding_window=128, which we do not know"),
        (llama, {"hidden_size": "32"}, "hidden_size='32', where a whole number above 0 belongs"),
        (llama, {"num_hidden_layers": 3}, "has no tensor model.layers.2.self_attn.q_proj.weight"),
        (llama, {"num_hidden_layers": 1}, "holds model.layers.1.input_layernorm.weight and 8 more, for which our model"),
        (llama, {"intermediate_size": 64}, "model.layers.0.mlp.up_proj.weight is (48, 32) in"),
        (llama, {"num_attention_heads": 5, "head_dim": None}, "does not divide into n_heads=5"),
        (bert, {"position_embedding_type": "relative_key"}, "only 'absolute' is read"),
        (bert, {"is_decoder": True}, "is_decoder=True"),
        (marian, {"normalize_before": True}, "normalize_before=True"),
        (marian, {"decoder_start_token_id": 5}, "decoder_start_token_id=5"),
        (marian, {"encoder_ffn_dim": 64}, "unequal heads or networks"),
        (marian, {"tie_word_embeddings": False}, "in two ways"),
    ],
)  # fmt: skip
def test_refused_by_name(make: Any, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    directory = edited(saved(make(), tmp_path / "theirs"), **changes)
    with pytest.raises(GlassformerError) as caught:
        read(directory)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bert_of_long_ago(tmp_path: Path) -> None:
    """With its head for hidden tokens, and gamma and beta, as the first ones were saved."""
    torch.manual_seed(0)
    theirs = BertForMaskedLM(BertConfig(**{**SIZES, "max_position_embeddings": 40})).eval()
    path = saved(theirs, tmp_path / "theirs") / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(path).items()
    }
    save_file(old, path, {"format": "pt"})
    run, left_out = read(tmp_path / "theirs")
    assert left_out == ["the heads that predict hidden tokens and next sentences"]
    source, _ = ids()
    with torch.no_grad():
        expected = theirs.bert(source).last_hidden_state
        assert (run.model(source) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_positions_of_its_own(tmp_path: Path) -> None:
    directory = saved(marian(), tmp_path / "theirs")
    path = directory / "model.safetensors"
    tensors = load_file(path)
    tensors["model.encoder.embed_positions.weight"] = torch.randn(1024, 32)
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match="positions of its own where Marian has sines and cosines"):
        read(directory)


class Bomb:
    def __reduce__(self) -> Any:
        return (Path("exploded").touch, ())


@pytest.mark.parametrize("how", ["truncated", "pickle", "empty", "huge header", "NaN", "pytorch_model.bin"])
def test_files_that_lie(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and nothing runs."""
    monkeypatch.chdir(tmp_path)
    path = saved(llama(), tmp_path / "theirs") / "model.safetensors"
    match how:
        case "truncated":
            path.write_bytes(path.read_bytes()[:-100])
        case "pickle":
            path.write_bytes(pickle.dumps(Bomb()))
        case "empty":
            path.write_bytes(b"")
        case "huge header":
            path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
        case "NaN":
            tensors = load_file(path)
            tensors["model.norm.weight"][3] = torch.nan
            save_file(tensors, path)
        case _:
            path.unlink()
            path.with_name("pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError) as caught:
        convert(tmp_path / "theirs", tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("reversal", "MarianMTModel needs positions from 0, with all sines"),
        ("char-lm", "LlamaForCausalLM needs RMSNorm before each sublayer"),
        ("router", "BertModel needs"),
    ],
)
def test_no_equal_there(preset: str, reason: str, tmp_path: Path) -> None:
    from glassformer.config import preset as read_preset
    from glassformer.interop import huggingface
    from glassformer.text.vocabularies import Vocabularies
    from tests.interop.foreign import TOKENIZER

    config = read_preset(preset)
    with pytest.raises(CheckpointError) as caught:
        huggingface.write(config, {}, Vocabularies.one(TOKENIZER), tmp_path / "out")
    assert reason in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    saved(llama(), tmp_path / "theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is there and not empty"):
        convert(tmp_path / "theirs", tmp_path / "out")
    with pytest.raises(CheckpointError, match="is no model that we read"):
        read(tmp_path / "out")
    with pytest.raises(CheckpointError, match="there is nothing at"):
        read(tmp_path / "nowhere")


def test_half_precision(tmp_path: Path) -> None:
    """A run has the precision that its weights have on disk."""
    convert(saved(llama(), tmp_path / "theirs"), tmp_path / "run", precision="bfloat16")
    run = load(tmp_path / "run")
    assert {p.dtype for p in run.model.parameters()} == {torch.bfloat16}
    whole, _ = read(tmp_path / "theirs")
    expected = own(whole, *ids())
    assert (own(run, *ids()).float() - expected).abs().max() <= 0.05 * expected.abs().max()
    assert run.generate("a b c", {"max_length": 3})
