"""`glassformer verify`: another implementation by its name, its weights from a file, a verdict first."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.conftest import Cli

MODEL = """
import torch

def build():
    model = torch.nn.Transformer(64, 4, 2, 2, 256, batch_first=True)
    model.encoder.norm = model.decoder.norm = None
    return model

def as_it_comes():
    return torch.nn.Transformer(64, 4, 2, 2, 256, batch_first=True)

class Needs(torch.nn.Module):
    def __init__(self, width):
        super().__init__()

class Model(torch.nn.Transformer):
    def __init__(self):
        super().__init__(64, 4, 2, 2, 256, batch_first=True)
        self.encoder.norm = self.decoder.norm = None

number = 7

def shown(weights, source, target):
    raise RuntimeError("weights are here: " + ", ".join(sorted(weights)))
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["build", "Model"])
def test_equal(here: Cli, theirs: Path, name: str) -> None:
    done = here("verify", "reversal", "--against", f"{theirs}:{name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Equal: your model computes what this configuration says.\n")


def test_the_cause(here: Cli, theirs: Path) -> None:
    done = here("verify", "reversal", "--against", f"{theirs}:as_it_comes", "--show-mapping")
    assert done.returncode == 1
    assert done.stderr == ""
    first, *_ = done.stdout.splitlines()
    assert first == "Your model has one more norm after each stack."
    assert "model.encoder.norm = None and model.decoder.norm = None" in done.stdout
    assert "rows 64 to 127" in done.stdout


def test_json(here: Cli, theirs: Path) -> None:
    found = json.loads(here("verify", "reversal", "--against", f"{theirs}:as_it_comes", "--json").stdout)
    assert found["verdict"] == "Your model has one more norm after each stack."
    assert found["equal"] is False
    assert [cause["name"] for cause in found["causes"]] == ["extra-final-norm-both"]
    assert found["first"]["part"] == "memory"


class TestWeights:
    def test_they_are_loaded(self, here: Cli, theirs: Path, tmp_path: Path) -> None:
        save_file({"a": torch.zeros(2)}, tmp_path / "w.safetensors")
        torch.save({"b": torch.zeros(2)}, tmp_path / "w.pt")
        for name, what in (("w.safetensors", "a"), ("w.pt", "b")):
            done = here("verify", "reversal", "--against", f"{theirs}:shown", "--weights", tmp_path / name)
            assert f"weights are here: {what}" in done.stderr

    def test_nothing_is_run(self, here: Cli, theirs: Path, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return (Path(tmp_path / "ran").write_text, ("x",))

        torch.save({"a": Evil()}, tmp_path / "evil.pt")
        done = here("verify", "reversal", "--against", f"{theirs}:shown", "--weights", tmp_path / "evil.pt")
        assert done.returncode == 1
        assert "holds something else than tensors, or is damaged; it was not loaded" in done.stderr
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("name", ["no.safetensors", "no.pt"])
    def test_not_there(self, here: Cli, theirs: Path, tmp_path: Path, name: str) -> None:
        done = here("verify", "reversal", "--against", f"{theirs}:shown", "--weights", tmp_path / name)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"cannot read {tmp_path / name}: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("against", "code", "message"),
    [
        ("theirs", 2, "write MODULE:NAME"),
        ("nosuch_module:x", 1, "cannot import nosuch_module: ModuleNotFoundError"),
        ("nosuch.py:x", 1, "cannot read nosuch.py: there is no such file"),
        ("{}:biuld", 1, "theirs has no 'biuld'; did you mean 'build'?"),
        ("{}:Needs", 1, "Needs needs width: give a function without arguments that makes it"),
        ("{}:number", 1, "a model is a torch.nn.Module or a function, not int"),
    ],
)
def test_what_cannot_be_used(here: Cli, theirs: Path, against: str, code: int, message: str) -> None:
    done = here("verify", "reversal", "--against", against.format(theirs))
    assert done.returncode == code
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_mapping_file(here: Cli, theirs: Path, tmp_path: Path) -> None:
    file = tmp_path / "mapping.toml"
    file.write_text('"encoder.layers.0.ffn.w_1.weight" = "transformer.encoder.layers.1.linear1.weight"\n')
    call = ("verify", "reversal", "--against", f"{theirs}:build", "--mapping", file)
    assert here(*call).returncode == 1  # it says what is wrong
    file.write_text('"encoder.layers.0.ffn.w_1.weight" = "nosuch"\n')
    assert "your model has no parameter 'nosuch'" in here(*call).stderr
    file.write_text("= 3")
    assert "mapping.toml is no TOML" in here(*call).stderr
