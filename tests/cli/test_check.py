"""`glassformer check`: what the data doctor prints, and its exit code."""

import json
import re
from pathlib import Path

import pytest

from glassformer.learn.learner import Learner
from tests.conftest import Cli

WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]
TRAIN = [f"{a} {b}\t{b} {a} {a}" for a in WORDS for b in WORDS]
CONFIG = """
[model]
n_encoder_layers = 1
n_decoder_layers = 1
d_model = 8
d_ff = 8
n_heads = 2
[data]
train = ["train.tsv"]
validation = ["dev.tsv"]
[text]
kind = "words"
[train]
steps = 1
batch_size = 16
"""
CLASSIFIER = """
[model]
kind = "encoder"
n_encoder_layers = 1
d_model = 8
d_ff = 8
n_heads = 2
tying = "none"
[model.classifier]
[data]
train = ["train.tsv"]
[text]
kind = "words"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files and a configuration in the folder where one works."""
    (tmp_path / "train.tsv").write_text("".join(f"{line}\n" for line in TRAIN), encoding="utf-8")
    dev = "".join(f"eins {a} {b}\t{b} {a}\n" for a in WORDS for b in WORDS)
    (tmp_path / "dev.tsv").write_text(dev, encoding="utf-8")
    (tmp_path / "c.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


@pytest.fixture
def check(here: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    def call(*arguments: object):  # type: ignore[no-untyped-def]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            patch.setenv("GLASSFORMER_CACHE", str(place / "cache"))
            return here("check", *arguments)

    return call


def test_report(check: Cli, place: Path) -> None:
    done = check("c.toml")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip(" ─")]
    assert lines[:-1] == [
        "c.toml: a model of kind 'encoder-decoder' learns from train.tsv",
        "vocabulary of both sides: words, 12 tokens; normalised: white space to single blanks",
        " examples   train   validation",
        " read          64           64",
        " kept          64           64",
        " tokens                in all   unknown   shortest   median   95 %   longest   where",
        " train        source      128    0.00 %          2        2      2         2   train.tsv, line 1",
        " train        target      192    0.00 %          3        3      3         3   train.tsv, line 1",
        " validation   source      192    0.00 %          3        3      3         3   dev.tsv, line 1",
        " validation   target      128    0.00 %          2        2      2         2   dev.tsv, line 1",
    ]
    batch = r"The heaviest batch, 16 rows of 4 tokens, took \d+\.\d\d s forward and backward"
    assert re.fullmatch(batch + r"; (\d+ MB|\d+\.\d\d GB) of memory at the peak\.", lines[-1])
    assert {path.name for path in place.iterdir()} == {"train.tsv", "dev.tsv", "c.toml", "cache"}


def test_findings_come_with_the_worst_first(check: Cli, place: Path) -> None:
    more = ["eins zwei\tzwei eins eins", "schÃ¶n\tgut", "\tleer"]
    (place / "train.tsv").write_text("".join(f"{line}\n" for line in [*TRAIN, *more]), encoding="utf-8")
    (place / "dev.tsv").write_bytes(b"\xe4\teins\n")
    done = check("c.toml")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if re.match("error|warning|note", line)] == [
        "error", "warning", "note", "note",
    ]  # fmt: skip
    assert "error    validation: dev.tsv, line 1 is not UTF-8; convert the file first" in lines
    assert "note     train: 1 of 66 examples is a repetition of an earlier one" in lines
    assert " left out: blank                     1" in lines
    assert " repetitions of an earlier one       1" in lines
    assert lines[-1] == "No batch was tried: training would refuse."


def test_what_training_would_refuse(check: Cli) -> None:
    done = check("c.toml", "--set", "train.patience=3", "--set", "data.validation=[]")
    assert done.returncode == 1
    assert "error    patience, average_of='best' and a metric need examples that nothing is learnt from" in done.stdout
    assert "note     no validation examples" in done.stdout


def test_a_batch_that_does_not_fit(check: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "try_step", full)
        done = check("c.toml")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(
        "error    the heaviest batch, 16 rows of 4 tokens, does not fit into memory: lower train.batch_tokens"
    )


def test_json(check: Cli) -> None:
    done = check("c.toml", "--json", "--set", 'data.test=["train.tsv"]')
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    found = json.loads(done.stdout)
    assert list(found) == ["config", "vocabularies", "splits", "findings", "heaviest_batch"]
    assert found["vocabularies"] == [
        {"name": "text", "kind": "words", "size": 12, "normalised": "white space to single blanks"}
    ]
    assert [(one["split"], one["kept"]) for one in found["splits"]] == [("train", 64), ("validation", 64), ("test", 64)]
    assert found["splits"][2]["pairs_in_train"]["count"] == 64
    (finding,) = found["findings"]
    assert finding["severity"] == "warning"
    assert finding["text"].startswith("test: 64 of 64 sources stand in the training examples too, 64 with the same")
    assert {**found["heaviest_batch"], "seconds": 0, "peak_memory": 0} == {
        "rows": 16, "tokens": 4, "seconds": 0, "peak_memory": 0,
    }  # fmt: skip


def test_json_with_an_error(check: Cli) -> None:
    done = check("c.toml", "--json", "--set", "data.max_length=1")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["heaviest_batch"] is None
    assert [finding["severity"] for finding in found["findings"]] == ["error", "error"]


def test_two_vocabularies(check: Cli) -> None:
    settings = ["target_text.kind=letters", "model.tying=none", "text.normalise=['lowercase']"]
    done = check("c.toml", *(part for one in settings for part in ("--set", one)))
    assert "vocabulary of the sources: words, 12 tokens; normalised: lower case, white space" in done.stdout
    assert re.search(r"vocabulary of the targets: letters, \d+ tokens; normalised: nothing", done.stdout)


def test_classes(check: Cli, place: Path) -> None:
    (place / "c.toml").write_text(CLASSIFIER, encoding="utf-8")
    lines = [f"{line.replace(chr(9), ' ')}\tk{i % 21}\n" for i, line in enumerate(TRAIN * 2)]
    (place / "train.tsv").write_text("".join([*lines, "sieben\tk20\n", "acht\tk20\n"]), encoding="utf-8")
    done = check("c.toml")
    assert done.returncode == 0
    rows = re.findall(r"^ (k\d+) +(\d+)$", done.stdout, re.MULTILINE)
    assert len(rows) == 20
    assert rows[0] == ("k20", "8")  # the largest first
    assert "and 1 more, with fewer examples" in done.stdout
    assert "No batch was tried: the configuration has no [train] part." in done.stdout


def test_windows(check: Cli, place: Path) -> None:
    (place / "a.txt").write_text("to be or not to be\n" * 50, encoding="utf-8")
    text = CONFIG.replace("n_encoder_layers = 1", 'kind = "decoder"\ntying = "none"').replace("train.tsv", "a.txt")
    text = text.replace('validation = ["dev.tsv"]', "window = 32\nheld_out = 0.2").replace("words", "letters")
    (place / "c.toml").write_text(text, encoding="utf-8")
    done = check("c.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"windows +24 +6\n", done.stdout)
    assert re.search(r"tokens +in all +unknown +window\n", done.stdout)
    assert re.search(r"train +text +760 +0.00 % +32\n", done.stdout)


def test_tasks(check: Cli) -> None:
    done = check("reversal")
    assert done.returncode == 0
    assert (
        "reversal: a model of kind 'encoder-decoder' learns from 'reversal', which makes its own examples"
        in done.stdout
    )
    assert "note     train: the task 'reversal' draws its examples: there is no list to check" in done.stdout
    assert "The heaviest batch, 64 rows of 9 tokens" in done.stdout


def test_nothing_to_check(check: Cli) -> None:
    done = check("smollm2-135m")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "glassformer: there is nothing to check in smollm2-135m: it has no [data] part, which names the examples; "
        "presets with one: reversal, number-words, router\n"
    )


def test_training_files_that_cannot_be_read(check: Cli, place: Path) -> None:
    (place / "train.tsv").write_bytes(b"eins\tzwei\nsch\xf6n\tdrei\n")
    done = check("c.toml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "glassformer: train.tsv, line 2 is not UTF-8; convert the file first\n"
