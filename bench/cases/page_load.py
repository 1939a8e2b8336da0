"""The first load of each screen of the page: what comes over the wire, in how many requests, and until it is seen."""

import asyncio
from functools import partial

from bench.browser import browser, open_tab
from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import LOOM, Case, Figures, Metric, absolute

RUNS = 20
_SETTLED_S = 1.5
"""What a page asks for a second after it is there counts too, such as the counts of its navigation."""
_ROWS = "() => document.querySelectorAll('[data-testid=run-row]').length > 5"
_SCREENS = {
    LOOM: ("#/runs", _ROWS),
    "loom run": ("#/runs/waiting", "() => document.querySelector('svg g.node')"),
    "loom inbox": ("#/inbox", "() => document.querySelector('[data-testid=inbox-item]')"),
    "loom workflows": ("#/workflows", "() => document.querySelector('main a[href=\"#/workflows/Three\"]')"),
    "loom workflow": ("#/workflows/Three", "() => document.querySelector('svg g.node')"),
    "loom schedules": ("#/schedules", "() => document.querySelector('main h1')"),
    "loom workers": ("#/workers", "() => document.querySelector('main h1')"),
    "loom metrics": ("#/metrics", "() => document.querySelector('main h1')"),
    "loom parked": ("#/parked", "() => document.querySelector('main h1')"),
}
"""The screens, and how one sees that they show what they are for."""


async def _load(screen: str, port: int, size: int) -> Figures:
    connection = Connection(port)
    await connection.json("POST", "/v1/runs", {"workflow": "Wait", "run_id": "waiting"})
    for number in range(size):
        await connection.json("POST", "/v1/runs", {"workflow": "Three", "input": {"n": number}})
    connection.close()
    async with browser() as launched:
        tab = await open_tab(launched, port)
        wall, main, server = await tab.load(*_SCREENS[screen])
        await asyncio.sleep(_SETTLED_S)
        return {
            "kb": tab.bytes / 1024,
            "requests": len(tab.requests),
            "api": sum("/v1/" in each for each in tab.requests),
            "shown": wall,
            "main": main,
            "server": server,
        }


def loom(screen: str, size: int) -> Figures:
    with sqlite_url() as url, serving("loom", url) as port:
        return asyncio.run(_load(screen, port, size))


CASE = Case(
    name="page-load",
    title="the first load of a screen of the page, nothing in the cache, a real browser",
    order=84,
    size=RUNS,
    metrics=(
        Metric("kb", "KB over the wire, compressed, heads and data included"),
        Metric("requests", "requests"),
        Metric("api", "of these to the API"),
        Metric("shown", "ms until it is seen"),
        Metric("main", "CPU ms of the main thread until then"),
        Metric("server", "CPU ms of the server until then"),
    ),
    peers={screen: partial(loom, screen) for screen in _SCREENS},
    targets=(
        *(absolute(f"at most 150 KB, {screen}", "kb", at_most=150, peer=screen) for screen in _SCREENS),
        *(absolute(f"at most 5 requests to the API, {screen}", "api", at_most=5, peer=screen) for screen in _SCREENS),
    ),
    warm_up=0,
    preparation_s=60,
)
