"""The table of runs in a real browser, over 100,000 of them: how soon a chosen filter or order shows its rows."""

import asyncio
from statistics import median

from bench.browser import browser, open_tab
from bench.cases.http_get import fill
from bench.http_load import serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

ROUNDS = 3
_ROW = "[...document.querySelectorAll('[data-testid=run-row] [data-run]')]"
_TEXT = "[...document.querySelectorAll('[data-testid=run-row]')]"
_FILTERS = {
    "#/runs?workflow=Wait": f"{_TEXT}.every((row) => row.textContent.includes('Wait'))",
    "#/runs?status=completed": f"{_TEXT}.every((row) => row.textContent.includes('Three'))",
    "#/runs?id_prefix=run-777": f"{_ROW}.every((link) => link.dataset.run.startsWith('run-777'))",
    "#/runs?status=running&order=-updated_at": f"{_TEXT}.every((row) => row.textContent.includes('Wait'))",
    "#/runs?workflow=Three&order=created_at": f"{_TEXT}.every((row) => row.textContent.includes('Three'))",
}
"""Addresses of lists, and what holds of all rows that one shows, but of none of the list before."""


async def look(port: int) -> Figures:
    """Choose each filter a few times, on a page that is open already."""
    async with browser() as launched:
        tab = await open_tab(launched, port)
        first, _, _ = await tab.load("#/runs", f"() => {_ROW}.length > 5")
        taken: list[tuple[float, float, float]] = []
        for _ in range(ROUNDS):
            for address, holds in _FILTERS.items():
                taken.append(
                    await tab.act(f"() => {{ location.hash = '{address}'; }}", f"() => {_ROW}.length > 5 && {holds}")
                )
                await asyncio.sleep(0.3)
    walls, mains, servers = zip(*taken, strict=True)
    return {
        "first": first,
        "p50": median(walls),
        "max": max(walls),
        "main": median(mains),
        "server": median(servers),
    }


def loom(size: int) -> Figures:
    with sqlite_url() as url:
        asyncio.run(fill(url, size))
        with serving("loom", url) as port:
            return asyncio.run(look(port))


CASE = Case(
    name="page-runs",
    title="the table of 100,000 runs in a real browser, SQLite",
    order=86,
    size=100_000,
    metrics=(
        Metric("first", "ms until the page shows its first rows, nothing in the cache"),
        Metric("p50", "ms from a chosen filter to its rows, p50"),
        Metric("max", "ms of the slowest one"),
        Metric("main", "CPU ms of the main thread, p50"),
        Metric("server", "CPU ms of the server, p50"),
    ),
    peers={"loom": loom},
    targets=(absolute("at most 200 ms from a chosen filter to its rows", "p50", at_most=200),),
    warm_up=0,
    preparation_s=240,
)
