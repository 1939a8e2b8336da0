"""What the tests of the page share: a browser that is watched, and a server with the shop of the examples."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
from playwright.async_api import Browser, BrowserContext, Locator, Page, Request, expect

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from served_process import ServedProcess

expect.set_options(timeout=30_000)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MOST_TABS = 80
SHOP = Path(__file__).resolve().parents[2] / "examples" / "showcase.py"


def found_browser() -> str | None:
    """Return the path of an installed browser; None if there is none."""
    named = os.environ.get("LOOM_BROWSER")
    return named or next((path for name in BROWSERS if (path := shutil.which(name))), None)


class WatchedPage:
    """A page of a context, with what it must not do: break the policy, log errors, or ask another host."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self.requests: list[str] = []
        self.faults: list[str] = []
        self.expected: list[str] = []
        """Texts of faults that a test provokes."""
        page.on("request", self._asked)
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.faults.append(f"request to another host: {request.url}")

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") or "Content Security Policy" in text:
            self.faults.append(f"{kind}: {text}")

    def check(self) -> None:
        """Fail if the page did what it must not do."""
        wrong = [fault for fault in self.faults if not any(text in fault for text in self.expected)]
        assert not wrong, wrong


class Visitor:
    """A browser that visits one server."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self._contexts: list[BrowserContext] = []
        self.pages: list[WatchedPage] = []

    async def open(self, path: str = "", **context: Any) -> WatchedPage:
        """Open a view, such as `#/runs?status=failed`, in a context of its own."""
        made = await self._browser.new_context(**context)
        made.set_default_timeout(30_000)
        self._contexts.append(made)
        watched = WatchedPage(await made.new_page(), self.url)
        self.pages.append(watched)
        await watched.page.goto(f"{self.url}/ui/{path}")
        return watched

    async def close(self) -> None:
        """Close everything, and fail if a page did what it must not do."""
        for context in self._contexts:
            await context.close()
        for page in self.pages:
            page.check()


def showcase() -> ModuleType:
    """Return the module with the shop."""
    sys.path.insert(0, str(SHOP.parent))
    try:
        import showcase as module
    finally:
        sys.path.remove(str(SHOP.parent))
    return module


async def seeded_store(folder: Path) -> Path:
    """Return a database with a run of the shop in every state. It is made once for all processes that name a folder."""
    store = folder / "shop-seeded.db"
    with (folder / "shop-seeding").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not store.exists():
            begun = folder / "shop-begun.db"
            await showcase().seed(f"sqlite:///{begun}")
            begun.rename(store)
    return store


def _session_folder(tmp_path: Path) -> Path:
    """Return the folder of the test session: with xdist each worker has one in it."""
    folder = tmp_path.parent
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@asynccontextmanager
async def shop(tmp_path: Path, *arguments: str, seeded: bool = True, store: str = "") -> AsyncIterator[ServedProcess]:
    """Serve the shop of the examples, with a run in every state if it is seeded. A seeded `store` is seeded anew."""
    examples = showcase()
    if seeded and store:
        await examples.seed(store)
    elif seeded:
        shutil.copyfile(await seeded_store(_session_folder(tmp_path)), tmp_path / "shop.db")
    options = ("--store", store or f"sqlite:///{tmp_path / 'shop.db'}", "--idle-timeout", "1s", *arguments)
    server = ServedProcess(*examples.targets(SHOP), *options, cwd=tmp_path, log=tmp_path / "server.log")
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


async def tell(url: str, method: str, path: str, body: Any = None) -> Any:
    """Do at the API of a server what somebody else does while a page is open; return the answer."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.request(method, f"/v1{path}", json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None


async def begin(url: str, workflow: str, run_id: str, given: Any = None, **tags: str) -> None:
    """Start a run that no other test has to do with."""
    await tell(url, "POST", "/runs", {"workflow": workflow, "run_id": run_id, "input": given or {}, "tags": tags})


async def tab_to(page: Page, control: Locator) -> None:
    """Press the tab key until a control has the focus."""
    for _ in range(MOST_TABS):
        if await control.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{MOST_TABS} presses of the tab key do not lead to {control}.")
