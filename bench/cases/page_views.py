"""A long run in a real browser: a graph of 300 actions, 10,000 events, a loop of 1,000 iterations, a timeline."""

import asyncio
from functools import partial
from typing import Any

from bench.browser import browser, open_tab
from bench.cases import _flow_documents
from bench.cases.run_views import chain
from bench.http_load import serving
from bench.places import sqlite_url
from bench.spec import LOOM, Case, Figures, Metric, absolute

EVENTS = 10_000
ITERATIONS = 1_000
ACTIONS = 300


def _actions(count: int) -> dict[str, Any]:
    """Make a flow whose actions stand in rows of three."""
    actions: dict[str, Any] = {}
    for number in range(count):
        after = {f"a{before}": ["Succeeded"] for before in range(number // 3 * 3 - 3, number // 3 * 3) if before >= 0}
        actions[f"a{number}"] = {"type": "compose", "inputs": number, "runAfter": after}
    return {"actions": actions}


def _run_of(kind: str, size: int) -> Any:
    import loom

    if kind == "events":
        return chain(EVENTS)
    if kind == "iterations":
        return loom.load(_flow_documents.until(ITERATIONS), limits={"max_iterations": ITERATIONS})
    return loom.load(_actions(size)) if kind == LOOM else chain(EVENTS)


_VIEWS = {
    LOOM: ("graph", "() => document.querySelectorAll('svg g.node').length > 5"),
    "loom events": ("events?internal=1", "() => document.querySelectorAll('button.event').length > 5"),
    "loom timeline": ("timeline", "() => document.querySelector('[data-testid=tab-timeline] svg')"),
    "loom iterations": ("loops", "() => document.querySelector('section[aria-label^=Iterations] tbody tr')"),
}
_NEXT = "[...document.querySelectorAll('button')].find((each) => each.textContent === 'Next page')"
_NUMBER = "document.querySelector('section[aria-label^=Iterations] tbody td')?.textContent"


async def _fill(url: str, workflow: Any) -> None:
    """The run is made in memory and imported: on the disk a long one would take a minute."""
    import loom

    async with loom.connect("memory://") as runtime:
        runtime.register(workflow, name="long")
        await (await runtime.start("long", run_id="long"))
        exported = await runtime.export_run("long")
    async with loom.connect(url) as runtime:
        await runtime.import_run(exported)


async def _look(kind: str, port: int) -> Figures:
    view, test = _VIEWS[kind]
    async with browser() as launched:
        tab = await open_tab(launched, port)
        if kind == "loom iterations":
            # The first page is opened before; what is measured is the way to the next one.
            await tab.load(f"#/runs/long/{view}", "() => document.querySelector('[data-testid=tab-loops] button')")
            if await tab.page.evaluate(f"!{_NEXT}"):
                await tab.page.locator("[data-testid=tab-loops] button").first.click()
            await tab.page.wait_for_function(f"() => {_NEXT} && !{_NEXT}.disabled")
            before = await tab.page.evaluate(_NUMBER)
            wall, main, server = await tab.act(f"() => {_NEXT}.click()", f"() => {_NUMBER} !== '{before}'")
        else:
            wall, main, server = await tab.load(f"#/runs/long/{view}", test)
    return {"shown": wall, "main": main, "server": server}


def loom(kind: str, size: int) -> Figures:
    with sqlite_url() as url:
        asyncio.run(_fill(url, _run_of(kind.removeprefix("loom ") if kind != LOOM else LOOM, size)))
        with serving("loom", url) as port:
            return asyncio.run(_look(kind, port))


CASE = Case(
    name="page-views",
    title="a long run in a real browser, nothing in the cache: the graph of a flow of 300 actions; 10,000 events; "
    "the timeline of these; the next page of 1,000 iterations",
    order=85,
    size=ACTIONS,
    metrics=(
        Metric("shown", "ms until it is seen"),
        Metric("main", "CPU ms of the main thread until then"),
        Metric("server", "CPU ms of the server until then"),
    ),
    peers={kind: partial(loom, kind) for kind in _VIEWS},
    targets=tuple(absolute(f"at most 1 s, {kind}", "shown", at_most=1000, peer=kind) for kind in _VIEWS),
    warm_up=0,
    preparation_s=90,
)
