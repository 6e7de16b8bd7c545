"""Weights on disk: whole or not at all, checked, averaged."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from glassformer.checkpoint import average_weights, load_weights, read_weights, save_weights
from glassformer.config import load_config, preset
from glassformer.errors import CheckpointError
from glassformer.files import write_text
from glassformer.model.transformer import Transformer


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Transformer, Path]:
    model, path = Transformer(preset("reversal")), tmp_path / "model.safetensors"
    save_weights(model, path, {"weights": "fresh"})
    return model, path


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    model = Transformer(preset("reversal"))
    with torch.no_grad():
        next(model.parameters())[0, 0] = float("nan")
    save_weights(model, tmp_path / "w.safetensors", {})
    with pytest.raises(CheckpointError, match=r"holds infinity or NaN in .*: its training went wrong"):
        load_weights(Transformer(preset("reversal")), tmp_path / "w.safetensors")


def test_save_and_load_are_inverse(saved: tuple[Transformer, Path]) -> None:
    model, path = saved
    torch.manual_seed(1)
    other = Transformer(preset("reversal"))
    notes = load_weights(other, path)
    assert notes.keys() == {"weights", "sha256"}
    assert notes["weights"] == "fresh"
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_tied_matrices_are_stored_once_and_stay_tied(saved: tuple[Transformer, Path]) -> None:
    _, path = saved
    tensors, _ = read_weights(path)
    assert sum(tensor.numel() for tensor in tensors.values()) == 234_304
    other = Transformer(preset("reversal"))
    load_weights(other, path)
    assert other.encoder is not None
    assert other.output is not None
    assert other.output.weight.data_ptr() == other.encoder.embedding.tokens.weight.data_ptr()


@pytest.mark.parametrize("kept", [0, 5, 100, 5000, -1])
def test_truncated_file(saved: tuple[Transformer, Path], kept: int) -> None:
    model, path = saved
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        load_weights(model, path)


def test_one_flipped_bit(saved: tuple[Transformer, Path]) -> None:
    model, path = saved
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="its tensors are not those that were written"):
        load_weights(model, path)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"dtype":"F32"', b'"dtype":"I32"'), (b'"weights":"fresh"', b'"weights":"older"')]
)
def test_a_changed_header(saved: tuple[Transformer, Path], old: bytes, new: bytes) -> None:
    """The checksum covers what the bytes mean, and what is said of them, too."""
    model, path = saved
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(CheckpointError, match="its tensors are not those that were written"):
        load_weights(model, path)


def test_swapped_tensors(saved: tuple[Transformer, Path]) -> None:
    """Two tensors of one shape under each other's names."""
    model, path = saved
    content = path.read_bytes()
    one, other = b"encoder.layers.0.self_attention.w_q.bias", b"encoder.layers.1.self_attention.w_q.bias"
    path.write_bytes(content.replace(one, b"-" * len(one)).replace(other, one).replace(b"-" * len(one), other))
    with pytest.raises(CheckpointError, match="its tensors are not those that were written"):
        load_weights(model, path)


def test_whole_numbers_are_no_weights(saved: tuple[Transformer, Path]) -> None:
    from safetensors.torch import save_file

    model, path = saved
    save_file({name: p.detach().long() for name, p in model.named_parameters()}, path)
    with pytest.raises(CheckpointError, match=r"is torch\.int64 in .*; weights are floating-point numbers"):
        load_weights(model, path)


def test_other_shapes_are_named_and_nothing_is_loaded(saved: tuple[Transformer, Path]) -> None:
    _, path = saved
    overrides = ["model.source_vocabulary=20", "model.target_vocabulary=20"]
    other = Transformer(load_config("reversal", overrides))
    before = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(
        CheckpointError,
        match=r"encoder\.embedding\.tokens\.weight is \(13, 64\) in .* but \(20, 64\) in the model",
    ):
        load_weights(other, path)
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))


def test_missing_and_unexpected_tensors(saved: tuple[Transformer, Path]) -> None:
    _, path = saved
    with pytest.raises(CheckpointError, match=r"has no tensor encoder\.norm\.weight: it belongs to another model"):
        load_weights(Transformer(load_config("reversal", ["model.norm.final=true"])), path)
    with pytest.raises(CheckpointError, match=r"holds .*bias, which the model does not have"):
        load_weights(Transformer(load_config("reversal", ["model.biases=none"])), path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there are no weights at"):
        read_weights(tmp_path / "none.safetensors")


def test_a_file_of_another_program_needs_no_checksum(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(3)}, tmp_path / "x.safetensors")
    assert read_weights(tmp_path / "x.safetensors")[0]["x"].tolist() == [1, 1, 1]


class TestAverage:
    def write(self, path: Path, *values: float) -> Path:
        layer = nn.Linear(len(values), 1, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([values]))
        save_weights(layer, path, {})
        return path

    def test_mean(self, tmp_path: Path) -> None:
        paths = [self.write(tmp_path / f"{i}", float(i), 10.0) for i in (1, 2, 6)]
        assert average_weights(paths)["weight"].tolist() == [[3.0, 10.0]]

    def test_three_equal_ones_are_the_same_weights(self, saved: tuple[Transformer, Path]) -> None:
        model, path = saved
        mean = average_weights([path, path, path])
        assert all(torch.equal(mean[name], parameter) for name, parameter in model.named_parameters())

    def test_other_shapes_are_refused(self, tmp_path: Path) -> None:
        paths = [self.write(tmp_path / "a", 1.0), self.write(tmp_path / "b", 1.0, 2.0)]
        with pytest.raises(CheckpointError, match="only equal models can be averaged"):
            average_weights(paths)


class TestFiles:
    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("old")
        (tmp_path / "link").symlink_to(tmp_path / "target")
        write_text(tmp_path / "link", "new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target").read_text() == "new"

    def test_what_is_no_file_is_left_alone(self, tmp_path: Path) -> None:
        import os

        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", tmp_path):
            with pytest.raises(CheckpointError, match="it is there and is not a file"):
                write_text(path, "x")
        assert (tmp_path / "pipe").is_fifo()

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(
            CheckpointError, match="No such file or directory; nothing was changed there: choose another place"
        ):
            write_text(tmp_path / "no" / "x", "x")


FULL_DISK = """
import resource, sys
from pathlib import Path
from glassformer.checkpoint import save_weights
from glassformer.config import preset
from glassformer.errors import CheckpointError
from glassformer.files import write_text
from glassformer.model.transformer import Transformer

model = Transformer(preset("reversal"))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # no file may grow past this, as on a full disk
try:
    save_weights(model, Path(sys.argv[1]), {})
except CheckpointError as error:
    print(error)
"""


def test_full_disk_leaves_the_last_good_file(saved: tuple[Transformer, Path]) -> None:
    _, path = saved
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {path}: ")
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing half-written is left
