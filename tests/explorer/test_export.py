"""The page as one file: whole, within its size, and safe from what a text holds."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.errors import DataError
from glassformer.explorer import server
from glassformer.explorer.export import write_page
from glassformer.explorer.shelf import Shelved, open_run
from tests.conftest import random_run

PAGE = """<!doctype html>
<html><head><meta charset="utf-8" />
<script type="module" crossorigin src="/page.js"></script>
<link rel="stylesheet" crossorigin href="/page.css"></head>
<body><div id="app"></div></body></html>
"""


@pytest.fixture(autouse=True)
def _page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "static"
    place.mkdir()
    (place / "index.html").write_text(PAGE)
    (place / "page.js").write_text('const a = "</script>", b = "\\\\1";')
    (place / "page.css").write_text("p { content: '\\2014'; }")
    monkeypatch.setattr(server, "STATIC", place)


def pack(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="glassformer-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_one_file(toy: Shelved, tmp_path: Path) -> None:
    assert write_page(toy, tmp_path / "page.html") == []
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "p { content: '\\2014'; }" in text
    assert 'const a = "<\\/script>", b = "\\\\1";' in text
    assert not re.search(r"(src|href)=\"/", text)
    assert "default-src 'none'" in text
    found = pack(tmp_path / "page.html")
    for name, seen in toy.run.trace("c a b e d").items():
        stored = found["tensors"][name]
        values = np.frombuffer(base64.b64decode(stored["data"]), "<f4").reshape(stored["shape"])
        np.testing.assert_array_equal(values, np.asarray(seen))
    assert set(found["weights"]) == {name for name, _ in toy.run.model.named_parameters(remove_duplicate=False)}
    assert found["about"]["runs"][0]["snapshots"] == []


def test_texts_are_text(tmp_path: Path, random_runs: dict[str, Path]) -> None:
    run = open_run(random_runs["encoder-decoder"])
    run.example = "</script><script>alert(1)</script> <!-- é 東 😀"
    write_page(run, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert pack(tmp_path / "page.html")["input"]["source"] == run.example


def test_what_does_not_fit(tmp_path: Path, toy: Shelved) -> None:
    """Attention is kept before all else, and what is left out is said."""
    left_out = write_page(toy, tmp_path / "page.html", room=180_000)
    assert (tmp_path / "page.html").stat().st_size <= 180_000
    found = pack(tmp_path / "page.html")
    assert found["left_out"] == left_out
    assert any("the weights: proving a cell" in line for line in left_out)
    assert found["weights"] == {}
    attention = [name for name in found["walk"]["tensors"] if name.endswith(("attention.weights", "attention.masked"))]
    assert set(attention) <= set(found["tensors"])
    assert set(found["tensors"]) < set(found["walk"]["tensors"])


def test_no_text(tmp_path: Path) -> None:
    run = open_run(random_run(tmp_path / "run", "decoder"))
    with pytest.raises(DataError, match="say which text the page shows: --text"):
        write_page(run, tmp_path / "page.html")
