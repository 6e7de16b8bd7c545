"""A real browser on the built page, with every request that leaves the machine blocked and told."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from glassformer.explorer import server
from glassformer.explorer.shelf import Shelved

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
BUILT = server.STATIC / "index.html"
REQUIRED = os.environ.get("GLASSFORMER_REQUIRE_BROWSER") == "1"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def needed() -> None:
    """Skip where there is no browser or no page, unless both have to be there."""
    missing = [
        what for what, there in (("chromium", CHROMIUM), ("the built page (make web)", BUILT.is_file())) if not there
    ]
    if missing and not REQUIRED:
        pytest.skip(f"no {' and no '.join(missing)}")
    assert not missing


@contextmanager
def serving(runs: list[Shelved]) -> Iterator[str]:
    """Serve the explorer in a thread; give its address."""
    bound = server.listen()
    running = uvicorn.Server(uvicorn.Config(server.application(runs), log_level="error", lifespan="off"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    finally:
        running.should_exit = True
        thread.join(timeout=10)
        bound.close()


class Page:
    """A page that is watched: what it asks for elsewhere and what it complains of."""

    def __init__(self, browser: Any, address: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(15_000)
        self.page = self.context.new_page()
        self.address, self.strays, self.complaints = address, [], []
        self.page.route("**/*", self._route)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        # tests that read pictures back are told that this is slow
        if message.type in ("error", "warning") and "willReadFrequently" not in message.text:
            self.complaints.append(message.text)

    def _route(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self.address, "data:", "blob:")):
            route.continue_()
        else:
            self.strays.append(url)
            route.abort()

    def open(self, **state: str) -> Any:
        """Open the page at a state; gives Playwright's page."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#{urlencode(state)}")
        self.page.wait_for_selector("main article, main.empty p:not(.wait), header [role=alert]")
        return self.page

    def check(self) -> None:
        """Nothing left the machine, and nothing went wrong."""
        assert self.strays == []
        assert self.complaints == []


def launched() -> Any:
    from playwright.sync_api import sync_playwright

    return sync_playwright()
