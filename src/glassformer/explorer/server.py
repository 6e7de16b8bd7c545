"""The explorer's page and its data, for this machine alone.

It binds to 127.0.0.1, answers only to that name, and gives no answer to other pages that are open in the same browser.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pydantic_core
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from glassformer.errors import CheckpointError, DataError, GlassformerError
from glassformer.explorer import api, generation, learning
from glassformer.explorer.shelf import Shelved

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
LONGEST_QUERY = 32_000  # characters
STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Answer = Callable[[Sequence[Shelved], "Query"], Any]


def has_page() -> bool:
    """Whether the page was built."""
    return (STATIC / "index.html").is_file()


class Query:
    """The values of one request's address, each read by name; a value that makes no sense is a DataError."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str | None = None) -> str:
        """Return a value as it is."""
        value = self._values.get(name, default)
        if value is None:
            raise DataError(f"the request says no {name}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        try:
            return int(self.text(name))
        except ValueError:
            raise DataError(f"{name}={value!r} is no whole number") from None

    def run(self, runs: Sequence[Shelved]) -> Shelved:
        """Return the run that is asked for, the first one if nothing is said."""
        i = self.number("run", 0)
        if not 0 <= i < len(runs):
            raise DataError(f"there is no run {i}: there are 0 to {len(runs) - 1}")
        return runs[i]

    @property
    def input(self) -> api.Request:
        """The input that is asked about."""
        snapshot = None if "snapshot" not in self._values else self.number("snapshot")
        return api.Request(self.text("source"), self._values.get("target"), snapshot)

    @property
    def decode(self) -> dict[str, Any]:
        """The fields of [decode] that are set: JSON."""
        try:
            found = pydantic_core.from_json(self._values.get("decode", "{}"))
        except ValueError as error:
            raise DataError(f"decode is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise DataError("decode must be an object of fields and values")
        return found


def _parameter(runs: Sequence[Shelved], query: Query) -> api.Numbers:
    snapshot = query.number("snapshot") if query.text("snapshot", "") else None
    return api.parameter(query.run(runs), query.text("name"), query.text("at", ""), snapshot=snapshot)


def _positions(runs: Sequence[Shelved], query: Query) -> dict[str, Any]:
    config = query.run(runs).run.config.model
    rows, by = query.number("rows", 50), query.number("by", 3)
    if not 1 <= rows <= 1000:
        raise DataError(f"rows={rows} is not right: 1 to 1000 are shown")
    if abs(by) > 1_000_000:
        raise DataError(f"by={by} is not right: 1,000,000 at most")
    return learning.positions(config, rows=rows, pair=query.number("pair", 0), by=by)


ANSWERS: dict[str, Answer] = {
    "about": lambda runs, _: api.about(list(runs)),
    "walk": lambda runs, query: api.walk(query.run(runs), query.input),
    "tensor": lambda runs, query: api.tensor(query.run(runs), query.input, query.text("name"), query.text("at", "")),
    "parameter": _parameter,
    "shapes": lambda runs, query: api.shapes(query.run(runs), query.number("n_source", 1), query.number("n_target", 1)),
    "names": lambda runs, query: api.names(query.run(runs), query.number("start"), query.number("stop")),
    "best": lambda runs, query: api.best(query.run(runs), query.input),
    "generation": lambda runs, query: generation.generation(query.run(runs), query.input, query.decode),
    "training": lambda runs, query: learning.training(query.run(runs)),
    "teaching": lambda runs, query: learning.teaching(query.run(runs), query.input),
    "positions": _positions,
    "parameters": lambda runs, query: api.parameters(query.run(runs)),
}


class SameOrigin:
    """Refuses requests that another page makes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through if its page is this one, or if it has none."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            origin, host = headers.get(b"origin"), headers.get(b"host", b"")
            strange = headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate"
            if strange or (origin is not None and origin != b"http://" + host):
                await PlainTextResponse("only the explorer's own page is answered", 403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def application(runs: Sequence[Shelved]) -> Starlette:
    """Return the application that serves the page and the data of some runs.

    Raises:
        CheckpointError: The page was not built.

    """
    if not has_page():
        raise CheckpointError("the explorer's page is not built; with Node 20 at hand: make web")

    def answer(request: HttpRequest) -> Response:
        if len(request.url.query) > LONGEST_QUERY:
            return PlainTextResponse(f"the request is longer than {LONGEST_QUERY:,} characters", 414, HEADERS)
        made = ANSWERS.get(request.path_params["what"])
        if made is None:
            return PlainTextResponse(f"there is nothing of this name; there are {', '.join(ANSWERS)}", 404, HEADERS)
        try:
            return respond(made(runs, Query(dict(request.query_params))))
        except GlassformerError as error:
            return PlainTextResponse(str(error), 400, HEADERS)

    return Starlette(
        routes=[
            Route("/api/{what}", answer, methods=["GET"]),
            Mount("/", _Page(directory=STATIC, html=True)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)), Middleware(SameOrigin)],
    )


class _Page(StaticFiles):
    """The files of the page, with the headers that keep it from asking anybody else."""

    def file_response(self, *arguments: Any, **settings: Any) -> Response:
        response = super().file_response(*arguments, **settings)
        response.headers.update(HEADERS)
        return response


def respond(value: Any) -> Response:
    """Return plain data as JSON, and numbers as float32, little-endian, with their shape in a header."""
    if isinstance(value, api.Numbers):
        shape = ",".join(map(str, value.shape))
        headers = {**HEADERS, "X-Shape": shape}
        return Response(value.values.astype("<f4").tobytes(), media_type="application/octet-stream", headers=headers)
    body = pydantic_core.to_json(value, inf_nan_mode="null")
    return Response(body, media_type="application/json", headers=HEADERS)


def listen(port: int = 0) -> socket.socket:
    """Return a socket on this machine's own address; port 0: a free one.

    Raises:
        DataError: The port is in use.

    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise DataError(f"port {port} cannot be used: {error.strerror}; leave --port out to take a free one") from error
    return bound


def serve(page: Starlette, bound: socket.socket) -> None:
    """Serve the explorer until somebody stops it."""
    config = uvicorn.Config(page, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[bound])
