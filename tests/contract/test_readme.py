"""What the README shows is run, and its tree is the tree."""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from glassformer.explorer.server import has_page
from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("glassformer")
]
SOURCE = ROOT / "src" / "glassformer"


TRAINING = [command for command in COMMANDS if " train " in command]


@pytest.fixture(scope="module")
def place(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs/reversal in it, as after `make demo`, and with tickets to learn from."""
    place = tmp_path_factory.mktemp("place")
    for name in ("reversal", "microscope"):
        shutil.copytree(run_directory, place / "runs" / name)
    lines = ["text,team", *(f"the {what} is on fire,{what}" for what in ("printer", "screen") for _ in range(20))]
    for name in ("train", "dev", "test"):
        with gzip.open(place / f"tickets.{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    (place / "theirs.py").write_text(
        "import torch\n\n\ndef build():\n    model = torch.nn.Transformer(64, 4, 2, 2, 256, batch_first=True)\n"
        "    model.encoder.norm = model.decoder.norm = None\n    return model\n"
    )
    return place


def test_commands(cli: Cli, place: Path) -> None:
    """In their order, as later ones use what earlier ones made."""
    for command in COMMANDS:
        command = command.replace("$(printf '\\t')", "\t")  # what a shell makes of it
        words = shlex.split(command, comments=True)[1:]
        if words[0] == "explore":
            if not has_page():
                continue  # Node is not at hand
            if "--export" not in words:
                explored(words, place)
                continue
        if command in TRAINING and "--resume" not in words:
            words += ["--set", "train.steps=2"] if "reversal" in words else ["--set", "train.epochs=1"]
        done = cli(*words, cwd=place)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if command not in TRAINING:
            assert not done.stderr or " score " in command, command  # which sums up there
            assert done.stdout or " new " in command, command


def explored(words: list[str], place: Path) -> None:
    """Start the explorer, ask it for its runs, and stop it."""
    command = [sys.executable, "-m", "glassformer", *words, "--no-open"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert said is not None
            runs = httpx.get(f"{said[0]}api/about", timeout=60).json()["runs"]
            assert len(runs) == sum(not word.startswith("-") for word in words[1:])
        finally:
            process.terminate()


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 10
    assert len(TRAINING) == 4


def test_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that promises a value gives it."""
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(place)
    names: dict[str, object] = {}
    promises = 0
    for line in block.splitlines():
        code, _, promise = line.partition("  # ")
        promise = promise.partition(";")[0]
        if re.match(r"^\s*(?:['(\d\[])", promise) and "(T, S)" not in promise:
            assert eval(code, names) == eval(promise), line
            promises += 1
        elif code.strip():
            exec(code, names)
    assert promises == 8


def test_tree() -> None:
    (tree,) = re.findall(r"```text\n(src/.*?)```", README, re.DOTALL)
    named = set(re.findall(r"[\w/]+\.py", tree)) - {"mutants.py", "cli/VERB.py"}
    existing = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.name.startswith("__")}
    assert named == existing


def test_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:`|^)make (\w+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links() -> None:
    for link in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / link).exists(), link


def test_ci_runs_the_readmes_test_command() -> None:
    """With a browser, which the README does not ask for."""
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in lines if re.match(r"(make|python|pytest|npm)\b", line)] == ["make test"] == lines[-1:]
    assert "export GLASSFORMER_REQUIRE_BROWSER=1" in lines
    assert "```sh\nmake test\n```" in README
