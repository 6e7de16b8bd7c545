"""GGUF files: the weights of a Llama, rows permuted and numbers rounded, with a vocabulary inside."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from glassformer.errors import CheckpointError, DataError, DecodingError, GlassformerError
from glassformer.interop.convert import convert, read
from glassformer.run import load
from glassformer.text.chat import chat_ids
from tests.interop.foreign import llama

LETTERS = sorted(set("abcdefghij Ġ0123456789?!"))
NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "ab", "Ġa", "ĠĠ"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{{ message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>ab' }}{% endif %}"
)
THEIRS = {  # what llama.cpp calls what Hugging Face calls
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def model(**changes: Any) -> Any:
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": len(NAMES), "num_key_value_heads": 2}
    return llama(**{**sizes, "rms_norm_eps": 1e-5, **changes}).eval()


def name_of(theirs: str) -> str:
    if theirs.startswith("model.layers."):
        _, _, layer, *rest = theirs.removesuffix(".weight").split(".")
        return f"blk.{layer}.{THEIRS['.'.join(rest)]}.weight"
    return {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }[theirs]


def permuted(tensor: torch.Tensor, n_heads: int) -> torch.Tensor:
    """As llama.cpp lays rows out, whose rotary positions turn neighbours."""
    return tensor.view(n_heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def write(path: Path, theirs: Any, kind: Kind = Kind.F32, **changes: Any) -> dict[str, np.ndarray]:
    """Write a file; return the numbers that stand in it."""
    config = theirs.config
    fields = {
        "llama.block_count": config.num_hidden_layers, "llama.context_length": 128,
        "llama.embedding_length": config.hidden_size, "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads, "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps, "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": NAMES,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(NAMES) - 3), "tokenizer.ggml.merges": ["a b", "Ġ a", "Ġ Ġ"],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE, "general.name": "Small",
    }  # fmt: skip
    architecture = changes.pop("architecture", "llama")
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (fields | changes).items():
        if value is None:
            continue
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    numbers = {}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for theirs_name, parameter in theirs.named_parameters():
        tensor = parameter.detach()
        for part, n in heads.items():
            tensor = permuted(tensor, n) if f"{part}.weight" in theirs_name else tensor
        values, name = tensor.numpy(), name_of(theirs_name)
        used = Kind.F32 if values.ndim == 1 else kind
        data = gguf.quants.quantize(values, used)
        numbers[name] = gguf.quants.dequantize(data, used).reshape(values.shape)
        writer.add_tensor(name, data, raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


@pytest.mark.parametrize("tied", [False, True])
def test_the_same_logits(tied: bool, tmp_path: Path) -> None:
    theirs = model(tie_word_embeddings=tied)
    write(tmp_path / "small.gguf", theirs)
    run, left_out = read(tmp_path / "small.gguf")
    assert left_out == []
    assert run.config.model.norm.eps == 1e-5
    assert run.config.model.tying == ("target-output" if tied else "none")
    ids = torch.randint(3, len(NAMES), (2, 11))
    with torch.no_grad():
        expected, found = theirs(ids).logits, run.model.decode(ids)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_1, Kind.Q4_0])
def test_numbers_of_every_type(kind: Kind, tmp_path: Path) -> None:
    numbers = write(tmp_path / "small.gguf", model(), kind)
    run, _ = read(tmp_path / "small.gguf")
    ours = dict(run.model.named_parameters())
    for name, part in (
        ("decoder.embedding.tokens.weight", "token_embd.weight"), ("decoder.layers.1.self_attention.w_k.weight", "blk.1.attn_k.weight"),
        ("decoder.layers.0.ffn.w_1.weight", "blk.0.ffn_up.weight"), ("decoder.norm.weight", "output_norm.weight"),
    ):  # fmt: skip
        assert np.array_equal(ours[name].detach().numpy(), numbers[part])


def test_its_rows_fit_hugging_face_too(tmp_path: Path) -> None:
    """Written there, query and key rows are in the other order, and are what they were."""
    theirs = model()
    write(tmp_path / "small.gguf", theirs)
    convert(tmp_path / "small.gguf", tmp_path / "run")
    assert load(tmp_path / "run").config.model.positions.convention == "interleaved"
    convert(tmp_path / "run", tmp_path / "back", to="hf")
    again = type(theirs).from_pretrained(tmp_path / "back")
    for key, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


def test_its_vocabulary(tmp_path: Path) -> None:
    write(tmp_path / "small.gguf", model())
    run, _ = read(tmp_path / "small.gguf")
    tokenizer = run.tokenizer
    assert (tokenizer.start_id, tokenizer.end_id) == (None, 2)
    assert tokenizer.tokens(tokenizer.encode("ab a12?")) == ["ab", "Ġa", "1", "2", "?"]
    assert tokenizer.decode(tokenizer.encode("ab a12?")) == "ab a12?"
    # digits stand alone before anything else is cut ("smollm"), so the blanks before one stay together; not so in GPT-2
    assert tokenizer.tokens(tokenizer.encode("a  1")) == ["a", "ĠĠ", "1"]
    write(tmp_path / "gpt.gguf", model(), **{"tokenizer.ggml.pre": "gpt-2"})
    gpt = read(tmp_path / "gpt.gguf")[0].tokenizer
    assert gpt.tokens(gpt.encode("a  1")) == ["a", "Ġ", "Ġ", "1"]
    write(tmp_path / "begun.gguf", model(), **{"tokenizer.ggml.add_bos_token": True})
    begun, _ = read(tmp_path / "begun.gguf")
    assert begun.tokenizer.start_id == 1
    assert list(begun.writer().prompt("ab").read) == [1, *tokenizer.encode("ab")]


def test_messages(tmp_path: Path) -> None:
    """What a person writes is text; the template's special tokens are special."""
    write(tmp_path / "small.gguf", model())
    convert(tmp_path / "small.gguf", tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.vocabularies.chat_template == TEMPLATE
    assert TEMPLATE.count("message") == 4
    messages = [{"role": "j", "content": "ab"}, {"role": "i", "content": "ba"}]
    with pytest.raises(DataError, match=r"character 2 is '\\n', which the vocabulary does not have"):
        chat_ids(TEMPLATE, run.tokenizer, messages)
    template = TEMPLATE.replace("\n", " ")
    ids = chat_ids(template, run.tokenizer, messages)
    names = "<|im_start|> j Ġ ab <|im_end|> <|im_start|> i Ġ b a <|im_end|> <|im_start|> ab"
    assert run.tokenizer.tokens(ids) == names.split()
    write(tmp_path / "none.gguf", model(), **{"tokenizer.chat_template": None})
    with pytest.raises(DecodingError, match="has no chat template"):
        read(tmp_path / "none.gguf")[0].writer(chat=True)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages.__class__.__mro__ }}", "does not work: SecurityError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{% for x in range(10 ** 12) %}{% endfor %}", "does not work: OverflowError"),
        ("{{ cycler.__init__.__globals__.os.popen('touch exploded').read() }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "does not work: TypeError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for m in messages", "does not work: TemplateSyntaxError"),
        ("{{ raise_exception('only users') }}", "refuses the messages: only users"),
    ],
)
def test_templates_that_reach_out(template: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "small.gguf", model())
    run, _ = read(tmp_path / "small.gguf")
    with pytest.raises(DataError) as caught:
        chat_ids(template, run.tokenizer, [{"role": "a", "content": "b"}])
    assert message in str(caught.value)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "qwen2"}, "is of architecture 'qwen2'; we read 'llama'"),
        ({"llama.rope.scaling.type": "linear"}, "llama.rope.scaling.type='linear', which we do not have"),
        ({"llama.expert_count": 8}, "llama.expert_count=8"),
        ({"llama.rope.dimension_count": 8}, "turns 8 numbers of each head"),
        ({"llama.attention.head_count": None}, "llama.attention.head_count=None, where a number belongs"),
        ({"llama.block_count": 3}, "has no tensor blk.2.attn_q.weight"),
        ({"llama.block_count": 1}, "for which our model has no place"),
        ({"llama.feed_forward_length": 64}, "blk.0.ffn_up.weight is (96, 64) in"),
        ({"tokenizer.ggml.model": "llama"}, "vocabulary of kind 'llama'"),
        ({"tokenizer.ggml.pre": "qwen2"}, "cuts texts as 'qwen2' does"),
        ({"tokenizer.ggml.eos_token_id": 4000}, "has no end token"),
        ({"tokenizer.ggml.merges": ["a b", "x y"]}, "damaged vocabulary"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "damaged vocabulary"),
    ],
)  # fmt: skip
def test_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "small.gguf", model(), **changes)
    with pytest.raises(GlassformerError) as caught:
        read(tmp_path / "small.gguf")
    assert message in str(caught.value)


@pytest.mark.parametrize("how", ["cut in the header", "cut in the numbers", "huge count of fields", "huge count of tensors",
                                 "huge string", "another version"])  # fmt: skip
def test_files_that_lie(how: str, tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write(path, model())
    raw = bytearray(path.read_bytes())
    match how:
        case "cut in the header":
            raw = raw[:100]
        case "cut in the numbers":
            raw = raw[:-2000]
        case "huge count of tensors":
            raw[8:16] = struct.pack("<Q", 2**60)
        case "huge count of fields":
            raw[16:24] = struct.pack("<Q", 2**60)
        case "huge string":
            raw[24:32] = struct.pack("<Q", 2**60)
        case _:
            raw[4:8] = struct.pack("<I", 99)
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="is no GGUF file that can be read, or damaged") as caught:
        read(path)
    assert "\n" not in str(caught.value)
