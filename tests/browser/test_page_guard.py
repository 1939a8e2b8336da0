"""What holds on every screen: all can read it, it keeps to its policy and its host, and payloads are text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from own_server import Around, behind_proxy, mounted, own_server
from page_rig import Visitor
from playwright.async_api import Browser, Page, expect

import loom
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
SCREENS = {
    "#/runs": "order-1",
    "#/inbox": "Send 2 items to Ada?",
    "#/runs/order-1": "pack",
    "#/runs/order-1/timeline": "pick",
    "#/runs/order-1/events": "ReleaseQuestion",
    "#/runs/order-1/state": "changes by this tick",
    "#/runs/order-1/data": "a glass bowl",
    "#/runs/order-1/children": "No children",
    "#/runs/order-1/journal": "The run begins with OrderPlaced",
    "#/runs/payment-1/failures": "No other attempt followed.",
    "#/runs/tracking-1": "untilArrived",
    "#/runs/tracking-1/loops": "untilArrived",
    "#/workflows": "stocktake",
    "#/workflows/order": "OrderPlaced",
    "#/workflows/order/start": "Who ordered.",
    "#/schedules": "Nothing is scheduled",
    "#/schedules/+": "UTC if empty",
    "#/workers": "this server",
    "#/metrics": "Throughput",
    "#/parked": "inventory-1",
    "#/nowhere": "There is no such page",
}
"""Each screen by its address, and a text of it that comes with its data."""

OF_LAYOUT = ["color-contrast", "scrollable-region-focusable", "button-name", "link-name", "aria-hidden-focus"]
"""Rules whose result depends on the width; a narrow page has the names and roles of a wide one."""

AXE = """async ([rules, inside]) => {
  const options = { resultTypes: ["violations"], preload: false, iframes: false };
  if (rules) options.runOnly = rules;
  const found = await axe.run(document.querySelector(inside) ?? document, options);
  return found.violations.filter(each => ["serious", "critical"].includes(each.impact))
    .flatMap(each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`));
}"""
LISTEN = """window.reports = [];
addEventListener("securitypolicyviolation", told => reports.push(told.violatedDirective));"""
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"


async def go(page: Page, address: str) -> None:
    """Go to a screen without a reload, and wait for its data."""
    await page.evaluate("address => { location.hash = address }", address)
    await expect(page.locator("main").get_by_text(SCREENS[address]).first).to_be_attached(timeout=20_000)


async def faults_of(page: Page, size: dict[str, int], inside: str = "dialog") -> list[str]:
    """List what axe holds against a part of the page: all rules on a wide page; the colors again in the dark."""
    found: list[str] = await page.evaluate(AXE, [None if size is WIDE else OF_LAYOUT, inside])
    if size is WIDE:
        await page.emulate_media(color_scheme="dark")
        found += [f"in the dark: {each}" for each in await page.evaluate(AXE, [["color-contrast"], inside])]
        await page.emulate_media(color_scheme="light")
    return found


async def axe_page(visitor: Visitor, size: dict[str, int]) -> Page:
    watched = await visitor.open("#/runs", viewport=size, color_scheme="light", reduced_motion="reduce")
    # The policy of the page forbids scripts from elsewhere; the debugger's own are not of the page.
    await watched.page.evaluate(AXE_SCRIPT)
    # Colors on their way from light to dark are no colors of the page.
    await watched.page.evaluate(
        """text => {
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(text);
          document.adoptedStyleSheets.push(sheet);
        }""",
        STILL,
    )
    return watched.page


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_every_screen_can_be_read_by_all(visitor: Visitor, size: dict[str, int]) -> None:
    page = await axe_page(visitor, size)
    found: dict[str, list[str]] = {}
    inside = "html"
    for address in SCREENS:
        await go(page, address)
        found[address] = await faults_of(page, size, inside)
        # What screens share is looked at with the first; of a run, its head with the first of its tabs.
        inside = "[data-testid^=tab-]" if address.startswith("#/runs/") else "main"
        assert await overflow(page) == "", address
    assert {address: faults for address, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    "size",
    [pytest.param(WIDE, id="wide"), pytest.param(PHONE, id="phone", marks=pytest.mark.full("dialogs hardly differ"))],
)
async def test_every_dialog_can_be_read_by_all(visitor: Visitor, size: dict[str, int]) -> None:
    page = await axe_page(visitor, size)
    found: dict[str, list[str]] = {}

    async def look(name: str) -> None:
        await expect(page.get_by_role("dialog")).to_be_visible(timeout=20_000)
        found[name] = await faults_of(page, size)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0, timeout=20_000)

    await go(page, "#/runs")
    for name, keys in {"palette": "Control+k", "help": "?"}.items():
        await page.keyboard.press(keys)
        await look(name)
    await page.get_by_role("checkbox", name="Select order-1").check()
    await page.get_by_test_id("bulk-bar").get_by_role("button", name="Cancel…").click()
    await look("bulk")
    await go(page, "#/runs/order-1")
    for name in ("Send event", "Cancel"):
        await page.get_by_role("group", name="Actions").get_by_role("button", name=name, exact=True).click()
        await look(name)
    await page.get_by_role("button", name="More actions").click()
    found["menu"] = await faults_of(page, size)
    for name in ("Fork", "Start", "Download"):
        if not await page.locator("#run-menu").is_visible():
            await page.get_by_role("button", name="More actions").click()
        await page.locator("#run-menu").get_by_role("button", name=re.compile(f"^{name}")).click()
        await look(name)
    await go(page, "#/runs/order-1/journal")
    await page.get_by_role("button", name="Fork from tick 2").click()
    await look("fork from a tick")
    assert {address: faults for address, faults in found.items() if faults} == {}


async def test_the_login_can_be_read_by_all(browser: Browser) -> None:
    async with own_server(works={"hostile": Hostile(timeout=None)}) as own:
        key = await own.key("read")
        visitor = Visitor(browser, own.url)
        page = await axe_page(visitor, WIDE)
        visitor.pages[0].expected += ["401", "ERR_INCOMPLETE_CHUNKED"]
        found = await faults_of(page, WIDE)
        await page.get_by_label("API key").fill("wrong")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_be_visible(timeout=20_000)
        found += await faults_of(page, WIDE)
        await page.get_by_label("API key").fill(key)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible(timeout=20_000)
        await own.revoke(key)
        await expect(page.get_by_role("dialog", name="Log in again")).to_be_visible(timeout=20_000)
        found += await faults_of(page, WIDE, "[role=dialog]")
        await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        found += await faults_of(page, PHONE, "[role=dialog]")
        assert await overflow(page) == ""
        assert found == []
        await visitor.close()


async def overflow(page: Page) -> str:
    """Name what makes the page wider than its window; empty if nothing does."""
    found: str = await page.evaluate("""() => {
      const main = document.querySelector("main"), root = document.documentElement;
      if (root.scrollWidth <= innerWidth && (!main || main.scrollWidth <= main.clientWidth)) return "";
      const wide = [...document.querySelectorAll("body *")]
        .filter(each => each.getBoundingClientRect().right > innerWidth + 1);
      return wide.slice(0, 3).map(each => each.outerHTML.slice(0, 200)).join("\\n") || "something";
    }""")
    return found


async def test_the_policy_is_strict_and_a_breach_would_be_reported(visitor: Visitor) -> None:
    watched = await visitor.open("#/runs", viewport=WIDE)
    page = watched.page
    header = (await page.request.get(f"{visitor.url}/ui/")).headers["content-security-policy"]
    assert "default-src 'none'" in header
    assert "frame-ancestors 'none'" in header
    for loose in ("unsafe", "*", "http", "blob"):
        assert loose not in header
    await page.add_init_script(LISTEN)
    await page.reload()
    for address in SCREENS:
        await go(page, address)
    assert await page.evaluate("reports") == []
    # The reports of a page that does break its policy are heard: the silence above says something.
    watched.expected += ["Content Security Policy", "Refused to"]
    broken = """() => {
      const made = document.createElement("script");
      made.textContent = "window.broken = true";
      document.body.append(made);
      const styled = document.createElement("p");
      styled.setAttribute("style", "color: red");
    }"""
    await page.evaluate(broken)
    await page.wait_for_function("reports.length > 0")
    assert await page.evaluate("[window.broken === undefined, reports[0]]") == [True, "script-src-elem"]


@pytest.mark.parametrize("around", [mounted, behind_proxy])
async def test_it_works_below_a_prefix_with_its_login_and_its_feeds(browser: Browser, around: Around) -> None:
    async with own_server(works={"hostile": Hostile(timeout=None)}, around=around) as own:
        key = await own.key("admin", name="ada")
        visitor = Visitor(browser, own.url)
        watched = await visitor.open(viewport=WIDE)
        page = watched.page
        await page.goto(own.url + "/")
        await page.wait_for_url(f"{own.url}/ui/**")
        await page.get_by_label("API key").fill(key)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible(timeout=20_000)
        (cookie,) = await page.context.cookies()
        assert cookie["path"] == ("/x/y/" if around is mounted else "/")
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        await own.runtime.start("hostile", {"text": "tea"}, run_id="below")
        await page.get_by_role("link", name="below").click(timeout=20_000)  # the feed has told of it
        await page.get_by_role("link", name="Events", exact=True).click()
        await expect(page.get_by_role("list", name="Events").get_by_text("Spoken")).to_be_visible(timeout=20_000)
        await page.get_by_role("region", name="waits for Answer").get_by_role("textbox").fill("yes")
        await page.get_by_role("button", name="Send Answer").click()
        await expect(page.get_by_role("button", name="Start like this")).to_be_visible(timeout=20_000)
        await page.get_by_role("link", name="hostile").first.click()
        await expect(page.get_by_role("region", name="Graph").first).to_be_visible(timeout=20_000)
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("API key")).to_be_visible(timeout=20_000)
        watched.expected.append("401")  # feeds that were open at the time of the logout
        await visitor.close()


# -- payloads ---------------------------------------------------------------------------------------------------------

MARKUP = (
    '<img src=x onerror="window.harmed=1"></script><script>window.harmed=2</script><svg onload="window.harmed=3">'
    "<iframe srcdoc=x></iframe><style>*{display:none}</style>\u202eRTL\u2066{{7*7}}${1}javascript:alert(1)"
)
LONG = "x" * 100_000


class Given(StartEvent):
    text: str
    fails: bool = False


class Spoken(Event):
    text: str


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    text: str


class Hostile(Workflow):
    """Says what it was given, everywhere it can."""

    @step
    async def say(self, ctx: Context, ev: Given) -> StopEvent:
        """Put it into the store, into events, into a question, and into an error or a result."""
        await ctx.store.set("said", {ev.text[:300]: ev.text})
        ctx.write_event_to_stream(Spoken(text=ev.text))
        if ev.fails:
            raise RuntimeError(ev.text)
        await ctx.wait_for_event(Answer, waiter_event=Question(text=ev.text), timeout=None)
        return StopEvent(result=ev.text)


HOSTILE_FLOW = {
    "description": MARKUP,
    "triggers": {"manual": {"type": "Request", "inputs": {"schema": {
        "type": "object", "title": MARKUP,
        "properties": {"text": {"type": "string", "title": MARKUP, "description": MARKUP, "default": MARKUP}},
    }}}},
    "actions": {
        "<b>bold</b>": {"type": "compose", "inputs": "@triggerBody().text"},
        "<i>each</i>": {
            "type": "foreach",
            "foreach": "@createArray(triggerBody().text)",
            "actions": {"one": {"type": "compose", "inputs": "@item()"}},
            "runAfter": {"<b>bold</b>": ["Succeeded"]},
        },
        "ask": {
            "type": "waitForEvent",
            "inputs": {
                "event": "Answer",
                "prompt": "@triggerBody().text",
                "schema": {"type": "object", "properties": {"text": {
                    "type": "string", "title": MARKUP, "description": MARKUP, "enum": [MARKUP, "no"],
                }}},
            },
            "runAfter": {"<i>each</i>": ["Succeeded"]},
        },
    },
}  # fmt: skip
HARM = "[window.harmed, document.querySelectorAll('#app img, #app iframe, #app script, #app style').length]"


async def test_payloads_are_text_on_every_screen(browser: Browser, tmp_path: Path) -> None:
    works = {"hostile": Hostile(timeout=None), "flow": loom.load(HOSTILE_FLOW)}
    async with own_server(f"sqlite:///{tmp_path}/runs.db", works=works) as own:
        tags = {"customer": MARKUP[:200], "long": "y" * 200}
        await own.runtime.start("hostile", {"text": MARKUP}, run_id="asks", tags=tags)
        await own.runtime.start("flow", {"text": MARKUP}, run_id="flow")
        await own.runtime.start("hostile", {"text": LONG}, run_id="l" * 200, tags=tags)
        for run_id, text in {"fails": MARKUP, "fails-long": LONG}.items():
            await own.runtime.start("hostile", {"text": text, "fails": True}, run_id=run_id)
        done = await own.runtime.start("hostile", {"text": MARKUP}, run_id="done")
        visitor = Visitor(browser, own.url)
        watched = await visitor.open("#/runs", viewport=WIDE)
        page = watched.page
        await expect(page.get_by_text("onerror").first).to_be_visible(timeout=20_000)
        await own.runtime.send_event("done", Answer(text=MARKUP))
        await done
        planned = {"name": "often", "workflow": "flow", "every": 3600, "input": {"text": MARKUP}, "tags": tags}
        assert (await page.request.post(f"{own.url}/v1/schedules", data=planned)).ok
        screens = ["#/runs", "#/inbox", "#/workflows/flow", "#/workflows/flow/start", *UNSAID]
        screens += ["#/workflows/flow/schemas", "#/workflows/flow/document", "#/schedules/often"]
        screens += [f"#/runs/{run}/{tab}" for run, tabs in TABS.items() for tab in tabs.split()]
        for size in (WIDE, PHONE):
            await page.set_viewport_size(size)  # type: ignore[arg-type]
            for address in screens:
                await page.evaluate("address => { location.hash = address }", address)
                if address in UNSAID:
                    await expect(page.locator("main").get_by_text(UNSAID[address]).first).to_be_attached(timeout=20_000)
                else:
                    await expect(page.locator("main").get_by_text(PAYLOAD).first).to_be_attached(timeout=20_000)
                assert await page.evaluate(HARM) == [None, 0], address
                assert await overflow(page) == "", (address, size)
            for run, action in {
                "done": "Start like this",
                "asks": "Send event",
                "fails": "Retry",
                "flow": "Cancel",
            }.items():
                await page.evaluate("address => { location.hash = address }", f"#/runs/{run}")
                actions = page.get_by_role("group", name="Actions")
                await actions.get_by_role("button", name=action, exact=True).click()
                await expect(page.get_by_role("dialog")).to_be_visible(timeout=20_000)
                if action == "Start like this":
                    await expect(page.get_by_role("dialog").get_by_role("textbox").first).to_have_value(
                        re.compile("onerror"), timeout=20_000
                    )
                assert await page.evaluate(HARM) == [None, 0], action
                await page.keyboard.press("Escape")
                await expect(page.get_by_role("dialog")).to_have_count(0, timeout=20_000)
        await visitor.close()


TABS = {
    "asks": "graph timeline events state data journal",
    "l" * 200: "graph events state data journal",
    "fails": "graph failures journal",
    "fails-long": "graph failures journal",
    "done": "data state",
    "flow": "graph timeline events loops data state journal children",
}
PAYLOAD = re.compile("onerror|x{20}|y{20}|<b>bold")
UNSAID = {
    "#/workflows/hostile": "hostile",
    "#/workflows": "hostile",
    "#/schedules": "often",
    "#/parked": "No run is parked",
    "#/workers": "this server",
    "#/metrics": "Throughput",
    "#/runs/flow/timeline": "each",
    "#/runs/flow/children": "No children",
}
"""Screens that show no payload, and a text that they have."""
