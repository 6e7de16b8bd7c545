"""translate, generate, classify, steps and score: lines in, lines out, and what the options print."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from glassformer.run import load
from glassformer.text.tokenizer import Tokenizer
from tests.conftest import CLASSES, Cli, random_run

VERB = {"encoder-decoder": "translate", "decoder": "generate", "encoder": "classify"}
SHORT = {"encoder-decoder": ("--max-length", 6), "decoder": ("--max-length", 6), "encoder": ()}
KINDS = list(VERB)


def objects(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


class TestInput:
    @pytest.mark.parametrize("kind", KINDS)
    def test_arguments_files_and_standard_input_are_the_same(
        self, here: Cli, random_runs: dict[str, Path], tmp_path: Path, kind: str
    ) -> None:
        lines = ["one two", "", "drei", "vier fünf"]
        text = "".join(f"{line}\n" for line in lines).encode()
        plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
        plain.write_bytes(text)
        packed.write_bytes(gzip.compress(text))
        call = (VERB[kind], random_runs[kind], *SHORT[kind])
        expected = here(*call, stdin=text).stdout
        assert len(expected.splitlines()) == 4
        assert expected.split("\n")[1] == ""
        assert here(*call, *lines).stdout == expected
        assert here(*call, "--input", plain).stdout == expected
        assert here(*call, "--input", packed).stdout == expected
        assert here(*call, "--input", packed, "--input", plain).stdout == expected * 2

    def test_files_that_cannot_be_read(self, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
        call = ("translate", random_runs["encoder-decoder"], "--input")
        done = here(*call, tmp_path / "none.txt")
        assert done.stderr == f"glassformer: cannot read {tmp_path / 'none.txt'}: No such file or directory\n"
        (tmp_path / "no.gz").write_text("this is not packed")
        assert "no.gz is damaged: Not a gzipped file" in here(*call, tmp_path / "no.gz").stderr
        whole = gzip.compress(b"".join(b"%d\n" % (i * i) for i in range(300)))
        (tmp_path / "cut.gz").write_bytes(whole[:-20])
        done = here(*call, tmp_path / "cut.gz", "--max-length", 2)
        assert "cut.gz is damaged: " in done.stderr
        assert len(done.stdout.splitlines()) > 200  # what could be read is not lost
        done = here(*call, tmp_path / "cut.gz", "--input", tmp_path / "none.txt")
        assert (done.stdout, done.returncode) == ("", 1)
        done = here(*call, tmp_path, "text")
        assert done.returncode == 2
        assert "give texts as arguments or files with --input" in done.stderr

    def test_a_bad_line_of_a_file_is_named(self, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"ok\n" * 6 + "sch\u00f6n\n".encode("latin-1") + b"ok\n")
        call = ("translate", random_runs["encoder-decoder"], "--max-length", 5, "--input", tmp_path / "a.txt")
        done = here(*call)
        assert done.returncode == 1
        assert f"{tmp_path / 'a.txt'}, line 7: character 4 is not UTF-8; convert the text first\n" in done.stderr
        out = done.stdout.split("\n")
        assert len(out) == 9
        assert out[6] == ""
        assert out[0] == out[7] != ""

    @pytest.mark.parametrize("kind", KINDS)
    def test_another_verb_for_another_kind(self, here: Cli, random_runs: dict[str, Path], kind: str) -> None:
        for verb in set(VERB.values()) - {VERB[kind]}:
            done = here(verb, random_runs[kind], "text")
            assert (done.stdout, done.returncode) == ("", 1)
            assert len(done.stderr.splitlines()) == 1
            assert kind in done.stderr or f"use {VERB[kind]}" in done.stderr

    def test_a_device_that_is_not_there(self, here: Cli, random_runs: dict[str, Path]) -> None:
        for device in ("cuda:99",):
            done = here("translate", random_runs["encoder-decoder"], "text", "--device", device)
            assert done.returncode == 1
            assert done.stderr.startswith(f"glassformer: the device '{device}' cannot be used: ")
        for device in ("nonsense", "meta"):
            done = here("translate", random_runs["encoder-decoder"], "text", "--device", device)
            assert (
                done.stderr
                == f"glassformer: there is no device {device!r}; there are cpu, cuda, cuda:1 and so on, and mps\n"
            )
        assert here("classify", random_runs["encoder"], "text", "--device", "cpu").returncode == 0


class TestTranslate:
    def test_scores_and_alignments_are_columns(self, here: Cli, run_directory: Path) -> None:
        done = here("translate", run_directory, "c a b", "", "--scores", "--alignments")
        first, second = done.stdout.splitlines()
        score, log_probability, links, text = first.split("\t")
        assert text == "b a c"
        # the toy looks at the mirrored letter, and that is how the links go
        assert links == "2-0 1-1 0-2"
        assert float(score) == pytest.approx(float(log_probability) / (9 / 6) ** 0.6, abs=1e-4)
        assert second == "\t\t\t"

    def test_n_best(self, here: Cli, run_directory: Path) -> None:
        done = here("translate", run_directory, "c a b", "", "h i j", "--n-best", 3, "--beam-size", 4)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert [row[:2] for row in rows] == [[n, k] for n, ks in (("1", "123"), ("2", "1"), ("3", "123")) for k in ks]
        assert [rows[0][2], rows[3][2], rows[4][2]] == ["b a c", "", "j i h"]
        found = objects(here("translate", run_directory, "c a b", "--n-best", 3, "--beam-size", 4, "--json").stdout)
        (one,) = found
        assert one["target"] == "b a c" == one["n_best"][0]["target"]
        scores = [result["score"] for result in one["n_best"]]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == 3

    def test_json(self, here: Cli, run_directory: Path) -> None:
        (one,) = objects(here("translate", run_directory, "c a b", "--json", "--alignments").stdout)
        assert one.keys() == {"source", "target", "tokens", "score", "log_probability", "stopped", "alignment"}
        assert one["alignment"] == [[2, 0], [1, 1], [0, 2]]

    def test_prefix(self, here: Cli, run_directory: Path) -> None:
        assert here("translate", run_directory, "c a b", "--prefix", "b").stdout == "b a c\n"
        assert here("translate", run_directory, "c a b", "--prefix", "a").stdout.startswith("a ")
        done = here("translate", run_directory, "c a b", "a", "--prefix", "z")
        assert done.stderr.count("\n") == 1
        assert "the prefix: character 1 is 'z'" in done.stderr
        done = here("translate", run_directory, "c a b", "z", "--prefix", "b", "--max-length", 1)
        assert done.stdout == "\n\n"
        assert "line 1: a length limit of 1 leaves no room for a token after the 1 of the prefix" in done.stderr

    def test_options_of_the_search(self, here: Cli, run_directory: Path) -> None:
        forbidden = here("translate", run_directory, "c a b", "--forbid", "a", "--forbid", "</s>", "--max-length", 4)
        assert "a" not in forbidden.stdout
        assert "cut at the length limit of 4 tokens" in forbidden.stderr
        drawn = [
            here("translate", run_directory, "c a b", "--sample", "--temperature", 9, "--seed", s).stdout
            for s in (1, 2)
        ]
        assert drawn[0] != drawn[1]
        done = here("translate", run_directory, "c a b", "--forbid", "</S>")
        assert (
            done.stderr
            == "glassformer: a forbidden token (--forbid): the vocabulary has no token '</S>'; did you mean '</s>'?\n"
        )
        assert here("translate", run_directory, "c a b", "--top-k", 5).returncode == 2

    def test_ensemble(self, here: Cli, random_runs: dict[str, Path], run_directory: Path, tmp_path: Path) -> None:
        one, other = random_runs["encoder-decoder"], random_run(tmp_path / "other", "encoder-decoder", seed=1)
        call = ("--max-length", 5, "--json", "some text")
        alone = objects(here("translate", one, *call).stdout)[0]
        assert alone == objects(here("translate", one, "--ensemble", one, *call).stdout)[0] | {
            "score": pytest.approx(alone["score"]), "log_probability": pytest.approx(alone["log_probability"])
        }  # fmt: skip
        together = [
            objects(here("translate", a, "--ensemble", b, *call).stdout)[0] for a, b in ((one, other), (other, one))
        ]
        assert together[0]["tokens"] == together[1]["tokens"]
        assert together[0]["score"] == pytest.approx(together[1]["score"])
        assert together[0]["score"] != pytest.approx(alone["score"])
        done = here("translate", one, "--ensemble", run_directory, *call)
        assert (
            done.stderr
            == "glassformer: runs that vote together have one kind, vocabulary and classes, but these differ\n"
        )

    def test_what_the_vocabulary_does_not_know(self, here: Cli, tmp_path: Path) -> None:
        for kind, *call in (
            ["encoder-decoder", "translate"],
            ["decoder", "generate"],
            ["decoder", "generate", "--stream"],
        ):
            run = tmp_path / kind
            if not run.exists():
                random_run(run, kind, words="one two three")
            done = here(*call, run, "one two", "one four", "five six", "--max-length", 9)
            assert (done.returncode, done.stdout.count("\n")) == (0, 3)
            assert "2 lines with tokens that the vocabulary does not know\n" in done.stderr
            assert "vocabulary" not in here(*call, run, "one two", "--max-length", 9).stderr

    def test_what_is_longer_than_the_positions(self, here: Cli, tmp_path: Path) -> None:
        learned = random_run(tmp_path / "learned", "encoder-decoder", positions={"kind": "learned", "size": 8})
        call = ("translate", learned, "123456789", "12345678")
        done = here(*call)
        assert done.returncode == 1
        assert done.stdout.startswith("\n")
        assert "line 1: the text has 9 tokens, but the model's learned positions end after 8\n" in done.stderr
        assert "line 2: cut at the length limit of 8 tokens\n" in done.stderr
        done = here(*call, "--truncate")
        assert done.returncode == 0
        assert "1 line longer than the model takes: cut\n" in done.stderr
        assert done.stdout.split("\n")[0] == done.stdout.split("\n")[1] != ""


class TestGenerate:
    def test_with_prompt(self, here: Cli, random_runs: dict[str, Path]) -> None:
        call = ("generate", random_runs["decoder"], "begin", "--max-length", 6)
        assert here(*call, "--with-prompt").stdout == "begin" + here(*call).stdout
        (one,) = objects(here(*call, "--json").stdout)
        assert one.keys() == {"prompt", "continuation", "tokens", "score", "log_probability", "stopped"}

    def test_prompt_and_continuation_are_one_text(self, here: Cli, tmp_path: Path) -> None:
        """Where blanks stand between tokens, one stands between the two parts as well."""
        run = random_run(tmp_path / "run", "decoder", target_vocabulary=13)
        Tokenizer.letters("abcdefghij").save(run / "tokenizer.json")
        call = ("generate", run, "c a", "--max-length", 3, "--forbid", "</s>", "--forbid", "<s>", "--forbid", "<pad>")
        continuation = here(*call).stdout
        assert len(continuation.split()) == 3
        for more in ((), ("--stream",)):
            assert here(*call, "--with-prompt", *more).stdout == f"c a {continuation}"

    def test_equal_lines_draw_different_texts(self, random_runs: dict[str, Path]) -> None:
        found = load(random_runs["decoder"]).generate(["x"] * 5, {"sample": True, "max_length": 5})
        assert len(set(found)) == 5

    def test_stream_is_the_same_text(self, here: Cli, random_runs: dict[str, Path]) -> None:
        for settings in ((), ("--sample", "--seed", 4, "--temperature", 0.7)):
            call = ("generate", random_runs["decoder"], "begin", "", "ä", "--max-length", 40, *settings)
            exact = [one["continuation"] for one in objects(here(*call, "--json").stdout)]
            streamed = here(*call, "--stream")
            assert streamed.stdout == "".join(f"{text}\n" for text in exact)
            assert streamed.stderr == here(*call).stderr  # which lines were cut
        done = here("generate", random_runs["decoder"], "a", "--stream", "--beam-size", 3)
        assert "settle their text only at the end" in done.stderr
        assert here("generate", random_runs["decoder"], "a", "--stream", "--json").returncode == 2

    def test_pieces_come_as_they_are_chosen(self, random_runs: dict[str, Path]) -> None:
        writer = load(random_runs["decoder"]).writer({"max_length": 30})
        prompt = writer.prompt("begin")
        pieces = list(writer.stream(prompt))
        assert "".join(pieces) == writer.write([prompt])[0][0].text
        assert len(pieces) > 3

    def test_past_the_end_of_a_learned_table(self, here: Cli, tmp_path: Path) -> None:
        """The prompt and what is written share the table; the last token is written, not read."""
        learned = random_run(tmp_path / "learned", "decoder", positions={"kind": "learned", "size": 8})
        done = here("generate", learned, "1234567", "12345678", "1", "--forbid", "</s>", "--json")
        first, second, third = objects(done.stdout)
        assert len(first["tokens"]) == 1  # <s> and 7 bytes fill the table
        assert second["error"] == "the text has 8 tokens, but the model's learned positions end after 7"
        assert len(third["tokens"]) == 7
        assert "line 3: cut at the length limit of 7 tokens" in done.stderr


class TestClassify:
    def test_scores_and_json(self, here: Cli, random_runs: dict[str, Path]) -> None:
        call = ("classify", random_runs["encoder"], "no paper", "")
        label = here(*call).stdout.splitlines()[0]
        columns = here(*call, "--scores").stdout.splitlines()[0].split("\t")
        assert columns[0] == label in CLASSES
        assert {column.split(" ")[0] for column in columns[1:]} == set(CLASSES)
        first, blank = objects(here(*call, "--json").stdout)
        assert first["label"] == label == max(first["probabilities"], key=first["probabilities"].get)
        assert sum(first["probabilities"].values()) == pytest.approx(1)
        assert (blank["label"], blank["probabilities"]) == ("", {})

    def test_an_ensemble_is_the_mean_of_probabilities(
        self, here: Cli, random_runs: dict[str, Path], tmp_path: Path
    ) -> None:
        one, other = random_runs["encoder"], random_run(tmp_path / "other", "encoder", seed=1)
        texts = ["no paper", "a", "some longer text"]
        alone = [load(run).classify(texts) for run in (one, other)]
        found = objects(here("classify", one, "--ensemble", other, "--json", *texts).stdout)
        for together, a, b in zip(found, *alone, strict=True):
            for name in CLASSES:
                mean = (a.probabilities[name] + b.probabilities[name]) / 2
                assert together["probabilities"][name] == pytest.approx(mean)
            assert together["label"] == max(CLASSES, key=together["probabilities"].__getitem__)
        (other / "classes.json").write_text('["a", "b", "c"]')
        assert "these differ" in here("classify", one, "--ensemble", other, "a").stderr

    def test_one_text(self, random_runs: dict[str, Path]) -> None:
        run = load(random_runs["encoder"])
        assert run.classify("abc") == run.classify(["abc"])[0]

    def test_dont_know(self, here: Cli, random_runs: dict[str, Path]) -> None:
        """By hand: logits (1, 2, 0) give e² / (e + e² + 1) = 0.6652 to the second class."""
        import torch

        run = load(random_runs["encoder"])
        assert run.model.output is not None
        with torch.no_grad():
            run.model.output.weight.zero_()
            run.model.output.bias.copy_(torch.tensor([1.0, 2.0, 0.0]))
        share = math.e**2 / (math.e + math.e**2 + 1)
        assert share == pytest.approx(0.6652, abs=1e-4)
        for threshold, label in ((0.0, "printer"), (0.665, "printer"), (0.666, None), (1.0, None)):
            (found,) = run.classify(["x"], threshold=threshold)
            assert found.label == label
            assert found.probabilities["printer"] == pytest.approx(share)
        done = here("classify", random_runs["encoder"], "a", "", "--threshold", 1.0)
        assert done.stdout == "don't know\n\n"
        (found,) = objects(here("classify", random_runs["encoder"], "a", "--threshold", 1.0, "--json").stdout)
        assert found["label"] is None
        assert here("classify", random_runs["encoder"], "a", "--threshold", 1.1).returncode == 2

    def test_what_is_longer_than_the_positions(self, here: Cli, tmp_path: Path) -> None:
        learned = random_run(tmp_path / "learned", "encoder", positions={"kind": "learned", "size": 4})
        done = here("classify", learned, "12345", "1234")
        assert done.returncode == 1
        assert done.stdout.splitlines()[0] == ""
        done = here("classify", learned, "12345", "1234", "--truncate")
        assert done.returncode == 0
        assert len(set(done.stdout.splitlines())) == 1
        assert "1 line longer than the model takes: cut" in done.stderr

    def test_broken_class_names(self, here: Cli, tmp_path: Path) -> None:
        run = random_run(tmp_path / "run", "encoder")
        for content, sentence in (
            ('["a", "b"]', "must hold a list of 3 different names, as many as the model's classes"),
            ('["a", "b", "b"]', "must hold a list of 3 different names"),
            ('["a", "b", "\\ud800"]', "must hold a list of 3 different names"),
            ("{", "cannot read the names of the classes"),
        ):
            (run / "classes.json").write_text(content)
            assert sentence in here("classify", run, "a").stderr


class TestSteps:
    def test_of_a_decoder(self, here: Cli, random_runs: dict[str, Path]) -> None:
        done = here("steps", random_runs["decoder"], "ab", "--max-length", 3)
        assert "<s> a b" in done.stdout
        assert "cut at the length limit of 3 tokens" in done.stderr

    def test_prefix_and_sampling(self, here: Cli, run_directory: Path) -> None:
        (one,) = objects(here("steps", run_directory, "c a b", "--prefix", "b", "--json").stdout)
        assert [step["chosen"]["token"] for step in one["steps"]] == ["a", "c", "</s>"]
        assert one["steps"][0]["so_far"] == ["<s>", "b"]
        (drawn,) = objects(here("steps", run_directory, "c a b", "--sample", "--temperature", 99, "--json").stdout)
        assert drawn["steps"][0]["chosen"]["probability"] < 0.5

    def test_the_search_is_shown(self, here: Cli, run_directory: Path) -> None:
        done = here("steps", run_directory, "c a b", "--beam-size", 3, "--n-best", 2)
        for text in ("goes on", "finished", "pruned: 3 better ones go on", "The search stopped: ", "b a c (end)"):
            assert text in done.stdout
        (one,) = objects(here("steps", run_directory, "c a b", "--beam-size", 3, "--n-best", 2, "--json").stdout)
        assert one.keys() == {"source", "steps", "stopped", "results"}
        assert [len(step) for step in one["steps"][:2]] == [6, 6]
        assert one["steps"][0][0].keys() == {
            "parent", "token", "log_probability", "total", "penalty", "score", "fate", "why"
        }  # fmt: skip
        assert one["results"][0]["text"] == "b a c"

    def test_nonsense(self, here: Cli, run_directory: Path) -> None:
        assert here("steps", run_directory, "a b", "--beam-size", 2, "--top", 5).returncode == 2
        assert "the text is blank" in here("steps", run_directory, " ").stderr
        done = here("steps", run_directory, "a b", "--sample", "--n-best", 2)
        assert "steps show one result, not the 2 of n_best" in done.stderr


class TestScore:
    def test_it_recomputes_what_the_search_printed(self, here: Cli, run_directory: Path, tmp_path: Path) -> None:
        """Fault 17, on the trained toy, with a beam, penalties and rules."""
        sources, targets = tmp_path / "source.txt", tmp_path / "target.txt"
        sources.write_text("c a b\n\nh i j d\na\n")
        for settings in (
            (),
            ("--length-penalty", "average"),
            ("--alpha", 2.0),
            ("--forbid", "<pad>", "--min-length", 5),
            ("--no-repeat-ngram", 1),
        ):
            beam = () if "--min-length" in settings else ("--beam-size", 3)
            written = here("translate", run_directory, "--input", sources, "--scores", *settings, *beam).stdout
            rows = [line.split("\t") for line in written.splitlines()]
            targets.write_text("".join(f"{row[2]}\n" for row in rows))
            done = here("score", run_directory, "--source", sources, "--target", targets, *settings)
            scores = [line.split("\t") for line in done.stdout.splitlines()]
            assert scores[1] == [""]
            for i in (0, 2, 3):
                assert [float(x) for x in scores[i][:2]] == pytest.approx([float(x) for x in rows[i][:2]], abs=2e-4)

    def test_tokens_and_perplexity(self, here: Cli, run_directory: Path) -> None:
        done = here("score", run_directory, "c a b\tb a c", "c a\ta a", "--tokens")
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        total, n = 0.0, 0
        for row, expected in zip(rows, (["b", "a", "c", "</s>"], ["a", "a", "</s>"]), strict=True):
            pairs = [pair.rsplit(":", 1) for pair in row[3].split(" ")]
            assert [token for token, _ in pairs] == expected
            values = [float(value) for _, value in pairs]
            assert sum(values) == pytest.approx(float(row[1]), abs=1e-3)
            assert float(row[2]) == pytest.approx(math.exp(-sum(values) / len(values)), rel=1e-3)
            total, n = total + sum(values), n + len(values)
        assert done.stderr.startswith("perplexity ")
        assert float(done.stderr.split()[1]) == pytest.approx(math.exp(-total / n), rel=1e-3)
        assert done.stderr.endswith(" over 7 tokens in 2 lines\n")

    def test_unfinished(self, here: Cli, run_directory: Path) -> None:
        (whole, part) = (
            objects(here("score", run_directory, "c a b\tb a", "--json", *more).stdout)[0]
            for more in ((), ("--unfinished",))
        )
        assert whole["tokens"] == ["b", "a", "</s>"]
        assert part["tokens"] == ["b", "a"]
        assert part["log_probabilities"] == pytest.approx(whole["log_probabilities"][:2])

    def test_of_a_decoder(self, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
        """A whole line, and the same as a prompt with what follows: the sums go together."""
        run = random_runs["decoder"]
        (one,) = objects(here("score", run, "ab cd", "--json").stdout)
        assert len(one["tokens"]) == 5  # the start token comes before them; no end
        before, after = tmp_path / "a", tmp_path / "b"
        before.write_text("ab\n")
        after.write_text(" cd\n")
        (pair,) = objects(here("score", run, "--source", before, "--target", after, "--unfinished", "--json").stdout)
        assert pair["log_probabilities"] == pytest.approx(one["log_probabilities"][2:], abs=1e-5)
        (ended,) = objects(here("score", run, "--source", before, "--target", after, "--json").stdout)
        assert ended["tokens"][-1] == "</s>"

    def test_bad_lines(self, here: Cli, run_directory: Path) -> None:
        done = here("score", run_directory, "c a b\tb a c", "no tab", "a\tz", "a\t", "\tb", "")
        assert done.returncode == 1
        assert [bool(line) for line in done.stdout.split("\n")[:6]] == [True] + [False] * 5
        assert "line 2: no tab: write source and target with a tab between, or give two files\n" in done.stderr
        assert "line 3: the target: character 1 is 'z'" in done.stderr
        assert "over 4 tokens in 6 lines; 3 left out, as one side is blank\n" in done.stderr

    def test_files_that_do_not_fit(self, here: Cli, run_directory: Path, tmp_path: Path) -> None:
        """Fault 4."""
        ten, nine, latin = tmp_path / "ten", tmp_path / "nine", tmp_path / "latin"
        ten.write_text("a\n" * 10)
        nine.write_text("a\n" * 9)
        latin.write_bytes(b"a\n" * 6 + b"\xe4\n" + b"a\n" * 3)
        done = here("score", run_directory, "--source", ten, "--target", nine)
        assert done.stderr.startswith(f"glassformer: {ten} has 10 lines, but {nine} has 9: line i of the one must")
        done = here("score", run_directory, "--source", ten, "--target", latin)
        assert done.stderr == f"glassformer: {latin}, line 7 is not UTF-8; convert the file first\n"
        assert here("score", run_directory, "--source", ten).returncode == 2

    def test_an_encoder_has_no_scores(self, here: Cli, random_runs: dict[str, Path]) -> None:
        assert (
            "an encoder-only model does not write: it classifies" in here("score", random_runs["encoder"], "a").stderr
        )

    def test_blank_sides(self, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x\n\nx\n")
        (tmp_path / "b").write_text("y\ny\n\n")
        done = here("score", random_runs["decoder"], "--source", tmp_path / "a", "--target", tmp_path / "b", "--json")
        assert [one["score"] is None for one in objects(done.stdout)] == [False, True, True]
        assert "over 2 tokens in 3 lines; 2 left out, as one side is blank" in done.stderr

    def test_only_what_changes_a_score_is_offered(self, here: Cli, run_directory: Path) -> None:
        assert here("score", run_directory, "a\ta", "--beam-size", 4).returncode == 2
