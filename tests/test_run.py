"""A run directory: what it does, and what is said when it is broken."""

import shutil
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.checkpoint import read_weights
from glassformer.errors import CheckpointError, DataError
from glassformer.run import Run, RunFiles, load


@pytest.fixture
def copied(run_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_directory, tmp_path / "run"))


class TestUse:
    def test_translate(self, run: Run) -> None:
        assert run.translate("c a b e d") == "d e b a c"
        assert run.translate("cabed") == "d e b a c"
        assert run.translate(["c a b e d", "", "a b c", "  "]) == ["d e b a c", "", "c b a", ""]

    def test_one_line_equals_the_same_line_in_a_batch(self, run: Run) -> None:
        lines = ["c a b e d", "j i h", "a a a a a a a a", "b", "h g f e d c b a"]
        assert run.translate(lines) == [run.translate(line) for line in lines]

    def test_unreadable_text(self, run: Run) -> None:
        with pytest.raises(DataError, match="character 3 is 'z'"):
            run.translate("a z")

    def test_steps(self, run: Run) -> None:
        steps = run.steps("c a b e d", top=3)
        assert [step.chosen.token for step in steps] == ["d", "e", "b", "a", "c", "</s>"]
        for i, step in enumerate(steps):
            assert step.so_far == ["<s>", *"debac"][: i + 1]
            assert step.candidates[0] == step.chosen
            assert len(step.candidates) == 3
            assert step.candidates[0].probability > step.candidates[1].probability > step.candidates[2].probability
            assert 0.8 < step.chosen.probability < 0.97  # label smoothing keeps it from 1
        assert sum(candidate.probability for candidate in run.steps("c a b", top=99)[0].candidates) == pytest.approx(1)

    def test_steps_are_the_translation(self, run: Run) -> None:
        writer = run.writer()
        result = writer.write([writer.prompt("a b c d")])[0][0]
        steps = run.steps("a b c d")
        assert [step.chosen.token for step in steps[:-1]] == result.tokens
        import math

        assert sum(math.log(step.chosen.probability) for step in steps) == pytest.approx(
            result.log_probability, abs=1e-5
        )

    def test_blank_text_has_no_steps_and_no_trace(self, run: Run) -> None:
        for call in (run.steps, run.trace):
            with pytest.raises(DataError, match="the text is blank"):
                call(" ")

    def test_length_limit(self, run: Run) -> None:
        writer = run.writer({"max_length": 3, "beam_size": 1})
        cut = writer.write([writer.prompt("c a b e d")])[0][0]
        assert (cut.text, cut.stopped) == ("d e b", "limit")
        assert len(run.steps("c a b e d", decode={"max_length": 2})) == 2

    def test_two_hundred_letters(self, run: Run) -> None:
        writer = run.writer({"max_length": 250})
        result = writer.write([writer.prompt("abcdefghij" * 20)])[0][0]
        assert result.stopped in ("end", "limit")
        assert len(result.tokens) <= 250

    def test_trace_has_the_tokens_of_its_axes(self, run: Run) -> None:
        seen = run.trace("c a b e d")
        assert seen.source_tokens == ("c", "a", "b", "e", "d")
        assert seen.target_tokens == ("<s>", "d", "e", "b", "a", "c")
        assert seen["decoder.layers.1.cross_attention.weights"].shape == (1, 4, 6, 5)
        assert run.trace("c a b", "a b").target_tokens == ("<s>", "a", "b")


class TestFiles:
    def test_what_a_finished_run_holds(self, run_directory: Path) -> None:
        files = RunFiles(run_directory)
        for path in (files.config, run_directory / "tokenizer.json", files.metrics, files.weights):
            assert path.is_file()
        assert files.snapshot_steps() == [0, 100, 200, 300, 400, 500, 600, 700, 800]
        assert not [path for path in run_directory.rglob("*") if path.name.endswith(".part")]

    def test_a_run_needs_no_other_file(self, copied: Path, run: Run) -> None:
        shutil.rmtree(copied / "snapshots")
        (copied / "metrics.jsonl").unlink()
        assert load(copied).translate("c a b e d") == run.translate("c a b e d")

    def test_its_weights_are_the_mean_and_it_says_so(self, run_directory: Path, run: Run) -> None:
        assert run.notes["weights"] == "mean of the snapshots after steps 500, 600, 700, 800"
        files = RunFiles(run_directory)
        name = "decoder.layers.1.ffn.w_1.weight"
        snapshots = [read_weights(files.snapshot(step))[0][name].double() for step in (500, 600, 700, 800)]
        mean = sum(snapshots[1:], snapshots[0]) / 4
        assert (run.model.get_parameter(name).double() - mean).abs().max() <= 1e-7

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("config.toml", "is not a run: it has no config.toml"),
            ("tokenizer.json", "cannot read the tokenizer"),
            ("model.safetensors", "is not finished: it has no model.safetensors; go on with: glassformer train"),
        ],
    )
    def test_missing_files(self, copied: Path, name: str, sentence: str) -> None:
        (copied / name).unlink()
        with pytest.raises(CheckpointError, match=sentence):
            load(copied)

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("config.toml", "is damaged: .*config.toml"),
            ("tokenizer.json", "the tokenizer .* is damaged"),
            ("model.safetensors", "is damaged or cut short"),
        ],
    )
    def test_truncated_files(self, copied: Path, name: str, sentence: str) -> None:
        path = copied / name
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(CheckpointError, match=sentence):
            load(copied)

    def test_another_vocabulary(self, copied: Path) -> None:
        from glassformer.text.tokenizer import Tokenizer

        Tokenizer.letters("abc").save(copied / "tokenizer.json")
        with pytest.raises(CheckpointError, match="has 6 tokens, but its model was built for 13"):
            load(copied)

    def test_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"there is no run at .*; train one: glassformer train reversal"):
            load(tmp_path / "none")


def test_the_package_offers_its_names() -> None:
    for name in gf.__all__:
        assert getattr(gf, name) is not None
    assert set(gf.__all__) <= set(dir(gf))
    with pytest.raises(AttributeError, match="no attribute 'transformer'"):
        _ = gf.transformer


def test_the_api_of_the_readme(run_directory: Path) -> None:
    model = gf.Transformer(gf.preset("reversal").model)
    seen = gf.trace(model, [5, 3, 4, 7, 6], [1, 6])["decoder.layers.1.cross_attention.weights"]
    assert (seen.axes, seen.shape) == (("B", "H", "T", "S"), (1, 4, 2, 5))
    assert gf.load(run_directory).translate("c a b e d") == "d e b a c"
    assert gf.count(gf.preset("reversal").model).total == 234_304
