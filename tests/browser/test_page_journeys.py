"""What a person does with the page besides looking at one run: find runs, answer them, act on many, plan starts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from page_rig import ServedProcess, Visitor, begin, shop, tab_to, tell
from playwright.async_api import expect


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedProcess]:
    """One shop for all tests of this file: each looks at runs of its own."""
    async with shop(tmp_path_factory.mktemp("shop")) as server:
        yield server


async def test_the_list_is_live_and_its_filters_stand_in_the_address(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs?workflow=returns")).page
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("link", name="return-1")).to_be_visible()
    await expect(table.get_by_role("link", name="order-1")).to_have_count(0)
    await page.evaluate("window.sameVisit = true")

    await begin(visitor.url, "returns", "return-live", {"reason": "too loud"})
    row = table.get_by_role("row", name="return-live")
    await expect(row).to_contain_text("waiting")
    await tell(visitor.url, "POST", "/runs/return-live/events", {"type": "ReturnDecision", "value": {"accept": True}})
    await expect(row).to_contain_text("completed")

    await page.get_by_role("group", name="States").get_by_role("button", name="paused").click()
    await expect(page).to_have_url(re.compile("paused=true"))
    await expect(table.get_by_role("link", name="return-2")).to_be_visible()
    await expect(table.get_by_role("link", name="return-1")).to_have_count(0)
    await page.go_back()
    await expect(table.get_by_role("link", name="return-1")).to_be_visible()
    assert await page.evaluate("window.sameVisit === true")


async def test_a_question_is_answered_in_the_inbox_which_tells_what_the_run_did_next(visitor: Visitor) -> None:
    page = (await visitor.open("#/inbox")).page
    question = page.get_by_role("article", name="Pay back 250 EUR?")
    toggle = question.get_by_role("button", name="Pay back 250 EUR?")
    if await toggle.get_attribute("aria-expanded") == "false":
        await toggle.click()
    # What is missing is said before anything is sent.
    await question.get_by_role("button", name="Send RefundApproval").click()
    await expect(question.get_by_role("radiogroup", name="approved")).to_have_attribute("aria-invalid", "true")
    await question.get_by_role("radio", name="Yes").check()
    await question.get_by_label("comment").fill("a good customer")
    await question.get_by_role("button", name="Send RefundApproval").click()
    await expect(question.get_by_role("status")).to_contain_text("The run completed")
    await question.get_by_role("link", name="See the run").click()
    await expect(page.get_by_role("heading", name="refund-1")).to_be_visible()
    graph = page.get_by_role("region", name="Graph of refund")
    await expect(graph.get_by_role("button", name=re.compile("^pay, .*completed"))).to_be_visible()


async def test_all_runs_that_match_are_counted_before_they_are_cancelled(visitor: Visitor) -> None:
    for number in range(3):
        await begin(visitor.url, "returns", f"batch-{number}", team="night")
    page = (await visitor.open("#/runs?tag=team%3Dnight")).page
    table = page.get_by_role("table", name="Runs")
    for number in range(3):
        await expect(table.get_by_role("row", name=f"batch-{number}")).to_contain_text("waiting")

    # Some of them: a run that was not chosen is left as it is.
    await table.get_by_role("checkbox", name="Select batch-1").check()
    bar = page.get_by_role("region", name="Selected runs")
    await expect(bar.get_by_role("status")).to_have_text("1 run selected")
    await bar.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel 1 run")
    await expect(dialog.get_by_role("list", name="Some of them")).to_have_text("batch-1")
    await dialog.get_by_role("button", name="Keep them as they are").click()
    await expect(table.get_by_role("row", name="batch-1")).to_contain_text("waiting")

    # All that match, as the server counts them.
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Find or do").fill("select all runs that match")
    await page.keyboard.press("Enter")
    await bar.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel all runs that match")
    await expect(dialog.get_by_role("status")).to_contain_text("3 runs match now and are in a state for this.")
    await expect(dialog.get_by_role("list", name="Some of them").get_by_role("listitem")).to_have_count(3)
    await dialog.get_by_label("Reason").fill("the night shift is over")
    await dialog.get_by_role("button", name="Cancel 3 runs").click()
    await expect(dialog.get_by_role("status")).to_have_text("3 runs asked to stop.")
    await dialog.get_by_role("button", name="Close").last.click()
    for number in range(3):
        await expect(table.get_by_role("row", name=f"batch-{number}")).to_contain_text("cancelled")
    assert (await tell(visitor.url, "GET", "/runs/order-1"))["status"] == "running"


async def test_the_palette_finds_a_run_by_the_beginning_of_its_id(visitor: Visitor) -> None:
    page = (await visitor.open("#/workers")).page
    await expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("stockta")
    found = page.get_by_role("listbox", name="What was found")
    await expect(found.get_by_role("option", name=re.compile("stocktake-1"))).to_be_visible()
    await found.get_by_role("option", name=re.compile("stocktake-1")).click()
    await expect(page.get_by_role("heading", name="stocktake-1")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    # A screen is reached in the same way, by the keyboard alone.
    await page.keyboard.press("Control+k")
    await page.keyboard.type("sched")
    await expect(found.get_by_role("option", selected=True)).to_contain_text("Schedules")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Schedules")).to_be_visible()


async def test_a_schedule_is_made_paused_resumed_and_deleted(visitor: Visitor) -> None:
    page = (await visitor.open("#/schedules")).page
    await expect(page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
    await page.get_by_role("link", name="New schedule").click()
    await page.get_by_role("textbox", name="Name", exact=True).fill("weekly-refund")
    await page.get_by_label("Workflow").select_option("refund")
    await page.get_by_role("radio", name="at a fixed interval").check()
    await page.get_by_role("textbox", name="Every").fill("7d")
    await page.get_by_label("amount").fill("12")
    await page.get_by_role("button", name="Create the schedule").click()

    heading = page.get_by_role("heading", name="weekly-refund").locator("..")
    await expect(heading.get_by_text("active")).to_be_visible()
    await page.get_by_role("button", name="Pause weekly-refund").click()
    await expect(heading.get_by_text("paused")).to_be_visible()
    await page.get_by_role("button", name="Resume weekly-refund").click()
    await expect(heading.get_by_text("active")).to_be_visible()
    await page.get_by_role("button", name="Delete weekly-refund").click()
    dialog = page.get_by_role("dialog", name="Delete weekly-refund?")
    await expect(dialog.get_by_text("loom schedule delete weekly-refund")).to_be_visible()
    await dialog.get_by_role("button", name="Delete the schedule").click()
    await expect(page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()


async def test_a_run_is_found_opened_and_answered_with_the_keyboard_alone(visitor: Visitor) -> None:
    await begin(visitor.url, "returns", "keys-1", {"reason": "no mouse"})
    await begin(visitor.url, "returns", "keys-2", {"reason": "no mouse"})
    page = (await visitor.open("#/runs")).page
    keyboard = page.keyboard
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("link", name="keys-1")).to_be_visible()
    await keyboard.press("/")
    await keyboard.type("keys-")
    await expect(table.get_by_role("link", name="order-1")).to_have_count(0)
    await tab_to(page, table.get_by_role("link", name="keys-2"))
    await keyboard.press("j")
    await expect(table.get_by_role("link", name="keys-1")).to_be_focused()
    await keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="keys-1")).to_be_visible()

    question = page.get_by_role("region", name="decide waits for ReturnDecision")
    await tab_to(page, question.get_by_role("radio", name="Yes"))
    await keyboard.press("Space")
    await tab_to(page, question.get_by_label("Refund"))
    await keyboard.type("4.5")
    await tab_to(page, question.get_by_role("button", name="Send ReturnDecision"))
    await keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="keys-1").locator("..").get_by_text("completed")).to_be_visible()
    # Two letters lead back to the list.
    await keyboard.press("Escape")
    await keyboard.press("g")
    await keyboard.press("r")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
