"""The server: plain answers, sentences where something is wrong, and nothing for strangers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from glassformer.errors import CheckpointError, DataError
from glassformer.explorer import server
from glassformer.explorer.shelf import Shelved
from tests.conftest import Cli


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page that stands for the built one."""
    (tmp_path / "index.html").write_text("<!doctype html><title>page</title>")
    (tmp_path / "page.js").write_text("1")
    (tmp_path / "page.css").write_text("")
    monkeypatch.setattr(server, "STATIC", tmp_path)
    return tmp_path


@pytest.fixture
def client(toy: Shelved, page: Path) -> TestClient:
    return TestClient(server.application([toy]), base_url="http://127.0.0.1:8000")


def test_the_page(client: TestClient) -> None:
    for path in ("/", "/page.js"):
        found = client.get(path)
        assert found.status_code == 200
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("/../server.py").status_code == 404
    assert client.get("/missing.js").status_code == 404


@pytest.mark.parametrize("what", sorted(server.ANSWERS))
def test_every_answer(client: TestClient, what: str) -> None:
    given = {"source": "c a b e d", "start": "0", "stop": "3", "decode": '{"beam_size": 2}', "name": "memory"}
    found = client.get(f"/api/{what}", params=given | ({"name": "output.weight"} if what == "parameter" else {}))
    assert found.status_code == 200, found.text
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["content-type"] in ("application/json", "application/octet-stream")


def test_numbers(client: TestClient, toy: Shelved) -> None:
    found = client.get("/api/tensor", params={"source": "c a b e d", "name": "memory", "at": "0,1,:"})
    assert found.headers["x-shape"] == "1,1,64"
    memory = np.asarray(toy.run.trace("c a b e d")["memory"])
    np.testing.assert_array_equal(np.frombuffer(found.content, "<f4"), memory[0, 1])
    masked = client.get("/api/tensor", params={"source": "c a", "name": "decoder.layers.0.self_attention.masked"})
    assert np.frombuffer(masked.content, "<f4")[1] == -np.inf


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("/api/nothing", 404, "there is nothing of this name; there are about, walk"),
        ("/api/walk", 400, "the request says no source"),
        ("/api/walk?source=c+a&run=1", 400, "there is no run 1: there are 0 to 0"),
        ("/api/walk?source=c+a&run=x", 400, "run='x' is no whole number"),
        ("/api/walk?source=c+a&snapshot=", 400, "snapshot='' is no whole number"),
        ("/api/walk?source=%20", 400, "the text is blank"),
        ("/api/walk?source=c+%C3%A9", 400, "'é'"),
        ("/api/tensor?source=c+a&name=", 400, "no tensor ''"),
        ("/api/tensor?source=c+a&name=memory&at=9", 400, "has 3 axes"),
        ("/api/generation?source=c+a&decode=[1]", 400, "decode must be an object"),
        ("/api/generation?source=c+a&decode={", 400, "decode is no JSON"),
        ("/api/generation?source=c+a&decode=%7B%22beam_size%22%3A0%7D", 400, "beam_size"),
        ("/api/positions?rows=100000", 400, "rows=100000 is not right"),
        ("/api/positions?pair=99", 400, "there is no pair 99"),
        ("/api/positions?pair=-1", 400, "there is no pair -1"),
        ("/api/positions?by=99999999999999999999", 400, "1,000,000 at most"),
        ("/api/walk?source=" + "a+" * 20_000, 414, "longer than 32,000 characters"),
    ],
)
def test_what_is_wrong(client: TestClient, address: str, code: int, words: str) -> None:
    found = client.get(address)
    assert (found.status_code, words in found.text) == (code, True), found.text
    assert "Traceback" not in found.text


def test_strangers(client: TestClient) -> None:
    assert client.get("/api/about", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/api/about", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/about", headers={"origin": "null"}).status_code == 403
    assert client.get("/api/about", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    assert client.get("/api/about", headers={"host": "localhost:8000"}).status_code == 200
    strange = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/api/about", headers=strange).status_code == 403
    assert client.get("/", headers=strange | {"sec-fetch-mode": "navigate"}).status_code == 200  # a link to the page
    assert client.get("/api/about").headers["cross-origin-resource-policy"] == "same-origin"
    assert client.post("/api/about").status_code == 405


def test_ports() -> None:
    bound = server.listen()
    try:
        port = bound.getsockname()[1]
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(DataError, match=f"port {port} cannot be used"):
            server.listen(port)
    finally:
        bound.close()


def test_without_the_page(toy: Shelved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STATIC", tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"not built; with Node 20 at hand: make web"):
        server.application([toy])


def test_the_verb_without_the_page(
    here: Cli, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STATIC", tmp_path)
    done = here("explore", run_directory, "--export", tmp_path / "page.html")
    assert (done.returncode, done.stdout) == (1, "")
    assert "make web" in done.stderr


def test_no_address_without_the_page(
    here: Cli, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STATIC", tmp_path)
    done = here("explore", run_directory, "--no-open")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-run",), "there is no run at no-such-run"),
        (("{run}", "{run}", "--export", "x.html"), "a file holds one run, not 2"),
        (("{run}", "--text", "c a x", "--export", "x.html"), "'x'"),
    ],
)
def test_the_verb_with_nonsense(
    here: Cli, run_directory: Path, arguments: tuple[Any, ...], words: str, page: Path
) -> None:
    done = here("explore", *(str(one).format(run=run_directory) for one in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
