"""Format, lint and types, as `make check` has them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tool", [("ruff", "format", "--check", "."), ("ruff", "check", "."), ("mypy",)], ids=" ".join)
def test_style(tool: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
