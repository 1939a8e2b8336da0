"""A real browser on a real server. Each test also fails on what no page may do: see `WatchedPage`.

All tests of this folder and the fixtures that they use run in one event loop, so that they can share a browser.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

sys.path.insert(0, str(Path(__file__).parent))

from page_rig import FLAGS, ServedProcess, Visitor, found_browser, shop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of this folder run in one loop; skip them where no browser can be had."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if found_browser() is None:
                item.add_marker(pytest.mark.skip(reason="no browser is installed: run `make browser`"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A browser, the same for all tests of a process: each visit has a context of its own."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=found_browser(), args=list(FLAGS))
        try:
            yield launched
        finally:
            await launched.close()


@pytest_asyncio.fixture(loop_scope="session")
async def served(tmp_path: Path) -> AsyncIterator[ServedProcess]:
    """The shop with a run in every state, on SQLite and without keys."""
    async with shop(tmp_path) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, served: ServedProcess) -> AsyncIterator[Visitor]:
    """A browser on the shop."""
    visiting = Visitor(browser, served.url)
    yield visiting
    await visiting.close()
