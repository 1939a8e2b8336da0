"""Days of virtual time pass at once over a store, in exact order: looks at the store that find nothing are left out."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from postgres_server import fresh_database_url

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.scanner import Scanner
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import VIRTUAL_EPOCH, FaultPlan, FaultyStore, StalledError, run_virtual
from loom.testing.faults import Crash

HOUR, DAY = 3600.0, 24 * 3600.0


class Reminder(Workflow):
    """Asks every day, and gives up after ten days."""

    @step
    async def remind(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        for day in range(10):
            try:
                await ctx.wait_for_event(HumanResponseEvent, timeout=DAY)
            except TimeoutError:
                continue
            return StopEvent(result=f"answered on day {day + 1}")
        return StopEvent(result="gave up")


class Rounds(Workflow):
    """Sleeps two minutes at a time, for a day."""

    @step
    async def go(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        for _ in range(720):
            await ctx.sleep(120.0)
        return StopEvent()


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(HumanResponseEvent, timeout=None)).response)


def now() -> float:
    return asyncio.get_running_loop().time() - VIRTUAL_EPOCH


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    return f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else fresh_database_url()


async def _ten_days(url: str, **options: Any) -> tuple[object, float]:
    async with loom.connect(url, **options) as runtime:
        runtime.register(Reminder(timeout=None), name="reminder")
        began = now()
        result = await (await runtime.start("reminder"))
        return result, now() - began


@pytest.mark.parametrize("idle_timeout", [None, 60.0])
def test_ten_days_pass_at_once(url: str, idle_timeout: float | None) -> None:
    began = time.monotonic()
    result, took = run_virtual(_ten_days(url, idle_timeout=idle_timeout))
    assert result == "gave up"
    assert 10 * DAY <= took < 10 * DAY + 1
    assert time.monotonic() - began < 40  # it takes 0.2 to 2 s; with every look, 100 s and more


async def _late_answer(url: str) -> tuple[object, float]:
    async with loom.connect(url) as runtime:
        runtime.register(Reminder(timeout=None), name="reminder")
        began = now()
        handler = await runtime.start("reminder")
        await asyncio.sleep(30 * HOUR)
        await handler.send_event(HumanResponseEvent())
        return await handler, now() - began


def test_the_order_is_exact_while_a_database_works(url: str) -> None:
    assert run_virtual(_late_answer(url)) == ("answered on day 2", 30 * HOUR)


async def _many_timers() -> float:
    async with loom.connect("memory://", idle_timeout=None) as runtime:
        runtime.register(Rounds(timeout=None), name="rounds")
        began = now()
        await (await runtime.start("rounds"))
        return now() - began


def test_a_day_of_frequent_timers_takes_no_look_per_second() -> None:
    began = time.monotonic()
    assert DAY <= run_virtual(_many_timers()) < DAY + 1
    assert time.monotonic() - began < 40


class Stubborn(Workflow):
    """Fails every quarter of an hour, for six hours."""

    @step(retry_policy=loom.retry_policy(wait=loom.wait_fixed(900.0), stop=loom.stop_after_attempt(24)))
    async def fail(self, _ev: StartEvent) -> StopEvent:
        raise LookupError("no")


@pytest.mark.parametrize(
    ("idle_timeout", "looks_per_timer"),
    [(None, 2), (0.0, 2), (60.0, 4)],  # the release after a minute is a timer too
)
def test_a_timer_costs_one_look_before_it_and_one_after(
    idle_timeout: float | None, looks_per_timer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    scan = Scanner.scan

    async def counted(scanner: Scanner) -> bool:
        nonlocal looks
        looks += 1
        return await scan(scanner)

    async def main() -> float:
        async with loom.connect(f"sqlite:///{tmp_path / 'runs.db'}", idle_timeout=idle_timeout) as runtime:
            runtime.register(Stubborn(timeout=None), name="stubborn")
            began = now()
            with pytest.raises(LookupError):
                await (await runtime.start("stubborn"))
            return now() - began

    monkeypatch.setattr(Scanner, "scan", counted)
    assert 23 * 900.0 <= run_virtual(main()) < 23 * 900.0 + 1
    settling = 2 * 15 + 5  # of the lease, when the worker comes
    assert looks <= settling + 23 * looks_per_timer


async def _two_workers() -> tuple[str, float]:
    """One of two workers dies amid a wait of days, for which the other one has a timer."""
    database = MemoryDatabase()
    store = FaultyStore(MemoryStore(database), FaultPlan())
    first, other = loom.connect(store, idle_timeout=None), loom.connect(MemoryStore(database), idle_timeout=None)
    async with other:
        await first.__aenter__()
        first.register(Ask(timeout=None), name="ask")
        await first.start("ask", run_id="asked")
        other.register(Reminder(timeout=None), name="reminder")
        await other.start("reminder")
        await asyncio.sleep(3 * DAY)
        for runtime in (first, other):
            assert runtime._member is not None
            assert runtime.figures["in_memory"] == 1
        assert database.last_fence == 2, "a lease was lost while looks were left out"

        other.register(Ask(timeout=None), name="ask")
        await other.ready()
        await asyncio.sleep(HOUR)
        died = now()
        store.crash()
        await other.send_event("asked", HumanResponseEvent(response="yes"))
        result = await (await other.handler("asked"))
        took = now() - died
        with suppress(Crash):
            await first.close()
        return result, took


def test_leases_last_through_days_and_end_with_their_owners() -> None:
    result, took = run_virtual(_two_workers())
    assert result == "yes"
    assert 10.0 < took < 20.0


def test_a_run_that_waits_for_ever_is_told_of() -> None:
    async def main() -> None:
        async with loom.connect("memory://") as runtime:
            runtime.register(Ask(timeout=None), name="ask")
            await (await runtime.start("ask"))

    with pytest.raises(StalledError):
        run_virtual(main(), patience_s=0.1)
