"""A process that slept past its lease does not do what `ctx.once` promises to do once: another one has the run."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.lease import Lease
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.settings import Settings
from loom.store.memory import MemoryDatabase, MemoryStore

sys.path.insert(0, str(Path(__file__).parents[3]))


class Bills(Workflow):
    """Waits, then makes a call that costs money."""

    def __init__(self, calls: list[str], member: str, before: Callable[[], Any]) -> None:
        super().__init__(timeout=None)
        self._calls, self._member, self._before = calls, member, before

    @step
    async def bill(self, ctx: Context, ev: StartEvent) -> StopEvent:
        waits = self._before()
        if waits is not None:
            await waits
        return StopEvent(result=await ctx.once("billed", self._call))

    def _call(self) -> str:
        self._calls.append(self._member)
        return self._member


async def test_a_member_that_slept_past_its_lease_makes_no_call() -> None:
    """Time passes for the sleeper and for the store, but the sleeper does not look at it."""
    passed, calls = 0.0, list[str]()
    database, entered, awake = MemoryDatabase(), asyncio.Event(), asyncio.Event()

    def clock() -> float:
        return 1000.0 + passed

    def member(name: str, before: Callable[[], Any], lease: float) -> DurableRuntime:
        settings = Settings(name=name, lease=lease, poll_interval=0.05 if name == "other" else 600.0)
        runtime = DurableRuntime(MemoryStore(database, clock=clock), settings, clock=clock)
        runtime.register(Bills(calls, name, before), name="bills")
        return runtime

    def falls_asleep() -> Any:
        entered.set()
        return awake.wait()

    async with asyncio.timeout(60), member("sleeper", falls_asleep, 1800.0) as sleeper:
        await sleeper.start("bills", run_id="r")
        await entered.wait()
        passed = 3600.0
        async with member("other", lambda: None, 1800.0) as other:
            assert await (await other.handler("r")) == "other"
            awake.set()
            while sleeper.metrics.lease_losses == 0:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    assert calls == ["other"]


async def test_a_body_that_blocks_its_process_past_the_lease_makes_no_call() -> None:
    """On PostgreSQL, with a process (here a thread with its own event loop) that stands still in a body."""
    from postgres_server import fresh_database_url

    url, calls = fresh_database_url(), list[str]()
    entered, taken_over = threading.Event(), threading.Event()

    def stands_still() -> None:
        if not entered.is_set():
            entered.set()
            assert taken_over.wait(60)

    async def sleeper() -> None:
        async with loom.connect(url, name="sleeper", lease=1.0, poll_interval=0.1) as runtime:
            runtime.register(Bills(calls, "sleeper", stands_still), name="bills")
            await runtime.start("bills", run_id="r")
            async with asyncio.timeout(60):
                while (await runtime.get("r")).status == "running":  # noqa: ASYNC110 - a store is asked
                    await asyncio.sleep(0.02)

    working = asyncio.create_task(asyncio.to_thread(asyncio.run, sleeper()))
    async with asyncio.timeout(60):
        await asyncio.to_thread(entered.wait, 60)
        async with loom.connect(url, name="other", lease=30.0, poll_interval=0.1) as runtime:
            runtime.register(Bills(calls, "other", lambda: None), name="bills")
            assert await (await runtime.handler("r")) == "other"
            taken_over.set()
            await working
    assert calls == ["other"]


# -- the clocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "looped", "is_fresh"),
    [(0.0, 0.0, True), (4.0, 4.0, True), (6.0, 0.0, False), (0.0, 6.0, False), (-3600.0, 1.0, False)],
    ids=["at once", "within half of it", "the machine slept", "the process stood still", "the clock was set back"],
)
async def test_a_lease_is_fresh_for_half_of_its_time_by_both_clocks(
    passed: float, looped: float, is_fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, loop = [1000.0, 50.0], asyncio.get_running_loop()
    asked = list[None]()
    lease = Lease(10.0, lambda: times[0], loop)
    monkeypatch.setattr(lease, "now", lambda: (times[0], times[1]))
    lease.on_doubt = lambda: asked.append(None)
    assert lease.held() is not None, "nothing is known before the first renewal"
    lease.renewed(lease.now())
    asked.clear()
    times[0] += passed
    times[1] += looped
    waits = lease.held()
    assert (waits is None) == is_fresh
    assert bool(asked) != is_fresh
    if waits is not None:
        lease.renewed(lease.now())
        async with asyncio.timeout(60):
            await waits
        assert lease.held() is None
