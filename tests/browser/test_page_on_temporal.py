"""The page over a Temporal cluster, where lists lag and only workers know how a run is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from page_rig import ServedProcess, Visitor, begin, shop
from playwright.async_api import Browser, expect
from temporal_server import fresh_temporal_url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedProcess]:
    """The shop on a cluster, with no run yet."""
    async with shop(tmp_path_factory.mktemp("shop"), seeded=False, store=fresh_temporal_url()) as server:
        yield server


async def test_a_run_on_temporal_is_listed_drawn_and_answered(visitor: Visitor) -> None:
    await begin(visitor.url, "order", "on-temporal", {"customer": "Ada", "items": ["tea"]})
    page = (await visitor.open("#/runs")).page
    row = page.get_by_role("table", name="Runs").get_by_role("row", name="on-temporal")
    await expect(row).to_contain_text("waiting")
    await row.get_by_role("link", name="on-temporal").click()
    graph = page.get_by_role("region", name="Graph of order")
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, waiting"))).to_be_visible()
    await expect(graph.get_by_role("button", name=re.compile("^pick, step, completed"))).to_be_visible()

    question = page.get_by_role("region", name="pack waits for ReleaseAnswer")
    await question.get_by_role("radio", name="Yes").check()
    await question.get_by_role("button", name="Send ReleaseAnswer").click()
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, completed"))).to_be_visible()
    await expect(page.get_by_role("status", name="Why the run is where it is")).to_contain_text("completed")


async def test_a_question_of_a_run_on_temporal_is_answered_in_the_inbox(visitor: Visitor) -> None:
    await begin(visitor.url, "refund", "refund-on-temporal", {"amount": 300})
    page = (await visitor.open("#/inbox?workflow=refund")).page
    question = page.get_by_role("article", name="Pay back 300 EUR?")
    await question.get_by_role("radio", name="Yes").check()
    await question.get_by_role("button", name="Send RefundApproval").click()
    await expect(question.get_by_role("status")).to_contain_text("The run completed")


async def test_a_run_on_temporal_is_cancelled(visitor: Visitor) -> None:
    await begin(visitor.url, "campaign", "to-cancel")
    page = (await visitor.open("#/runs/to-cancel")).page
    await page.get_by_role("group", name="Actions").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel to-cancel?")
    await dialog.get_by_label("Reason").fill("no campaign this week")
    await dialog.get_by_role("button", name="Cancel the run").click()
    await expect(page.get_by_role("heading", name="to-cancel").locator("..").get_by_text("cancelled")).to_be_visible()
    # The list of a cluster comes later; it comes by itself.
    await page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    await expect(page.get_by_role("row", name="to-cancel")).to_contain_text("cancelled")


async def test_the_page_says_that_no_worker_answers_until_one_is_back(browser: Browser, tmp_path: Path) -> None:
    store = fresh_temporal_url()
    looking = ServedProcess("--store", store, "--no-open", command="ui", cwd=tmp_path, log=tmp_path / "ui.log")
    visitor = Visitor(browser, looking.url)
    async with shop(tmp_path, seeded=False, store=store) as worker:
        await begin(worker.url, "campaign", "left-alone")
        await worker.stop()
        await looking.start()
        try:
            page = (await visitor.open("#/runs")).page
            await page.get_by_role("link", name="left-alone").click()
            why = page.get_by_role("status", name="Why the run is where it is")
            await expect(why).to_contain_text("No worker answers.")
            await expect(why).to_contain_text("the run itself is safe")
            # A view that only a worker can fill says so, and the server is not asked for it.
            alone = page.get_by_role("heading", name="Nothing can be shown without a worker")
            for view in ("State", "Journal"):
                await page.get_by_role("link", name=view, exact=True).click()
                await expect(alone).to_be_visible()

            await worker.start()
            await expect(alone).to_have_count(0)
            await expect(why).not_to_contain_text("No worker answers.")
            await visitor.close()
        finally:
            await looking.kill()
