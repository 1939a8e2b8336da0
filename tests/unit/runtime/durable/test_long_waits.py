"""Whoever waits for a run from outside may wait for hours."""

from __future__ import annotations

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual


class Rest(Workflow):
    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(3600)
        return StopEvent(result="rested")


async def _from_outside() -> object:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as worker, loom.connect(MemoryStore(database)) as client:
        worker.register(Rest(timeout=None), name="rest")
        return await (await client.start("rest"))


def test_a_client_waits_for_an_hour() -> None:
    assert run_virtual(_from_outside()) == "rested"
