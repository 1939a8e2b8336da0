"""`loom why`, and stuck runs in lists and in the status of a run."""

from __future__ import annotations

import asyncio

import pytest
from cli_rig import STORE, data, failure, good, started

from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.connect import connect

pytestmark = pytest.mark.usefixtures("shop")

REASON = "Step 'begin' returned None, and nothing else was left to do."


class Halts(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent | None:
        return None


async def _halt(run_id: str) -> None:
    async with asyncio.timeout(60), connect(STORE) as runtime:
        runtime.register(Halts(), name="halts")
        await runtime.start("halts", run_id=run_id)
        while (await runtime.get(run_id)).stuck is None:  # noqa: ASYNC110 - a store is asked, and tells nobody
            await asyncio.sleep(0.005)


def test_why_is_one_sentence() -> None:
    started("order-1")
    (line,) = good("why", "order-1").splitlines()
    assert line.startswith("Step 'place' waits for event 'Approval' since ")
    assert line.endswith(("(in 59m).", "(in 1h)."))
    good("workflow", "pause", "order-1")
    found = data("why", "order-1")
    assert (found["kind"], found["causes"][0]["event_type"]) == ("no_worker", None)
    assert "1 message waits for it" in found["sentence"]
    assert failure(1, "why", "nobody") == "Run 'nobody' was not found."


def test_stuck_runs_are_listed_with_their_reason() -> None:
    started("order-1")
    asyncio.run(_halt("halt-1"))
    lines = good("workflow", "list", "--stuck").splitlines()
    assert [line.split()[:4] for line in lines[2:]] == [["halt-1", "halts", "running", "(stuck)"]]
    assert [run["run_id"] for run in data("workflow", "list", "--not-stuck")] == ["order-1"]
    assert data("workflow", "list", "--stuck")[0]["stuck"] == REASON
    shown = good("workflow", "status", "halt-1")
    assert "status:      running (stuck)\n" in shown
    assert f"stuck:       {REASON}\n" in shown
    assert "error:" not in shown
    assert good("why", "halt-1").rstrip().endswith(f": {REASON}")
