"""Each verb as a person or a program uses it: what comes out, where, with which exit code."""

import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.cli.show import number, shaded_map
from tests.conftest import Cli


def loaded(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


class TestTranslate:
    def test_lines_in_lines_out(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, stdin="c a b e d\ncabed\n\n  \na b c")
        assert done.stdout == "d e b a c\nd e b a c\n\n\nc b a\n"
        assert (done.stderr, done.returncode) == ("", 0)

    def test_arguments(self, cli: Cli, run_directory: Path) -> None:
        assert cli("translate", run_directory, "c a b e d", "", "a b c").stdout == "d e b a c\n\nc b a\n"

    def test_line_ends(self, cli: Cli, run_directory: Path) -> None:
        """CRLF and a byte order mark never reach a token; other characters that look like line ends end no line."""
        data = "\ufeffa b c\r\na\u2028b\u0085c\x0b\r\na\rb\rc\n".encode()
        assert cli("translate", run_directory, stdin=data).stdout == "c b a\n" * 3

    def test_unreadable_lines(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, stdin="a b c\na z\n\nb é\nc a b\n")
        assert done.stdout == "c b a\n\n\n\nb a c\n"
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "line 2: character 3 is 'z', which the vocabulary does not have. It has: a b c d e f g h i j",
            "line 4: character 3 is 'é', which the vocabulary does not have. It has: a b c d e f g h i j",
        ]

    def test_a_line_that_is_not_utf8_is_an_unreadable_line(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, stdin=b"a b c\nb \xe9\nc b a\n")
        assert done.stdout == "c b a\n\na b c\n"
        assert done.stderr == "line 2: character 3 is not UTF-8; convert the text first\n"
        assert done.returncode == 1
        done = cli("translate", run_directory, os.fsdecode(b"a\xff"), "--json")
        assert loaded(done.stdout)["source"] == "a?".replace("?", "\ufffd")
        assert done.returncode == 1

    def test_past_a_learned_table(self, cli: Cli, tmp_path: Path) -> None:
        """A line that is too long for the model takes no other line with it."""
        learned = ("--set", "model.positions.kind=learned", "--set", "model.positions.size=9")
        cli("train", "reversal", "--run", "run", *TestTrain.SMALL, *learned, cwd=tmp_path)
        done = cli("translate", "run", "--json", stdin="a b c\na b c d e f g h i j\n", cwd=tmp_path)
        first, second = map(loaded, done.stdout.splitlines())
        assert 1 <= len(first["tokens"]) <= 9
        assert second["error"] == "the text has 10 tokens, but the model's learned positions end after 9"
        assert done.returncode == 1

    def test_output_that_cannot_be_written(self, run_directory: Path) -> None:
        import subprocess

        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "glassformer", "translate", str(run_directory), "a b"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.stderr == "glassformer: cannot write the output: No space left on device\n"
        assert done.returncode == 1

    @pytest.mark.parametrize("closed", ["<&-", ">&-"])
    def test_closed_streams(self, run_directory: Path, closed: str) -> None:
        import subprocess

        command = f"{sys.executable} -m glassformer translate {run_directory} {closed}"
        done = subprocess.run(["sh", "-c", command], input=b"", capture_output=True, check=False)
        assert done.stderr == b""

    def test_nothing(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, stdin="")
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)

    def test_json(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, "--json", stdin="a b c\n\nz\n")
        first, second, third = map(loaded, done.stdout.splitlines())
        assert first.keys() == {"source", "target", "tokens", "score", "log_probability", "stopped"}
        assert (first["source"], first["target"], first["tokens"]) == ("a b c", "c b a", ["c", "b", "a"])
        assert first["stopped"] == "end"
        assert -2 < first["log_probability"] < 0
        assert (second["target"], second["stopped"]) == ("", "empty")
        assert (third["target"], third["stopped"]) == ("", "unreadable")
        assert "'z'" in third["error"]
        assert done.returncode == 1

    def test_the_length_limit_cuts_and_says_so(self, cli: Cli, run_directory: Path) -> None:
        done = cli("translate", run_directory, "--max-length", "4", stdin="a b c\na b c d\n")
        assert done.stdout == "c b a\nd c b a\n"
        assert done.stderr == "line 2: cut at the length limit of 4 tokens\n"
        assert done.returncode == 0

    def test_two_hundred_letters(self, cli: Cli, tmp_path: Path) -> None:
        """Sinusoids have no end. A model that was hardly trained never ends by itself: 200 letters and 50 more."""
        cli("train", "reversal", "--run", "run", "--set", "train.steps=1", "--set", "data.test_size=5", cwd=tmp_path)
        done = cli("translate", "run", "--json", stdin=" ".join("abcdefghij" * 20), cwd=tmp_path)
        assert len(loaded(done.stdout)["tokens"]) == 250
        assert done.stderr == "line 1: cut at the length limit of 250 tokens\n"
        assert done.returncode == 0

    @pytest.mark.parametrize(
        ("damage", "sentence"),
        [
            (lambda run: shutil.rmtree(run), "there is no run at"),
            (lambda run: (run / "model.safetensors").unlink(), "is not finished"),
            (lambda run: (run / "model.safetensors").write_bytes(b"x" * 999), "is damaged or cut short"),
            (lambda run: (run / "tokenizer.json").write_text("{"), "is damaged"),
            (lambda run: (run / "config.toml").write_text("about = 3"), "is damaged"),
        ],
    )
    def test_broken_runs(self, cli: Cli, run_directory: Path, tmp_path: Path, damage: Any, sentence: str) -> None:
        broken = Path(shutil.copytree(run_directory, tmp_path / "run"))
        damage(broken)
        done = cli("translate", broken, "a b c")
        assert (done.stdout, done.returncode) == ("", 1)
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1


class TestTrain:
    SMALL = (
        "--set",
        "train.steps=4",
        "--set",
        "train.evaluate_every=2",
        "--set",
        "train.snapshot_every=2",
        "--set",
        "data.test_size=5",
    )

    def test_train_then_use(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("train", "reversal", *self.SMALL, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stdout == "The run is in runs/reversal. Its weights: after step 4.\n"
        assert "training loss   validation loss        exact match" in done.stderr
        assert (
            "the learning rate has its peak of 6.25e-05 at step 4" in done.stderr
        )  # training ends on the way upassert (tmp_path / "runs/reversal/model.safetensors").is_file()
        again = cli("train", "reversal", *self.SMALL, cwd=tmp_path)
        assert again.returncode == 1
        assert "never written over" in again.stderr
        assert len(cli("translate", "runs/reversal", "a b", cwd=tmp_path).stdout.splitlines()) == 1

    def test_a_file_of_ones_own(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "mine.toml").write_text(
            '[model]\nsource_vocabulary = 13\ntarget_vocabulary = 13\nn_encoder_layers = 1\nn_decoder_layers = 1\n'
            'd_model = 16\nd_ff = 32\nn_heads = 2\n[data]\ntask = "reversal"\n[train]\nsteps = 3\n'
        )  # fmt: skip
        done = cli("train", "mine.toml", "--run", "here", "--json", cwd=tmp_path)
        report = loaded(done.stdout)
        assert report.keys() == {"run", "weights", "evaluations", "averaged"}
        assert report["run"] == "here"
        assert [evaluation["step"] for evaluation in report["evaluations"]] == [1, 3]
        assert (tmp_path / "here/model.safetensors").is_file()

    def test_full_disk(self, tmp_path: Path) -> None:
        """The file system's limit stands for a full disk: one sentence, and no run that looks whole."""
        import resource
        import subprocess

        done = subprocess.run(
            [sys.executable, "-m", "glassformer", "train", "reversal", *self.SMALL, "--run", "run"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
        )
        assert done.returncode == 1
        assert "glassformer: cannot write" in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.rglob("*.safetensors"))
        assert not list(tmp_path.rglob("*.part"))

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("reversl",), "there is no preset 'reversl'; did you mean 'reversal'?"),
            (("reversal", "--set", "train.stps=3"), "[train] has no field 'stps'; did you mean 'steps'?"),
            (("smollm2-135m",), "there is nothing to train in smollm2-135m: it has no [train] part"),
        ],
    )
    def test_wrong_usage(self, cli: Cli, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
        done = cli("train", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert not list(tmp_path.iterdir())


class TestDemo:
    def test_demo(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("demo", "--steps", "12", cwd=tmp_path)
        assert done.returncode == 0
        assert "An encoder–decoder of 234,304 parameters" in done.stdout
        assert "cannot fall below 0.537" in done.stdout
        assert "   step       rate   training loss   validation loss        exact match" in done.stdout
        assert "1.56e-05" in done.stdout  # the rate that step 1 used, not the next step's
        for text in (
            "decoder input so far",
            "<s> → ",
            "█ above",
            "glassformer translate runs/reversal",
            "glassformer explore runs/reversal runs/microscope",
        ):
            assert text in done.stdout

    def test_json_and_the_next_free_number(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "runs/reversal").mkdir(parents=True)
        done = cli("demo", "--steps", "2", "--seed", "3", "--json", cwd=tmp_path)
        report = loaded(done.stdout)
        assert report["run"] == "runs/reversal-2"
        assert report["source"] == "c a b e d"
        assert [evaluation["step"] for evaluation in report["evaluations"]] == [1, 2]
        attention = report["cross_attention"]
        assert attention["columns"] == list("cabed")
        assert len(attention["weights"]) == len(attention["rows"]) >= len(report["steps"])
        for row in attention["weights"]:
            assert sum(row) == pytest.approx(1, abs=1e-5)


class TestSteps:
    def test_table(self, cli: Cli, run_directory: Path) -> None:
        done = cli("steps", run_directory, "c a b e d")
        rows = [line.split("  ") for line in done.stdout.splitlines()]
        chosen = [
            [cell.strip() for cell in row if cell.strip()][:2] for row in rows if row[0].strip().startswith("<s>")
        ]
        assert chosen == [
            ["<s>", "d"],
            ["<s> d", "e"],
            ["<s> d e", "b"],
            ["<s> d e b", "a"],
            ["<s> d e b a", "c"],
            ["<s> d e b a c", "</s>"],
        ]

    def test_json(self, cli: Cli, run_directory: Path) -> None:
        report = loaded(cli("steps", run_directory, "a b", "--json", "--top", "2").stdout)
        assert [step["chosen"]["token"] for step in report["steps"]] == ["b", "a", "</s>"]
        assert all(len(step["candidates"]) == 2 for step in report["steps"])

    def test_bad_text(self, cli: Cli, run_directory: Path) -> None:
        for text, sentence in (("", "the text is blank"), ("a z", "character 3 is 'z'")):
            done = cli("steps", run_directory, text)
            assert (done.stdout, done.returncode) == ("", 1)
            assert sentence in done.stderr


class TestTrace:
    def test_table_lists_every_tensor(self, cli: Cli, run_directory: Path) -> None:
        out = cli("trace", run_directory, "c a b e d").stdout
        assert out.startswith("source c a b e d · target <s> d e b a c\n")
        line = next(line for line in out.splitlines() if "decoder.layers.1.cross_attention.weights" in line)
        assert "B H T S" in line
        assert "(1, 4, 6, 5)" in line

    def test_json_has_values_of_what_was_asked_for(self, cli: Cli, run_directory: Path) -> None:
        name = "decoder.layers.0.self_attention.masked"
        report = loaded(cli("trace", run_directory, "a b", "--target", "b a", "--tensor", name, "--json").stdout)
        assert report["target_tokens"] == ["<s>", "b", "a"]
        (tensor,) = report["tensors"]
        assert (tensor["name"], tensor["axes"], tensor["shape"]) == (name, ["B", "H", "T", "S"], [1, 4, 3, 3])
        assert tensor["values"][0][0][0][1:] == [None, None]  # hidden: minus infinity, which JSON does not have
        everything = loaded(cli("trace", run_directory, "a b", "--json").stdout)
        assert len(everything["tensors"]) > 90
        assert "values" not in everything["tensors"][0]

    def test_npz(self, cli: Cli, run_directory: Path, tmp_path: Path) -> None:
        done = cli("trace", run_directory, "a b", "--npz", tmp_path / "t.npz", "--tensor", "*.weights")
        assert "wrote 6 tensors" in done.stdout
        with np.load(tmp_path / "t.npz") as arrays:
            assert len(arrays.files) == 6
            assert arrays["encoder.layers.0.self_attention.weights"].shape == (1, 4, 2, 2)

    def test_unknown_tensor(self, cli: Cli, run_directory: Path) -> None:
        done = cli("trace", run_directory, "a b", "--tensor", "logit")
        assert done.returncode == 1
        assert "did you mean 'logits'?" in done.stderr


class TestCount:
    @pytest.mark.parametrize(
        ("arguments", "total"),
        [
            (("reversal",), 234304),
            (("paper-base",), 63082496),
            (("paper-base", "--set", "model.tying=source-target"), 82026496),
            (
                (
                    "paper-base",
                    "--set",
                    "model.source_vocabulary=32000",
                    "--set",
                    "model.target_vocabulary=32000",
                    "--set",
                    "model.tying=target-output",
                ),
                76906496,
            ),
            (("paper-big",), 214245376),
            (("smollm2-135m",), 134515008),
        ],
    )
    def test_totals(self, cli: Cli, arguments: tuple[str, ...], total: int) -> None:
        assert loaded(cli("count", *arguments, "--json").stdout)["total"] == total

    def test_table_of_a_run(self, cli: Cli, run_directory: Path) -> None:
        out = cli("count", run_directory).stdout
        assert "The built model holds 234,304 parameters, which the formulas give too." in out
        assert (
            "One matrix, counted once: encoder.embedding.tokens.weight = decoder.embedding.tokens.weight = output.weight"
            in out
        )
        assert "4 d² + 4 d" in out

    def test_tying_of_different_vocabularies(self, cli: Cli) -> None:
        done = cli("count", "paper-base", "--set", "model.source_vocabulary=32000")
        assert done.returncode == 2
        assert (
            "makes source and target one matrix, but source_vocabulary=32000 and target_vocabulary=37000 differ"
            in done.stderr
        )


class TestTables:
    def test_shapes_answer_the_guided_practice(self, cli: Cli) -> None:
        report = loaded(cli("shapes", "reversal", "--source-length", "7", "--target-length", "8", "--json").stdout)
        shapes = {row["name"]: row for row in report["shapes"]}
        assert shapes["encoder.layers.0.self_attention.weights"]["shape"] == [1, 4, 7, 7]
        assert shapes["decoder.layers.1.self_attention.weights"]["hidden_cells_per_head"] == 28
        assert shapes["decoder.layers.1.cross_attention.weights"]["shape"] == [1, 4, 8, 7]
        out = cli("shapes", "reversal", "--source-length", "7", "--target-length", "8").stdout
        for text in (
            "(1, 7, 256)",
            "(1, 8, 13)",
            "28 hidden cells a head",
            "decoder.layers.0 stands for 2 equal layers, 0 to 1.",
        ):
            assert text in out
        assert "layers.1" not in out

    def test_shapes_of_the_largest_preset_cost_nothing(self, cli: Cli) -> None:
        report = loaded(cli("shapes", "smollm2-135m", "--target-length", "8192", "--json").stdout)
        shapes = {row["name"]: row["shape"] for row in report["shapes"]}
        assert shapes["decoder.layers.29.self_attention.weights"] == [1, 9, 8192, 8192]
        assert shapes["decoder.layers.29.self_attention.rotated_k"] == [1, 3, 8192, 64]

    def test_positions(self, cli: Cli) -> None:
        report = loaded(cli("positions", "reversal", "--at", "2", "--columns", "2", "--json").stdout)
        assert report["table"][0] == pytest.approx([math.sin(2), math.cos(2)])
        assert report["waves"][31]["wavelength"] == pytest.approx(47117.2, abs=0.1)
        out = cli("positions", "reversal", "--at", "0,10,40").stdout
        for text in ("(0.6529, 0.7574)", "(0.0588, -0.9983)", "(-0.6977, -0.7164)", "47,117.2"):
            assert text in out

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("smollm2-135m", "Angles in radians"),
            ("number-words", "positions are learned: one row of 64 numbers for each of 16"),
        ],
    )
    def test_positions_of_other_kinds(self, cli: Cli, name: str, text: str) -> None:
        done = cli("positions", name)
        assert text in done.stdout
        assert done.returncode == 0

    def test_schedule(self, cli: Cli) -> None:
        report = loaded(cli("schedule", "reversal", "--at", "100,1600", "--json").stdout)
        assert [row["rate"] for row in report["rates"]] == pytest.approx([0.0015625, 0.003125])
        assert report["peak"] == {"step": 400, "rate": pytest.approx(0.00625)}
        out = cli("schedule", "paper-base", "--at", "1,4000").stdout
        assert "1.747e-07" in out
        assert "The peak is 6.988e-04, at step 4,000." in out

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("schedule", "reversal", "--at", "0"), "0 is not between 1 and 1,000,000,000"),
            (("schedule", "reversal", "--at", "x"), "write whole numbers with commas between"),
            (("schedule", "smollm2-135m"), "has no [train] part, so it has no schedule"),
            (("positions", "reversal", "--at", "-1"), "-1 is not between 0 and 1,000,000,000"),
            (("positions", "reversal", "--pair", "32"), "there is no pair 32: with d_model=64 the pairs are 0 to 31"),
            (("positions", "smollm2-135m", "--shift", "2"), "is shown on sinusoidal positions, not on rotary ones"),
            (("shapes", "reversal", "--source-length", "0"), "greater than or equal to 1"),
            (("positions", "reversal", "--shift", "9" * 20), "equal to 1000000000"),
            (("shapes", "reversal", "--source-length", "9" * 20), "equal to 1000000"),
            (("shapes", "smollm2-135m", "--source-length", "5"), "a model of kind 'decoder' has no such side"),
            (("demo", "--seed", "9" * 20), "train.seed"),
            (("tran",), "Did you mean 'train'"),
            (("count",), "Missing argument 'X'"),
            (("count", "reversal", "--jsn"), "No such option: --jsn"),
        ],
    )
    def test_wrong_usage(self, cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
        done = cli(*arguments)
        assert (done.stdout, done.returncode) == ("", 2)
        assert sentence in " ".join(done.stderr.replace("│", " ").split())


class TestShow:
    def test_shaded_map(self) -> None:
        drawn = shaded_map([[0.0, 0.1, 0.3, 0.6, 0.9]], ["<s> → d"], list("abcde"))
        assert drawn.splitlines()[:2] == ["          a   b   c   d   e", "<s> → d   ·  ░░░ ▒▒▒ ▓▓▓ ███"]

    def test_long_tokens_widen_the_columns(self) -> None:
        top, row, _ = shaded_map([[1.0, 0.0]], ["r"], ["hundred", "x"]).splitlines()
        assert top == "   hundred    x"
        assert row == "r  ███████    ·"

    @pytest.mark.parametrize(
        ("value", "text"), [(0.0, "0.000"), (1234.5, "1,234.500"), (0.00012, "1.200e-04"), (-3e9, "-3.000e+09")]
    )
    def test_numbers(self, value: float, text: str) -> None:
        assert number(value) == text
