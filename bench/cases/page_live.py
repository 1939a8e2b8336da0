"""An open page that follows its server: how old news are when they are seen, and what it costs while there are none."""

import asyncio
import time
from datetime import datetime
from statistics import median, quantiles
from typing import Any

from bench.browser import browser, open_tab, renderer_ms
from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

RUNS = 30
_PAUSE_S = 0.35
_QUIET_S = 20.0
_SEEN = """
window.seen = {};
new MutationObserver(() => {
  for (const link of document.querySelectorAll('[data-testid=run-row] [data-run]')) {
    const row = link.closest('[data-testid=run-row]');
    if (row.textContent.toLowerCase().includes('completed')) window.seen[link.dataset.run] ??= Date.now();
  }
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Notes when a run is first seen as completed: by the clock of the machine, which the commit is dated by too."""


async def _delays(tab: Any, connection: Connection, count: int) -> list[float]:
    """Start runs one after the other. Return how long each was over until the list said so, in milliseconds."""
    await tab.page.evaluate(_SEEN)
    for number in range(count):
        await connection.json("POST", "/v1/runs", {"workflow": "Three", "run_id": f"live-{number}", "input": {"n": 1}})
        await asyncio.sleep(_PAUSE_S)
    await asyncio.sleep(1.0)
    seen = await tab.page.evaluate("window.seen")
    delays = []
    for number in range(count):
        run = await connection.json("GET", f"/v1/runs/live-{number}")
        delays.append(seen[f"live-{number}"] - datetime.fromisoformat(run["completed_at"]).timestamp() * 1e3)
    return delays


async def _quiet(launched: Any, tab: Any) -> tuple[float, float]:
    """Return the share of one processor that a page takes while nothing happens: its main thread, and its process."""
    await asyncio.sleep(3.0)
    began, main, process = time.monotonic(), await tab.main_ms(), await renderer_ms(launched)
    await asyncio.sleep(_QUIET_S)
    passed = (time.monotonic() - began) * 10
    return (await tab.main_ms() - main) / passed, (await renderer_ms(launched) - process) / passed


async def _look(port: int, size: int) -> Figures:
    connection = Connection(port)
    await connection.json("POST", "/v1/runs", {"workflow": "Wait", "run_id": "waiting"})
    async with browser() as launched:
        tab = await open_tab(launched, port)
        await tab.load("#/runs", "() => document.querySelector('[data-run=waiting]')")
        delays = await _delays(tab, connection, size)
        main, process = await _quiet(launched, tab)
        await tab.load("#/runs/waiting", "() => document.querySelector('svg g.node')")
        run_main, run_process = await _quiet(launched, tab)
    connection.close()
    return {
        "p50": median(delays),
        "p95": quantiles(delays, n=20)[-1],
        "main": main,
        "process": process,
        "run_main": run_main,
        "run_process": run_process,
    }


def loom(size: int) -> Figures:
    with sqlite_url() as url, serving("loom", url) as port:
        return asyncio.run(_look(port, size))


CASE = Case(
    name="page-live",
    title="an open page in a real browser: news, and a time without any (what 50 readers cost: http-changes)",
    order=87,
    size=RUNS,
    metrics=(
        Metric("p50", "ms from a commit to the row that shows it, p50"),
        Metric("p95", "ms from a commit to the row that shows it, p95"),
        Metric("main", "% of a processor for a quiet list: the main thread"),
        Metric("process", "% of a processor for a quiet list: the whole process"),
        Metric("run_main", "% of a processor for a quiet run: the main thread"),
        Metric("run_process", "% of a processor for a quiet run: the whole process"),
    ),
    peers={"loom": loom},
    targets=(
        absolute("at most 200 ms from a commit to its row, p95", "p95", at_most=200),
        absolute("at most 2 % of a processor for a quiet list", "process", at_most=2),
        absolute("at most 2 % of a processor for a quiet run", "run_process", at_most=2),
    ),
    warm_up=0,
    preparation_s=120,
)
