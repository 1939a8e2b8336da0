"""What the page says and keeps when things go wrong under it: runs, servers, keys and rights that go away."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

from own_server import own_server
from page_rig import ServedProcess, Visitor, WatchedPage, showcase
from playwright.async_api import Browser, Locator, Page, Route, expect

from loom import Context, Event, StartEvent, StopEvent, Workflow, step

GOES_AWAY = ["ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY_RESPONSE", "ERR_SOCKET", "ERR_NETWORK"]
"""What a browser logs about a server that is killed."""


def inbox_form(page: Page, question: str) -> Locator:
    return page.get_by_role("article", name=question)


def banner(page: Page) -> Locator:
    return page.get_by_role("status").filter(has_text="What you see may be old")


async def test_a_run_that_is_deleted_under_the_page_says_so_and_leads_back(visitor: Visitor) -> None:
    run, runs = await visitor.open("#/runs/order-3/data"), await visitor.open("#/runs")
    await expect(run.page.get_by_role("heading", name="order-3")).to_be_visible(timeout=20_000)
    await expect(runs.page.get_by_role("link", name="order-3")).to_be_visible(timeout=20_000)
    answer = await run.page.request.delete(f"{visitor.url}/v1/runs/order-3")
    assert answer.status == 204
    run.expected.append("404")
    await expect(run.page.get_by_role("heading", name="This run was deleted")).to_be_visible(timeout=20_000)
    await expect(runs.page.get_by_role("link", name="order-3")).to_have_count(0, timeout=20_000)
    await run.page.get_by_role("link", name="Back to the runs").click()
    await expect(run.page.get_by_role("link", name="order-1")).to_be_visible(timeout=20_000)


async def test_a_run_that_never_was_says_so(visitor: Visitor) -> None:
    watched = await visitor.open("#/runs/nobody")
    watched.expected.append("404")
    await expect(watched.page.get_by_role("heading", name="There is no such run")).to_be_visible(timeout=20_000)


async def cursors(page: Page) -> list[int]:
    """Read the cursors of the events that are loaded, by scrolling through them."""
    return [int(number) for number in await page.get_by_role("list", name="Events").locator(".seq").all_inner_texts()]


async def test_a_server_that_goes_and_comes_back_loses_nothing(served: ServedProcess, visitor: Visitor) -> None:
    inbox, events = await visitor.open("#/inbox"), await visitor.open("#/runs/tracking-1/events?internal=1")
    for watched in (inbox, events):
        watched.expected += GOES_AWAY
    question = inbox_form(inbox.page, "reason: too small")
    await question.get_by_role("radio", name="Yes").check(timeout=20_000)
    await question.get_by_role("textbox").fill("12.5")
    await expect(events.page.get_by_role("list", name="Events").locator(".seq").last).to_be_visible(timeout=20_000)
    before = max(await cursors(events.page))

    await served.kill()
    for watched in (inbox, events):
        await expect(banner(watched.page)).to_be_visible(timeout=30_000)
    await expect(question.get_by_role("textbox")).to_have_value("12.5")
    await served.start()
    for watched in (inbox, events):
        await expect(banner(watched.page)).to_have_count(0, timeout=30_000)
    # The loop of the flow goes on: its events come by themselves, each once and none left out.
    following = events.page.get_by_role("list", name="Events")
    await expect(following.get_by_text(str(before + 4), exact=True)).to_be_visible(timeout=60_000)
    seen = await cursors(events.page)
    assert seen == list(range(seen[0], seen[-1] + 1))
    await expect(question.get_by_role("textbox")).to_have_value("12.5")
    await question.get_by_role("button", name="Send ReturnDecision").click()
    finished = await visitor.open("#/runs/return-1/data")
    await expect(finished.page.get_by_text("refunded")).to_be_visible(timeout=20_000)


async def log_in(watched: WatchedPage, key: str) -> None:
    await watched.page.get_by_label("API key").fill(key)
    await watched.page.get_by_role("button", name="Log in").click()


def works() -> dict[str, Any]:
    shop = showcase()
    return {name: getattr(shop, name) for name in ("order", "returns", "delivery")}


async def test_a_screen_that_cannot_be_loaded_says_so_and_comes_with_the_server(
    served: ServedProcess, visitor: Visitor
) -> None:
    watched = await visitor.open("#/runs")
    watched.expected += [*GOES_AWAY, "more-"]
    page = watched.page
    await expect(page.get_by_role("link", name="order-1")).to_be_visible()
    await served.kill()
    await page.evaluate("location.hash = '#/workflows'")
    problem = page.get_by_role("alert").filter(has_text="The server does not answer")
    await expect(problem).to_be_visible()
    await problem.get_by_role("button", name="Try again").click()
    await expect(problem).to_be_visible()  # and no error page of the browser
    # While the server starts it refuses to say who asks: other requests are the first to find it.
    watched.expected.append("503")
    await page.route("**/v1/session", lambda route: route.fulfill(status=503))
    await served.start()
    await expect(banner(page)).to_have_count(0)
    await page.unroute("**/v1/session")
    await expect(page.get_by_role("link", name="stocktake", exact=True)).to_be_visible()


async def test_a_workflow_that_nobody_knows_cannot_be_started(visitor: Visitor) -> None:
    watched = await visitor.open("#/workflows/nothing")
    watched.expected.append("404")
    await expect(watched.page.get_by_role("heading", name="This workflow is not known here")).to_be_visible()
    await expect(watched.page.locator("main").get_by_role("link", name="Start")).to_have_count(0)


async def test_a_key_that_is_revoked_under_the_page_asks_for_another_and_keeps_the_text(browser: Browser) -> None:
    async with own_server(works=works()) as own:
        first, second = await own.key("read", "event", name="ada"), await own.key("read", "event", name="ada")
        await own.runtime.start("returns", {"reason": "too small"}, run_id="return-1")
        visitor = Visitor(browser, own.url)
        watched = await visitor.open("#/inbox")
        watched.expected += ["401", "403", "ERR_INCOMPLETE_CHUNKED"]
        page = watched.page
        await log_in(watched, "loom_000000000000_" + "x" * 43)
        await expect(page.get_by_role("alert")).to_contain_text("not known here", timeout=20_000)
        await log_in(watched, first)
        form = inbox_form(page, "reason: too small")
        await form.get_by_role("radio", name="Yes").check(timeout=20_000)
        await form.get_by_role("textbox").fill("7")
        await own.revoke(first)
        # Nobody touches the page: its feed ends with the key.
        await expect(page.get_by_role("dialog", name="Log in again")).to_be_visible(timeout=20_000)
        await expect(form.get_by_role("textbox")).to_have_value("7")
        await log_in(watched, second)
        await expect(page.get_by_role("dialog")).to_have_count(0, timeout=20_000)
        await expect(form.get_by_role("textbox")).to_have_value("7")
        await form.get_by_role("button", name="Send ReturnDecision").click()
        await expect(page.get_by_text("Nothing to answer").first).to_be_visible(timeout=20_000)
        assert (await own.runtime.get("return-1")).status == "completed"
        await visitor.close()


async def test_a_limited_key_sees_its_own_and_is_told_what_it_may_not(browser: Browser) -> None:
    async with own_server(works=works()) as own:
        key = await own.key("read", "event", name="clerk", workflows=("returns",))
        await own.runtime.start("returns", {"reason": "mine"}, run_id="return-1")
        await own.runtime.start("delivery", run_id="delivery-1")
        visitor = Visitor(browser, own.url)
        watched = await visitor.open("#/runs")
        page = watched.page
        watched.expected += ["404", "403", "401"]
        await log_in(watched, key)
        await expect(page.get_by_role("link", name="return-1")).to_be_visible(timeout=20_000)
        await own.runtime.start("returns", {"reason": "also"}, run_id="return-2")
        await own.runtime.start("delivery", run_id="delivery-2")
        await own.runtime.start("returns", {"reason": "last"}, run_id="return-3")
        await expect(page.get_by_role("link", name="return-3")).to_be_visible(timeout=20_000)
        for address in ("#/runs", "#/inbox", "#/workflows", "#/workers", "#/parked", "#/metrics", "#/schedules"):
            await page.evaluate("address => { location.hash = address }", address)
            await expect(page.locator("main h1")).to_be_visible(timeout=20_000)
            await expect(page.locator("main").get_by_text("Loading")).to_have_count(0, timeout=20_000)
            await expect(page.locator("main").get_by_text("delivery")).to_have_count(0)
        await page.evaluate("location.hash = '#/runs/delivery-1'")
        await expect(page.get_by_role("heading", name="There is no such run")).to_be_visible(timeout=20_000)
        await page.evaluate("location.hash = '#/runs/return-1'")
        cancel = page.get_by_role("group", name="Actions").get_by_role("button", name="Cancel")
        await expect(cancel).to_be_disabled(timeout=20_000)
        assert await cancel.get_attribute("title") == "Your key lacks the scope “start”."
        await expect(page.get_by_role("button", name="Send ReturnDecision")).to_be_enabled()
        await page.evaluate("location.hash = '#/workflows/returns/start'")
        await expect(page.get_by_text("Your key lacks the scope “start”.").first).to_be_visible(timeout=20_000)
        await visitor.close()


async def test_a_page_without_an_engine_offers_no_action(browser: Browser) -> None:
    async with own_server(works=works(), read_only=True) as own:
        await own.runtime.start("returns", {"reason": "too small"}, run_id="return-1")
        visitor = Visitor(browser, own.url)
        watched = await visitor.open("#/runs")
        page = watched.page
        await expect(page.get_by_role("link", name="return-1")).to_be_visible(timeout=20_000)
        await expect(page.get_by_text("nothing can be changed")).to_be_visible()
        for address in ("#/runs", "#/inbox", "#/runs/return-1", "#/workflows/returns/start", "#/schedules", "#/parked"):
            await page.evaluate("address => { location.hash = address }", address)
            await expect(page.locator("main h1, main h2").first).to_be_visible(timeout=20_000)
            acts = page.locator("main").get_by_role("button", name=ACTS)
            for button in await acts.all():
                await expect(button).to_be_disabled(timeout=20_000)
        await page.evaluate("location.hash = '#/runs/return-1'")
        for name in ("Pause", "Cancel", "Send event"):
            action = page.get_by_role("group", name="Actions").get_by_role("button", name=name)
            await expect(action).to_be_disabled(timeout=20_000)
            assert "read-only" in str(await action.get_attribute("title"))
        await visitor.close()


ACTS = re.compile("^(Send|Cancel|Pause|Resume|Retry|Start|Start like this|Fork|New schedule|Delete|Try again)\\b")


def older(value: Any) -> Any:
    """Make an answer of a later version: with fields and words that this page does not know."""
    if isinstance(value, dict):
        return {**{name: older(each) for name, each in value.items()}, "of_later": {"deep": [1, None, "x"]}}
    return [older(each) for each in value] if isinstance(value, list) else value


async def test_a_page_that_is_older_than_its_server_goes_on(visitor: Visitor) -> None:
    watched = await visitor.open("#/nowhere")
    page = watched.page

    async def answer(route: Route) -> None:
        if "text/event-stream" in route.request.headers.get("accept", ""):
            await route.continue_()
            return
        found = await route.fetch()
        if "json" not in found.headers.get("content-type", ""):
            await route.fulfill(response=found)
            return
        await route.fulfill(response=found, body=json.dumps(older(await found.json())))

    await page.route("**/v1/**", answer)
    for address, text in LATER.items():
        await page.evaluate("address => { location.hash = address }", address)
        await expect(page.locator("main").get_by_text(text).first).to_be_attached(timeout=20_000)
        await expect(page.locator("main").get_by_role("alert")).to_have_count(0)


LATER = {
    "#/runs": "order-1",
    "#/inbox": "Send 2 items to Ada?",
    "#/runs/order-1": "pack",
    "#/runs/order-1/timeline": "pick",
    "#/runs/order-1/state": "changes by this tick",
    "#/runs/order-1/journal": "The run begins with OrderPlaced",
    "#/runs/tracking-1": "untilArrived",
    "#/runs/tracking-1/loops": "untilArrived",
    "#/workflows": "stocktake",
    "#/workflows/order": "OrderPlaced",
    "#/workflows/order/start": "Who ordered.",
    "#/workers": "this server",
    "#/parked": "inventory-1",
}


# -- many -------------------------------------------------------------------------------------------------------------


class Said(Event):
    number: int


class Talks(Workflow):
    """Says numbers."""

    @step
    async def say(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Publish an event for each number."""
        for number in range(ev.get("times", 0)):
            ctx.write_event_to_stream(Said(number=number))
        return StopEvent()


RUNS = 5_000 if "LOOM_FULL" in os.environ else 1_000


async def test_a_long_list_scrolls_to_its_end_and_a_run_shows_the_last_of_3000_events(browser: Browser) -> None:
    async with own_server(works={"talks": Talks(timeout=None)}) as own:
        for first in range(0, RUNS, 250):
            starts = (own.runtime.start("talks", run_id=f"run-{number}") for number in range(first, first + 250))
            await asyncio.gather(*starts)
        await (await own.runtime.start("talks", {"times": 3_000}, run_id="talks"))
        visitor = Visitor(browser, own.url)
        watched = await visitor.open("#/runs?id_prefix=run-")
        page = watched.page
        await expect(page.get_by_role("link", name=f"run-{RUNS - 1}", exact=True)).to_be_visible(timeout=20_000)
        seen: list[str] = await page.evaluate(SCROLL, RUNS)
        assert sorted(seen, key=lambda name: int(name[4:])) == [f"run-{number}" for number in range(RUNS)]
        await page.evaluate("location.hash = '#/runs/talks/events'")
        events = page.get_by_role("list", name="Events")
        await expect(events.get_by_text('{"number":2999}')).to_be_visible(timeout=20_000)
        await visitor.close()


SCROLL = """async most => {
  const view = document.querySelector("[role=rowgroup][tabindex]");
  const seen = new Map();
  for (let same = 0; same < 600 && seen.size < most; same += 1) {
    for (const row of view.querySelectorAll("[role=row]")) {
      const index = row.getAttribute("aria-rowindex"), name = row.querySelector("a").textContent.trim();
      if (seen.get(index) === name) continue;
      if (seen.has(index)) throw new Error(`Row ${index} was ${seen.get(index)} and is ${name}`);
      seen.set(index, name);
      same = 0;
    }
    view.scrollTop += view.clientHeight;
    await new Promise(requestAnimationFrame);
  }
  return [...seen.values()];
}"""
"""Scroll until all rows were seen, or nothing new comes for 600 frames."""
