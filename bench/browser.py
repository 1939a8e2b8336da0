"""A real browser for the cases of the page: when something is seen, and what it costs the browser and the server.

Times on the wall depend on what else the machine does, so that the time of the processor stands beside them: that of
the page's main thread, as the browser itself counts it, and that of the server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PATIENCE_MS = 25_000
_WATCH = """
window.shown = (test) => new Promise((done) => {
  const look = () => {
    if (!test()) return false;
    observer.disconnect();
    // The frame that shows it is drawn: what follows it runs afterwards.
    requestAnimationFrame(() => setTimeout(() => done(performance.now())));
    return true;
  };
  const observer = new MutationObserver(look);
  if (!look()) observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
});
"""
"""Gives the page a function that waits until a test holds, and tells when that was drawn."""


def cpu_ms(pid: int) -> float:
    """Return the processor's time that a process has taken, in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S * 1e3


def server_of(port: int) -> int:
    """Find the process that serves a port: its command line names it."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"--port\0{port}\0".encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
    raise RuntimeError(f"No server has the port {port}.")


class Tab:
    """One page of a browser, with nothing in its cache, and what it has loaded."""

    def __init__(self, page: Page, devtools: CDPSession, port: int) -> None:
        self.page = page
        self._devtools = devtools
        self._address = f"http://127.0.0.1:{port}/ui/"
        self._server = server_of(port)
        self.requests: list[str] = []
        self.bytes = 0
        """What came over the wire, heads and all."""

    async def begin(self) -> None:
        """Count from now on what the page loads, and what its main thread does."""
        # By the processor: a task that waits for its turn on a busy machine takes nothing.
        await self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        await self._devtools.send("Network.enable")
        self._devtools.on("Network.requestWillBeSent", lambda sent: self.requests.append(sent["request"]["url"]))
        self._devtools.on("Network.responseReceived", lambda came: self._add(came["response"]["encodedDataLength"]))
        self._devtools.on("Network.dataReceived", lambda came: self._add(came["encodedDataLength"]))

    def _add(self, length: float) -> None:
        self.bytes += int(length)

    async def load(self, path: str, test: str) -> tuple[float, float, float]:
        """Open a view; milliseconds from the begin of the navigation until the test holds.

        They are those on the wall, those of the main thread, and those of the server's processor.
        """
        before = cpu_ms(self._server)
        await self.page.goto(self._address + path, wait_until="commit")
        wall = await self._evaluated(f"shown({test})")
        return wall, await self.main_ms(), cpu_ms(self._server) - before

    async def act(self, action: str, test: str) -> tuple[float, float, float]:
        """Do something on the page; milliseconds until the test holds, as of `load`."""
        server, main = cpu_ms(self._server), await self.main_ms()
        wall = await self._evaluated(
            f"async () => {{ const begun = performance.now(); ({action})(); return (await shown({test})) - begun; }}"
        )
        return wall, await self.main_ms() - main, cpu_ms(self._server) - server

    async def _evaluated(self, script: str) -> float:
        async with asyncio.timeout(_PATIENCE_MS / 1e3):
            return float(await self.page.evaluate(script))

    async def main_ms(self) -> float:
        """Return what the tasks of the main thread have taken since the page was opened."""
        metrics = (await self._devtools.send("Performance.getMetrics"))["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration") * 1e3


def found_browser() -> str:
    """Return the path of an installed browser."""
    named = os.environ.get("LOOM_BROWSER")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise RuntimeError("skipped, since no browser is installed: run `make browser`")
    return found


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start a browser without a window."""
    path = found_browser()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield launched
        finally:
            await launched.close()


async def open_tab(launched: Browser, port: int) -> Tab:
    """Open an empty page, from which views of a server are opened."""
    context = await launched.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    await page.add_init_script(_WATCH)
    tab = Tab(page, await context.new_cdp_session(page), port)
    await tab.begin()
    return tab


async def renderer_ms(launched: Browser) -> float:
    """Return the processor's time of all processes that draw pages."""
    session: Any = await launched.new_browser_cdp_session()
    found = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    await session.detach()
    return float(sum(each["cpuTime"] for each in found if each["type"] == "renderer")) * 1e3
