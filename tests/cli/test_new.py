"""`glassformer new`, and the commented text that it writes."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from glassformer.config import Config, load_config, parse, preset, preset_names
from glassformer.config.comments import WIDTH, commented, comments_of
from glassformer.config.data import DataConfig
from glassformer.config.model import ModelConfig, Norm
from glassformer.config.run import DecodeConfig
from glassformer.config.train import TrainConfig
from tests.conftest import Cli

TABLES = [
    "model", "model.norm", "model.positions", "model.ffn", "model.embedding", "model.dropout", "model.classifier",
    "data", "text", "target_text", "train", "train.optimizer", "train.schedule", "decode", "notes",
]  # fmt: skip
SETTING = re.compile(r"^#(?=[\w\[])", re.MULTILINE)  # a line that is commented out, not a comment


def uncommented(text: str) -> str:
    """Let every default stand; what has none stays out."""
    lines = [line for line in text.splitlines() if not re.match(r"#\w+ = …", line)]
    return SETTING.sub("", "\n".join(lines))


def class_of(table: str) -> type[BaseModel]:
    found: type[BaseModel] = Config
    for part in table.split("."):
        annotation = found.model_fields[part].annotation
        found = next(
            one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)
        )
    return found


@pytest.mark.parametrize("name", preset_names())
def test_says_what_the_preset_says(name: str) -> None:
    text = commented(preset(name))
    assert parse(text, "x") == preset(name)
    assert parse(text, "x").model.model_fields_set >= preset(name).model.model_fields_set
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", preset_names())
def test_every_field_of_every_table(name: str) -> None:
    text = SETTING.sub("", commented(preset(name)))
    assert re.findall(r"^\[(.*)\]", text, re.MULTILINE) == TABLES
    for table, part in zip(TABLES, re.split(r"^\[.*\]\n", text, flags=re.MULTILINE)[1:], strict=True):
        fields = [name for name, field in class_of(table).model_fields.items() if f"{table}.{name}" not in TABLES]
        assert re.findall(r"^(\w+) = ", part, re.MULTILINE) == fields, table


@pytest.mark.parametrize("name", ["paper-base", "smollm2-135m"])
def test_a_commented_line_shows_what_holds_anyway(name: str) -> None:
    """With every default written out, the model is the same one."""
    values = tomllib.loads(uncommented(commented(preset(name))))
    for table in ("data", "text", "target_text"):  # a table without its files is refused
        if getattr(preset(name), table) is None:
            values.pop(table)
    values["model"].pop("classifier")
    if preset(name).train is None:
        values.pop("train")
    assert Config.model_validate(values) == preset(name)


def test_comments_come_from_the_source() -> None:
    assert comments_of(ModelConfig)["d_ff"] == "section 3.3"
    assert comments_of(ModelConfig)["n_heads"] == "h, section 3.2.2"
    assert comments_of(Norm)["placement"].startswith("post: LayerNorm(x + Sublayer(x)), section 3.1; pre: ")
    assert comments_of(DecodeConfig)["n_best"].startswith("how many results a line gives")  # inside brackets
    assert comments_of(TrainConfig)["smoothing"].endswith("ε/(V - 2) each")  # two lines above
    assert "seed" not in comments_of(TrainConfig)
    assert not comments_of(DataConfig)["source"].startswith("#")


def test_what_a_line_looks_like() -> None:
    lines = commented(preset("reversal"), "mine.toml").splitlines()
    assert lines[0] == 'about = "The 2017 Transformer at toy size: it learns to write letters backwards."'
    assert lines[1] == "# To train this: glassformer train mine.toml"
    assert "n_heads = 4  # h, section 3.2.2" in lines
    assert '#kind = "layernorm"  # "layernorm" | "rmsnorm"' in lines
    assert "#eps = 1e-05" in lines
    assert "#d_head = …  # a whole number; d_k = d_v in the paper; unset: d_model / n_heads" in lines
    assert "#[model.classifier]" in lines
    assert "[data]" in lines
    assert "#[target_text]" in lines


def test_long_values() -> None:
    files = [f"a/folder/with/a/long/name/{i}.tsv" for i in range(9)]
    about = 'It is "long", ' * 20 + "and has a \\ in it."
    values = {"about": about, "data": {"train": files}, "text": {"kind": "bytes"}}
    config = Config.model_validate(preset("paper-base").model_dump(exclude_none=True) | values)
    text = commented(config)
    assert parse(text, "x") == config
    assert max(map(len, text.splitlines())) <= WIDTH


def test_new(here: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    done = here("new", "number-words", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"The configuration is in {file}. Train it: glassformer train {file}\n"
    assert load_config(file) == preset("number-words")
    assert f"glassformer train {file}" in file.read_text(encoding="utf-8")


def test_a_preset_without_data(here: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    done = here("new", "smollm2-135m", file)
    assert done.stdout.endswith("Fill in [data] and [train] first.\n")
    (line,) = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# To train this")]
    assert line.startswith("# To train this: name the files to learn from in [data], set [train], then ")


def test_never_written_over(here: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("mine")
    done = here("new", "reversal", file)
    assert done.returncode == 2
    assert done.stderr == (
        f"glassformer: {file} is there already and is never written over: choose another name, or remove it\n"
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("preset", "file", "sentence"),
    [
        ("reversl", "a.toml", "there is no preset 'reversl'; did you mean 'reversal'?"),
        ("reversal", "a.txt", "the name of a configuration must end in .toml, such as a.toml"),
        ("reversal", "a", "the name of a configuration must end in .toml, such as a.toml"),
        ("reversal", "no/such/a.toml", "make it first, or choose another place for a.toml"),
    ],
)
def test_refused(here: Cli, tmp_path: Path, preset: str, file: str, sentence: str) -> None:
    done = here("new", preset, tmp_path / file)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
