"""An evaluation: what it measures, what it leaves out, and what it tells."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from glassformer.errors import DataError
from glassformer.evaluate.report import evaluate
from glassformer.run import Run, load
from tests.conftest import CLASSES, Cli

SOURCES = ["c a b", "", "h i j d", "a b c d", "e f"]
TARGETS = ["b a c", "x", "d j i h", "d c b b", ""]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{line}\n" for line in SOURCES))
    target.write_text("".join(f"{line}\n" for line in TARGETS))
    return source, target


def test_the_file_that_was_written_is_measured(run: Run, tmp_path: Path) -> None:
    """Fault 34. Three of the five lines count: one has no source, one no reference."""
    path = tmp_path / "out.txt"
    found = evaluate(run, SOURCES, [[text] for text in TARGETS], path, decode={"beam_size": 2})
    written = path.read_text().splitlines()
    assert written == ["b a c", "", "d j i h", "d c b a", "f e"]
    assert (found.n_lines, found.n_left_out) == (3, 2)
    kept = [0, 2, 3]
    bleu = sacrebleu.corpus_bleu([written[i] for i in kept], [[TARGETS[i] for i in kept]], force=True)
    measured = {one.name: one for one in found.metrics}
    assert measured["bleu"].value == pytest.approx(bleu.score)
    assert "tok:13a" in measured["bleu"].signature
    assert "version:" in measured["bleu"].signature
    assert measured["exact_match"].value == pytest.approx(2 / 3)
    assert measured["token_error_rate"].value == pytest.approx(1 / 11)
    assert found.decode["beam_size"] == 2
    assert found.weights[0]["weights"].startswith("mean of the snapshots after steps 500")
    assert len(found.weights[0]["sha256"]) == 64
    assert found.versions["sacrebleu"] == sacrebleu.__version__


def test_perplexity_is_of_the_references(run: Run, tmp_path: Path) -> None:
    """exp of the mean of minus the plain log-probabilities of 3 + 4 + 4 letters and three end tokens."""
    found = evaluate(run, SOURCES, [[text] for text in TARGETS], tmp_path / "out.txt")
    total = 0.0
    for i in (0, 2, 3):
        source, target = run.tokenizer.encode(SOURCES[i]), [*run.tokenizer.encode(TARGETS[i]), 2]
        with torch.inference_mode():
            logits = run.model(torch.tensor([source]), torch.tensor([[1, *target[:-1]]]))[0]
        total += float(logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None]).sum())
    assert found.n_tokens == 14
    assert found.perplexity == pytest.approx(math.exp(-total / 14), rel=1e-5)


def test_several_references_and_another_system(run: Run, tmp_path: Path) -> None:
    references = [["b b", "b a c"], [""], ["d j i h"], ["d c b b", "d c b a"], ["", "f e"]]
    theirs = ["b a c", "", "d j i h", "wrong", "wrong"]
    found = evaluate(run, SOURCES, references, tmp_path / "o", metrics=["exact_match"], against=theirs)
    assert found.n_lines == 4
    (measured,), (compared,) = found.metrics, found.against
    assert (measured.value, measured.low, measured.high) == (1, 1, 1)
    # of four lines two differ: 2 of the 4 ways to swap them reach a difference of 1/2
    assert (compared.ours, compared.theirs, compared.p_value) == (1, 0.5, 0.5)


def test_a_reference_that_cannot_be_read_is_measured_all_the_same(run: Run, tmp_path: Path) -> None:
    found = evaluate(run, ["a b d", "c a b"], [["d b z"], ["b a c"]], tmp_path / "o", metrics=["token_error_rate"])
    assert (found.n_lines, found.n_unscored, found.n_tokens) == (2, 1, 4)
    assert found.metrics[0].value == pytest.approx(1 / 6)


def test_the_perplexity_knows_no_rules_of_writing(run: Run, tmp_path: Path) -> None:
    plain = evaluate(run, ["a b"], [["a a"]], tmp_path / "o")
    ruled = evaluate(run, ["a b"], [["a a"]], tmp_path / "o", decode={"no_repeat_ngram": 1, "forbidden": ["b"]})
    assert plain.perplexity == ruled.perplexity


def test_what_was_cut_is_counted(run: Run, tmp_path: Path) -> None:
    found = evaluate(
        run, ["a b c d", "a b c", "", "a b c e"], [["b"], ["a"], ["a"], [""]], tmp_path / "o", decode={"max_length": 4}
    )
    assert (found.n_cut, found.n_lines) == (1, 2)


def test_wrong_names_are_found_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    for source, metrics, sentence in (("z", ["bleu"], "line 1: "), ("a", ["blue"], "there is no metric 'blue'")):
        with pytest.raises(DataError, match=sentence):
            evaluate(run, [source], [["a"]], tmp_path / "o", metrics=metrics)
    assert not (tmp_path / "o").exists()


def test_a_decoder_goes_on(random_runs: dict[str, Path], tmp_path: Path) -> None:
    found = evaluate(
        load(random_runs["decoder"]), ["ab", "c"], [["x"], ["y"]], tmp_path / "o", decode={"max_length": 3}
    )
    assert found.kind == "decoder"
    assert found.n_cut >= 1
    assert found.n_tokens == 4  # two letters and two ends
    assert {one.name for one in found.metrics} == {"bleu", "chrf", "exact_match", "token_error_rate"}


def test_a_classifier(random_runs: dict[str, Path], tmp_path: Path) -> None:
    run = load(random_runs["encoder"])
    texts = [f"text number {i * i}" for i in range(20)]
    answers = [one.label for one in run.classify(texts)]
    right = [[answers[i] if i % 4 else CLASSES[i % 3]] for i in range(20)]
    found = evaluate(run, texts, right, tmp_path / "o")
    assert found.confusion is not None
    hits = sum(row[0] == answer for row, answer in zip(right, answers, strict=True))
    assert sum(found.confusion.counts[i][i] for i in range(len(found.confusion.labels))) == hits
    assert {one.name: one.value for one in found.metrics}["accuracy"] == pytest.approx(hits / 20)
    assert found.perplexity is None
    with pytest.raises(DataError, match="a classifier does not write"):
        evaluate(run, texts, right, tmp_path / "o", decode={"beam_size": 4})


@pytest.mark.parametrize(
    ("sources", "references", "sentence"),
    [
        (["a"], [["a"], ["b"]], "there are 1 sources, but 2 references"),
        (["", "a"], [["a"], [" "]], "there is nothing to measure"),
        (["a", "z"], [["a"], ["b"]], "line 2: character 1 is 'z'"),
    ],
)
def test_bad_input(run: Run, tmp_path: Path, sources: list[str], references: list[list[str]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        evaluate(run, sources, references, tmp_path / "o")


class TestVerb:
    def test_its_own_test_set(self, here: Cli, run_directory: Path, tmp_path: Path) -> None:
        done = here("evaluate", run_directory, "--result", tmp_path / "r.json")
        assert done.returncode == 0, done.stderr
        for text in ("exact_match", "% to ", "BLEU|nrefs:1|bs:1000|seed:12345", "500 lines", "perplexity 1.0"):
            assert text in done.stdout
        assert len((tmp_path / "r.txt").read_text().splitlines()) == 500

    def test_result_file(self, here: Cli, run_directory: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
        (tmp_path / "theirs.txt").write_text("b a c\n\nx\nx\nx\n")
        call = ("evaluate", run_directory, "--source", files[0], "--target", files[1], "--beam-size", 3)
        call += ("--against", tmp_path / "theirs.txt", "--result", tmp_path / "r.json")
        table, printed = here(*call).stdout, json.loads(here(*call, "--json").stdout)
        stored: dict[str, Any] = json.loads((tmp_path / "r.json").read_text())
        assert stored == printed
        assert stored["decode"]["beam_size"] == 3
        assert stored["decode"]["length_penalty"] == "wu"
        assert stored["target"] == [str(files[1])]
        assert stored["n_left_out"] == 2
        assert {one["name"] for one in stored["against"]} == {one["name"] for one in stored["metrics"]}
        for text in ("2 without a source or a reference were left out", "difference", "exact randomisation"):
            assert text in table

    def test_it_is_kept_in_the_run(self, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "s").write_text("a\nb\n")
        (tmp_path / "t").write_text("printer\nnetwork\n")
        done = here("evaluate", random_runs["encoder"], "--source", tmp_path / "s", "--target", tmp_path / "t")
        assert done.returncode == 0, done.stderr
        for text in ("true \\ answer", "precision", "accuracy", "macro_f1"):
            assert text in done.stdout
        assert (random_runs["encoder"] / "evaluation.json").is_file()

    def test_nonsense(self, here: Cli, run_directory: Path, random_runs: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "ten").write_text("a\n" * 10)
        (tmp_path / "nine").write_text("a\n" * 9)
        pair = ("--source", tmp_path / "ten", "--target", tmp_path / "nine")
        done = here("evaluate", run_directory, *pair)
        assert f"{tmp_path / 'ten'} has 10 lines, but {tmp_path / 'nine'} has 9" in done.stderr
        same = ("--source", tmp_path / "ten", "--target", tmp_path / "ten")
        done = here("evaluate", run_directory, *same, "--metric", "blue")
        assert "there is no metric 'blue'; did you mean 'bleu'?" in done.stderr
        done = here("evaluate", random_runs["decoder"])
        assert "names none: give --source and --target, or name files" in done.stderr
        assert here("evaluate", run_directory, "--source", tmp_path / "ten").returncode == 2

    def test_what_is_read_is_not_written_over(self, here: Cli, run_directory: Path, tmp_path: Path) -> None:
        for name in ("a.txt", "a.json"):
            (tmp_path / name).write_text("a\n")
            done = here(
                "evaluate",
                run_directory,
                "--source",
                tmp_path / name,
                "--target",
                tmp_path / name,
                "--result",
                tmp_path / "a.json",
            )
            assert done.returncode == 2
            assert "--result" in done.stderr
            assert (tmp_path / name).read_text() == "a\n"
        assert here("evaluate", run_directory, "--result", tmp_path / "a.txt").returncode == 2
        assert here("evaluate", run_directory, "--result", tmp_path / "none" / "a.json").returncode == 2
        tokenizer = run_directory / "tokenizer.json"
        before = tokenizer.read_bytes()
        assert here("evaluate", run_directory, "--result", tokenizer).returncode == 2
        assert tokenizer.read_bytes() == before
