"""Lists of runs over a store that is damaged in one row: all the other runs are shown, and so is that one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from server_serving import Served

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.server.settings import ServerSettings

DAMAGE = {
    "a chunk": "UPDATE chunks SET data = x'00ff' WHERE run = (SELECT id FROM runs WHERE run_id = 'bad')",
    "waiters": "waiters = '[1]'",
    "waiters without fields": "waiters = '[{}]'",
    "waiters that are none": "waiters = 'x'",
    "a time beyond all calendars": "created_at = 9e300",
    "an endless time": "updated_at = -9e999",
    "a time that is a text": "updated_at = 'x'",
    "an end that is a text": "ended_at = 'x'",
    "idle for ages": "idle_since = -9e300",
    "no UTF-8 as its error": "error = CAST(x'ff' AS TEXT)",
    "no UTF-8 as its workflow": "workflow = CAST(x'77ff' AS TEXT)",
    "bytes as its error": "error = x'ff'",
    "no number of ticks": "ticks = 'x'",
    "a number as its reason": "parked = 5",
    "tags": "tags = 'x'",
}


RUNS = 3


class Answer(HumanResponseEvent):
    pass


class Waits(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result="done")


@pytest.fixture
async def damaged(tmp_path: Path) -> AsyncIterator[Served]:
    """A server on three runs that wait, to which nothing has happened yet."""
    path = tmp_path / "runs.db"
    async with loom.connect(f"sqlite:///{path}") as runtime:
        runtime.register(Waits(timeout=None), name="waits")
        for run_id in ("old", "bad", "new"):
            await runtime.start("waits", run_id=run_id)
        async with asyncio.timeout(10):
            while len([1 async for info in runtime.list() if info.active_waiters]) < RUNS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    # Nobody works on them here: whatever is found was read from the file.
    async with loom.connect(f"sqlite:///{path}") as runtime:
        yield Served(runtime, ServerSettings())


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_damaged_row_does_not_hide_the_others(damaged: Served, tmp_path: Path, how: str) -> None:
    change = DAMAGE[how]
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as database:
        database.execute(change if change.startswith("UPDATE") else f"UPDATE runs SET {change} WHERE run_id = 'bad'")
    async with damaged.client() as client:
        for path, name in (("/v1/runs", "items"), ("/v1/runs?include=result", "items"), ("/handlers", "handlers")):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert {item["run_id"] for item in answer.json()[name]} == {"old", "bad", "new"}
    assert {info.run_id async for info in damaged.runtime.list()} == {"old", "bad", "new"}


class Demands(Workflow):
    """Waits for an answer with fields that no answer has."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Answer, waiter_id="\ud800", requirements={"\ud800": "\ud800", 5: 1}, timeout=None)
        return StopEvent()


async def test_no_name_that_a_run_waits_by_makes_its_row_unreadable(tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(Demands(timeout=None), name="demands")
        await runtime.start("demands", run_id="r")
        served = Served(runtime, ServerSettings())
        await served.until_waiting("r")
        async with served.client() as client:
            [waiter] = (await client.get("/v1/runs/r")).json()["active_waiters"]
            assert waiter["requirements"] == {"\ufffd": "\ufffd", "5": 1}
            assert (await client.post("/v1/runs/r/cancel")).status_code == 202
