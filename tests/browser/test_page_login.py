"""A server with keys: who has none sees nothing, and a key opens what it is good for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from page_rig import ServedProcess, Visitor, shop
from playwright.async_api import Page, expect

NO_SESSION = ("status of 401", "ERR_INCOMPLETE_CHUNKED_ENCODING")
"""What a browser logs of a request that was refused, and of a stream that ends with its session."""


async def key(folder: Path, name: str, scopes: str) -> str:
    """Make a key as an operator does."""
    made = await asyncio.to_thread(
        subprocess.run,
        [
            sys.executable,
            "-m",
            "loom",
            "keys",
            "create",
            name,
            "--quiet",
            "--scope",
            scopes,
            "--store",
            f"sqlite:///{folder / 'shop.db'}",
        ],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ,
    )
    return made.stdout.strip()


@pytest_asyncio.fixture(loop_scope="session")
async def served(tmp_path: Path) -> AsyncIterator[ServedProcess]:
    """The shop, for whoever has a key."""
    async with shop(tmp_path, "--require-key") as server:
        yield server


async def login(page: Page, given: str) -> None:
    """Give a key to the form that asks for one."""
    await page.get_by_label("API key").fill(given)
    await page.get_by_role("button", name="Log in").click()


async def test_nothing_is_shown_without_a_key_and_a_key_opens_the_page_until_one_logs_out(
    visitor: Visitor, tmp_path: Path
) -> None:
    watched = await visitor.open("#/runs")
    watched.expected += NO_SESSION
    page = watched.page
    await expect(page.get_by_role("heading", name="Log in to Loom")).to_be_visible()
    await expect(page.get_by_label("API key")).to_be_focused()
    await expect(page.get_by_text("order-1")).to_have_count(0)
    assert await page.evaluate("fetch('/v1/runs').then((answer) => answer.status)") == 401

    await login(page, "loom_not_a_key")
    await expect(page.get_by_role("alert")).to_contain_text("This key is not known here")
    await expect(page.get_by_label("API key")).to_have_value("loom_not_a_key")

    await login(page, await key(tmp_path, "ops", "admin"))
    await expect(page.get_by_role("link", name="order-1")).to_be_visible()
    await expect(page.get_by_text("ops", exact=True)).to_be_visible()
    # The session outlives a reload, and no script can read it.
    await page.reload()
    await expect(page.get_by_role("link", name="order-1")).to_be_visible()
    assert await page.evaluate("document.cookie") == ""

    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in to Loom")).to_be_visible()
    await expect(page.get_by_text("order-1")).to_have_count(0)
    assert await page.evaluate("fetch('/v1/runs').then((answer) => answer.status)") == 401
    await page.reload()
    await expect(page.get_by_role("heading", name="Log in to Loom")).to_be_visible()


async def test_a_key_that_may_only_look_changes_nothing(visitor: Visitor, tmp_path: Path) -> None:
    watched = await visitor.open("#/runs/order-1")
    watched.expected += NO_SESSION
    page = watched.page
    await login(page, await key(tmp_path, "auditor", "read"))
    await expect(page.get_by_role("heading", name="order-1")).to_be_visible()
    actions = page.get_by_role("group", name="Actions")
    for name in ("Send event", "Pause", "Cancel"):
        await expect(actions.get_by_role("button", name=name)).to_be_disabled()
    await expect(page.get_by_role("button", name="Send ReleaseAnswer")).to_be_disabled()
    await page.goto(f"{visitor.url}/ui/#/workflows/order/start")
    await expect(page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    await page.goto(f"{visitor.url}/ui/#/runs")
    await expect(page.get_by_role("link", name="order-1")).to_be_visible()
    await expect(page.get_by_role("checkbox", name="Select order-1")).to_have_count(0)
