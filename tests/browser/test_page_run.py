"""The page of one run: what it shows while the run goes on, what can be done to it, and how it was before."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from page_rig import ServedProcess, Visitor, begin, shop, tell
from playwright.async_api import Page, expect

ANSWER = {"type": "ReleaseAnswer", "value": {"approved": True, "carrier": "van"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedProcess]:
    """One shop for all tests of this file: each looks at runs of its own."""
    async with shop(tmp_path_factory.mktemp("shop")) as server:
        yield server


async def mark(page: Page) -> None:
    """Leave a mark on the page that a reload would remove."""
    await page.evaluate("window.sameVisit = true")


async def is_same_visit(page: Page) -> bool:
    """Tell whether the page was not loaded again since it was marked."""
    return bool(await page.evaluate("window.sameVisit === true"))


async def test_a_run_started_from_a_form_is_watched_and_answered_to_its_end(visitor: Visitor) -> None:
    page = (await visitor.open("#/workflows/order/start")).page
    await page.get_by_label("Customer").fill("Barbara")
    await page.get_by_role("button", name="Add to Items").click()
    await page.get_by_role("textbox", name="Items 1").fill("a glass vase")
    await page.get_by_label("Run id").fill("from-form")
    await page.get_by_role("button", name="Start", exact=True).click()

    # The page follows the run: the vase is dropped, picked again, and the run asks.
    await expect(page.get_by_role("heading", name="from-form")).to_be_visible()
    await mark(page)
    question = page.get_by_role("region", name="pack waits for ReleaseAnswer")
    await expect(question.get_by_role("heading", name="Send 1 items to Barbara?")).to_be_visible()
    graph = page.get_by_role("region", name="Graph of order")
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, waiting"))).to_be_visible()
    await expect(graph.get_by_role("button", name=re.compile("^pick, step, completed.*1 retry"))).to_be_visible()

    await question.get_by_role("radio", name="Yes").check()
    await question.get_by_label("Carrier").select_option("bike")
    await question.get_by_label("Note").fill("handle with care")
    await question.get_by_role("button", name="Send ReleaseAnswer").click()
    await expect(page.get_by_role("heading", name="from-form").locator("..").get_by_text("completed")).to_be_visible()
    await expect(page.get_by_text("ReleaseAnswer is sent. The run completed")).to_be_visible()
    await expect(question).to_have_count(0)
    await page.get_by_role("link", name="Input and output").click()
    await expect(page.get_by_role("region", name="Input and output").get_by_text("handle with care")).to_be_visible()
    assert await is_same_visit(page)


async def test_what_is_done_elsewhere_appears_without_a_reload(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/order-2")).page
    graph = page.get_by_role("region", name="Graph of order")
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, waiting"))).to_be_visible()
    await mark(page)
    await tell(visitor.url, "POST", "/runs/order-2/events", ANSWER)
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, completed"))).to_be_visible()
    await expect(page.get_by_role("complementary", name="Waiting for")).to_have_count(0)
    assert await is_same_visit(page)


async def test_a_loop_is_seen_to_advance_on_its_badge_and_row_by_row(visitor: Visitor) -> None:
    await begin(visitor.url, "tracking", "parcel")
    page = (await visitor.open("#/runs/parcel")).page
    loop = page.get_by_role("button", name=re.compile(r"untilArrived.*iteration \d+ of 1,?000"))
    first = await loop.get_attribute("aria-label")
    assert first is not None
    await mark(page)
    await expect(loop).not_to_have_attribute("aria-label", first)

    await page.get_by_role("link", name="Loops").click()
    rows = page.get_by_role("region", name="Iterations of untilArrived").get_by_role(
        "button", name="Actions of iteration"
    )
    await expect(rows.first).to_be_visible()
    newest = await rows.first.get_attribute("aria-label")
    assert newest is not None
    await expect(rows.first).not_to_have_attribute("aria-label", newest)
    await expect(page.get_by_role("button", name=newest, exact=True)).to_be_visible()
    await page.get_by_role("button", name=newest, exact=True).click()
    await expect(page.get_by_role("cell").get_by_text("whereIsIt", exact=True)).to_be_visible()
    assert await is_same_visit(page)
    await tell(visitor.url, "POST", "/runs/parcel/cancel", {})


async def test_a_phone_shows_the_question_first_and_a_picked_view_before_it(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/order-1", viewport={"width": 390, "height": 844})).page
    question = page.get_by_role("complementary", name="Waiting for")
    views = page.get_by_role("navigation", name="Views")

    async def question_is_first() -> bool:
        await expect(question).to_be_visible()
        upper, lower = await question.bounding_box(), await views.bounding_box()
        assert upper is not None
        assert lower is not None
        return upper["y"] < lower["y"]

    assert await question_is_first()
    await page.get_by_role("link", name="State", exact=True).click()
    await expect(page.get_by_role("slider", name="Tick")).to_be_visible()
    assert not await question_is_first()
    await expect(views).to_be_in_viewport()


async def test_the_menu_of_a_run_lies_within_a_phone(visitor: Visitor) -> None:
    for run in ("order-1", "tracking-1", "order-3"):
        page = (await visitor.open(f"#/runs/{run}", viewport={"width": 390, "height": 844})).page
        await page.get_by_role("button", name="More actions").click()
        entry = page.locator("#run-menu").get_by_role("button", name=re.compile("^Download"))
        await expect(entry).to_be_visible()
        box = await entry.bounding_box()
        assert box is not None
        assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True), run


async def test_a_step_that_sleeps_is_told_from_one_that_asks(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/campaign-1")).page
    graph = page.get_by_role("region", name="Graph of campaign")
    await expect(graph.get_by_role("button", name=re.compile("^remind, step, asleep"))).to_be_visible()
    await page.get_by_role("link", name="Runs", exact=True).first.click()
    await page.get_by_role("link", name="order-1").click()
    graph = page.get_by_role("region", name="Graph of order")
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, waiting"))).to_be_visible()


async def test_the_state_of_a_run_is_shown_at_any_of_its_ticks(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/order-3/state")).page
    slider = page.get_by_role("slider", name="Tick")
    last = int(await slider.get_attribute("max") or 0)
    assert last > 3
    store = page.get_by_role("region", name="Store")
    await expect(store.get_by_text("Edsger")).to_be_visible()

    # Time goes back by the keyboard, to before the store held anything, and on by a button.
    await slider.press("Home")
    await expect(page.get_by_text(f"Tick 0 of {last}", exact=True)).to_be_visible()
    await expect(page.get_by_role("heading", name="The first tick: everything is new")).to_be_visible()
    await expect(store.get_by_text("Edsger")).to_have_count(0)
    await page.get_by_role("button", name="One tick on").click()
    await expect(page).to_have_url(re.compile(r"tick=1$"))
    await expect(store.get_by_text("Edsger")).to_be_visible()

    await page.get_by_role("link", name="Graph at this tick").click()
    await expect(page.get_by_text(f"As it was after tick 1 of {last}.")).to_be_visible()
    graph = page.get_by_role("region", name="Graph of order")
    await expect(graph.get_by_role("button", name="plan, step, executing")).to_be_visible()
    await expect(graph.get_by_role("button", name="pack, step, not reached")).to_be_visible()
    await page.get_by_role("link", name="Show now").click()
    await expect(graph.get_by_role("button", name=re.compile("^pack, step, completed"))).to_be_visible()


async def test_a_traceback_begins_with_the_line_of_the_author(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/payment-1")).page
    error = page.get_by_role("group", name="Error")
    await expect(error).to_contain_text("ConnectionError in charge, after 3 attempts: the bank has declined 42 EUR")
    await error.get_by_role("link", name="Failed attempts and tracebacks").click()
    attempts = page.get_by_role("article", name="Failed attempt of charge")
    await expect(attempts).to_have_count(3)
    await expect(attempts.first).to_contain_text("attempt 3 of 3")
    await expect(attempts.first).to_contain_text("No other attempt followed.")
    await expect(attempts.first).to_contain_text(re.compile(r"showcase\.py.*_ask_bank"))
    await expect(attempts.first).to_contain_text('raise ConnectionError(f"the bank has declined {amount} EUR")')


async def test_a_fork_goes_on_with_another_input(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/payment-1")).page
    await page.get_by_role("button", name="Fork", exact=True).click()
    dialog = page.get_by_role("dialog", name="Fork payment-1")
    await dialog.get_by_label("Id of the new run").fill("paid-after-all")
    await dialog.get_by_role("checkbox", name="Another input").check()
    given = dialog.get_by_role("textbox", name="Another input as JSON")
    await expect(given).to_have_value(re.compile('"amount": 42'))
    await given.fill('{"card": "4000-0000-0000-0001", "amount": 42}')
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_role("heading", name="paid-after-all")).to_be_visible()
    await expect(page.get_by_role("group", name="Error")).to_have_count(0)
    await expect(page.get_by_role("status", name="Why the run is where it is")).to_contain_text("completed")
    await expect(page.get_by_role("link", name="payment-1")).to_be_visible()


async def test_a_fork_of_an_ended_run_goes_on_from_before_its_end(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/order-3")).page
    await page.get_by_role("button", name="Fork", exact=True).click()
    dialog = page.get_by_role("dialog", name="Fork order-3")
    last = int(await dialog.get_by_label("Last tick that is kept").input_value())
    await dialog.get_by_label("Last tick that is kept").fill(str(last + 1))
    await expect(dialog.get_by_text(f"in tick {last + 1} the run ended")).to_be_visible()
    await dialog.get_by_label("Last tick that is kept").fill(str(last - 1))  # before the answer
    await dialog.get_by_label("Id of the new run").fill("asked-again")
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_role("heading", name="asked-again")).to_be_visible()
    await expect(page.get_by_role("complementary", name="Waiting for")).to_contain_text("Send 1 items to Edsger?")


async def test_a_fork_goes_on_with_an_event_that_comes_first(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/return-1")).page
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Fork").click()
    dialog = page.get_by_role("dialog", name="Fork return-1")
    await dialog.get_by_label("Id of the new run").fill("taken-back")
    await dialog.get_by_role("checkbox", name="An event that comes first").check()
    await dialog.get_by_role("textbox", name="Type of the event").fill("ReturnDecision")
    await dialog.get_by_role("textbox", name="An event that comes first as JSON").fill('{"accept": true}')
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_role("heading", name="taken-back")).to_be_visible()
    await page.get_by_role("link", name="Input and output").click()
    await expect(page.get_by_role("region", name="Input and output").get_by_text("refunded")).to_be_visible()


async def test_a_back_off_is_skipped(visitor: Visitor) -> None:
    page = (await visitor.open("#/runs/delivery-1")).page
    why = page.get_by_role("status", name="Why the run is where it is")
    await expect(why).to_contain_text("the carrier does not answer")
    await page.get_by_role("group", name="Actions").get_by_role("button", name="Retry now").click()
    dialog = page.get_by_role("dialog", name="Retry now?")
    await dialog.get_by_text("As a command").click()
    await expect(dialog.get_by_text("loom runs skip delivery-1")).to_be_visible()
    await dialog.get_by_role("button", name="Retry now").click()
    await expect(why).to_contain_text("completed")


async def test_a_paused_run_takes_an_answer_and_goes_on_when_it_is_resumed(visitor: Visitor) -> None:
    await begin(visitor.url, "returns", "on-hold", {"reason": "wrong color"})
    page = (await visitor.open("#/runs/on-hold")).page
    header = page.get_by_role("heading", name="on-hold").locator("..")
    actions = page.get_by_role("group", name="Actions")
    await actions.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog", name="Pause on-hold?").get_by_role("button", name="Pause").click()
    await expect(header.get_by_text("paused")).to_be_visible()
    await tell(visitor.url, "POST", "/runs/on-hold/events", {"type": "ReturnDecision", "value": {"accept": False}})
    await expect(header.get_by_text("paused")).to_be_visible()
    await actions.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog", name="Resume on-hold?").get_by_role("button", name="Resume").click()
    await expect(header.get_by_text("completed")).to_be_visible()
