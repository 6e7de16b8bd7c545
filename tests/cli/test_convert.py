"""`glassformer convert` and `generate --chat`, as somebody types them."""

from pathlib import Path

from gguf import GGMLQuantizationType as Kind

from tests.conftest import Cli
from tests.interop.foreign import llama, saved
from tests.interop.test_gguf import model, write


def test_there_and_back(cli: Cli, tmp_path: Path) -> None:
    saved(llama(), tmp_path / "theirs")
    done = cli("convert", "theirs", "run", cwd=tmp_path)
    n = sum(p.numel() for p in llama().parameters())
    assert (done.stdout, done.stderr, done.returncode) == (f"{n:,} parameters\nrun is ready\n", "", 0)
    assert (
        cli("count", "run", cwd=tmp_path).stdout.splitlines()[-1].startswith(f"The built model holds {n:,} parameters")
    )
    assert cli("generate", "run", "a b c", "--max-length", "3", cwd=tmp_path).returncode == 0
    done = cli("convert", "run", "back", "--to", "hf", cwd=tmp_path)
    assert (
        done.stdout
        == f"{n:,} parameters\nwritten as LlamaForCausalLM\ntried on 20 inputs: 20 come out the same\nback is ready\n"
    )
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_messages(cli: Cli, tmp_path: Path) -> None:
    write(
        tmp_path / "small.gguf",
        model(),
        Kind.Q8_0,
        **{"tokenizer.chat_template": "{{ messages[0]['content'] }}<|im_end|>"},
    )
    assert cli("convert", "small.gguf", "run", "--precision", "bfloat16", cwd=tmp_path).returncode == 0
    plain = cli("generate", "run", "ab", "--json", "--max-length", "3", cwd=tmp_path)
    chat = cli("generate", "run", "--chat", "ab", "--json", "--max-length", "3", cwd=tmp_path)
    assert (plain.returncode, chat.returncode) == (0, 0)
    assert plain.stdout != chat.stdout
    assert cli("generate", "run", "--chat", "ab", "", "--max-length", "3", cwd=tmp_path).stdout.count("\n") == 2


def test_nonsense(cli: Cli, tmp_path: Path, run_directory: Path) -> None:
    (tmp_path / "text.txt").write_text("hello")
    for arguments, message in (
        (("nowhere", "out"), "there is nothing at nowhere"),
        (("text.txt", "out"), "text.txt is no model that we read: a run, a directory with a config.json"),
        (
            (run_directory, "out", "--to", "hf"),
            "Hugging Face has no equal of this model that we know: MarianMTModel needs",
        ),
        ((run_directory, run_directory), "is there and not empty"),
        ((run_directory, "text.txt"), "text.txt is there and not empty"),
    ):
        done = cli("convert", *arguments, cwd=tmp_path)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.returncode == 1
    done = cli("convert", run_directory, "out", "--to", "hf", "--precision", "bfloat16", cwd=tmp_path)
    assert done.returncode == 2
    assert cli("convert", run_directory, "out", "--to", "tflite", cwd=tmp_path).returncode == 2
    assert cli("generate", run_directory, "--chat", "a", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "out").exists()
