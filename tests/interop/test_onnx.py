"""The ONNX graphs in onnxruntime: the same numbers as ours, at once and with the cache, for every architecture."""

from pathlib import Path

import onnx
import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.interop import onnx as ours
from glassformer.interop.onnx import DECODER, ENCODER, graphs, write
from glassformer.interop.onnx_model import OnnxModel
from glassformer.model.transformer import Transformer
from tests.agreement.variants import CORE, PER_CORE, VOCABULARY, build, config, drawn

ALL = [(core, i) for core in CORE for i in range(PER_CORE)]
FEW = [(CORE[i], i % PER_CORE) for i in range(0, len(CORE), 11)]  # 11 and the numbers of choices have no common factor


def rows(n: int, *, real: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw ids (3, n), and flags with padding at the start, in the middle and at the end."""
    ids, is_real = torch.randint(VOCABULARY, (3, n)), torch.ones(3, n, dtype=torch.bool)
    if not real:
        is_real[0, :2] = is_real[1, 1] = is_real[2, -2:] = False
    return ids, is_real


def agree(model: Transformer, folder: Path) -> None:
    """Compare what the graphs give with what the model gives, on other sizes than those of the export.

    Not at padding, which nobody reads: a row that may see no key is zeros in ours, and anything in onnxruntime.
    """
    write(model, folder)
    other = OnnxModel(folder, model.config)
    for real in (True, False):
        memory = theirs = None
        if model.config.has_encoder:
            source, source_is_real = rows(7, real=real)
            flags = None if real else source_is_real
            if not model.config.has_decoder:
                expected, found = model(source, source_is_real=flags), other.classify(source, is_real=flags)
                if expected.shape[:2] == source.shape:
                    expected, found = expected[source_is_real], found[source_is_real]
                torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
                continue
            memory, theirs = model.encode(source, is_real=flags), other.encode(source, is_real=flags)
            found, expected = theirs.states[source_is_real], memory.states[source_is_real]
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
        target, target_is_real = rows(9, real=real)
        flags = None if real else target_is_real
        expected = model.decode(target, memory, is_real=flags)[target_is_real]
        found = other.decode(target, theirs, is_real=flags)[target_is_real]
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
        cache, steps = other.new_cache(), []
        for start, end in ((0, 4), (4, 5), (5, 9)):  # a prompt, a token, a chunk
            now = None if flags is None else flags[:, start:end]
            steps.append(other.decode(target[:, start:end], theirs, cache=cache, is_real=now))
        torch.testing.assert_close(torch.cat(steps, dim=1)[target_is_real], expected, rtol=0, atol=2e-5)
        assert cache.length == 9


@pytest.mark.parametrize(("core", "i"), FEW, ids=str)
@torch.inference_mode()
def test_architectures(core: tuple[str, str, str, int | None], i: int, tmp_path: Path) -> None:
    agree(build(config(core, drawn(*core)[i])), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("core", "i"), [one for one in ALL if one not in FEW], ids=str)
@torch.inference_mode()
def test_all_architectures(core: tuple[str, str, str, int | None], i: int, tmp_path: Path) -> None:
    agree(build(config(core, drawn(*core)[i])), tmp_path)


def small(**changes: object) -> ModelConfig:
    values = {"source_vocabulary": 9, "target_vocabulary": 9, "d_model": 8, "d_ff": 8, "n_heads": 2,
              "n_encoder_layers": 1, "n_decoder_layers": 1, "tying": "none"}  # fmt: skip
    return ModelConfig.model_validate(values | changes)


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid graphs with the names and axes of the documentation, free in every size, that say nothing of who wrote them."""
    write(build(small()), tmp_path)
    for name, graph in graphs(small()).items():
        found = onnx.load(tmp_path / name)
        onnx.checker.check_model(found, full_check=True)
        axes = {
            one.name: tuple(d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim)
            for one in found.graph.input
        }
        assert axes == graph.inputs
        assert [one.name for one in found.graph.output] == graph.outputs
        assert b"glassformer/" not in (tmp_path / name).read_bytes()  # no path of a source file
    assert sorted(path.name for path in tmp_path.iterdir()) == [DECODER, ENCODER]
    monkeypatch.setattr(ours, "LARGEST", 100)
    agree(build(small(source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)), tmp_path / "large")
    assert sorted(path.name for path in (tmp_path / "large").iterdir()) == [
        "decoder.onnx", "decoder.onnx.data", "encoder.onnx", "encoder.onnx.data",
    ]  # fmt: skip


def test_files_that_lie(tmp_path: Path) -> None:
    config = small()
    write(build(config), tmp_path)
    with pytest.raises(CheckpointError, match=r"encoder\.onnx is no graph of the model beside it: it reads"):
        OnnxModel(tmp_path, small(n_decoder_layers=2))
    whole = (tmp_path / ENCODER).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\x80\x04cos\nsystem\n", whole[:-1] + b"\xff"):
        (tmp_path / ENCODER).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"onnxruntime cannot open .*encoder\.onnx: ") as caught:
            OnnxModel(tmp_path, config)
        assert "\n" not in str(caught.value)
    (tmp_path / ENCODER).unlink()
    with pytest.raises(CheckpointError, match=r"onnxruntime cannot open .*encoder\.onnx: .*exist"):
        OnnxModel(tmp_path, config)
