"""What a process counts and measures while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickTimerFired
from loom.runtime.durable.metrics import MAX_STEPS, MAX_WORKFLOWS, OTHER, Histogram, RuntimeMetrics
from loom.store.committer import Committer
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import ClaimRun, StartRun
from loom.testing.clock import run_virtual


class Go(Event):
    """What a run waits for."""


class Napper(Workflow):
    """Sleeps, or waits, and ends."""

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if (seconds := ev.get("sleep", default=0)) > 0:
            await ctx.sleep(seconds)
        if ev.get("wait", default=False):
            await ctx.wait_for_event(Go)
        return StopEvent(result="ok")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.001)


def test_a_histogram_counts_what_is_not_above_a_bound() -> None:
    spread = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 99.0):
        spread.observe(value)
    assert list(spread.buckets()) == [(1.0, 2), (2.0, 4), (float("inf"), 5)]
    assert (spread.count, spread.total) == (5, 103.5)


async def test_ticks_and_commands_are_counted_once_they_are_committed() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Napper(timeout=None), name="nap")
        await (await runtime.start("nap", {}, run_id="a"))
        row = await runtime.row("a")
        metrics = runtime.metrics
        await until(lambda: metrics.ticks == row.head.ticks)
        assert metrics.commands > 0
        assert metrics.commands_undone == metrics.stale_results == metrics.timers_armed == 0
        assert metrics.commit_seconds.count == metrics.commit_sizes.count > 0


async def test_operations_that_share_a_transaction_are_one_commit() -> None:
    store, metrics = MemoryStore(), RuntimeMetrics()
    await store.open()
    committer = Committer(store, watch=metrics)
    for number in range(3):
        committer.submit(StartRun(f"r{number}", "w", b"{}", 1.0))
    await committer.close()
    await store.close()
    assert (metrics.commit_sizes.count, metrics.commit_sizes.total) == (1, 3)


async def test_failed_transactions_are_counted_and_so_is_what_is_tried_again() -> None:
    class Choosy(MemoryStore):
        async def apply(self, group: Any) -> Any:
            if any(isinstance(operation, ClaimRun) for operation in group):
                raise StoreUnavailable("not now")
            return await super().apply(group)

    store, metrics = Choosy(), RuntimeMetrics()
    await store.open()
    committer = Committer(store, watch=metrics)
    refused = committer.submit(ClaimRun("r", 1))
    written = committer.submit(StartRun("r", "w", b"{}", 1.0))
    await written
    with pytest.raises(StoreUnavailable):
        await refused
    await committer.close()
    await store.close()
    # The group, then the operation alone; the other one was written by itself.
    assert metrics.store_failures == 2
    assert (metrics.commit_sizes.count, metrics.commit_sizes.total) == (1, 1)


async def test_commands_of_a_batch_that_is_not_committed_are_pushed_back() -> None:
    class Failing(MemoryStore):
        fails = False

        async def apply(self, group: Any) -> Any:
            if self.fails:
                raise StoreUnavailable("the disk is gone")
            return await super().apply(group)

    store = Failing()
    async with loom.connect(store, poll_interval=0.01) as runtime:
        runtime.register(Napper(timeout=None), name="nap")
        handler = await runtime.start("nap", {"wait": True}, run_id="a")
        await until(lambda: runtime.active_runs and runtime.active_runs.runs["a"].is_at_rest)  # type: ignore[union-attr]
        metrics = runtime.metrics
        await runtime.send_event("a", Go())
        store.fails = True
        await until(lambda: metrics.commands_undone)
        assert metrics.store_failures > 0
        store.fails = False
        assert await handler == "ok"


def test_timers_are_counted_and_their_lateness_measured() -> None:
    async def nap() -> RuntimeMetrics:
        async with loom.connect(MemoryStore(), idle_timeout=5.0) as runtime:
            runtime.register(Napper(timeout=None), name="nap")
            await (await runtime.start("nap", {"sleep": 2.0}))
            return runtime.metrics

    metrics = run_virtual(nap())
    assert (metrics.timers_armed, metrics.timers_fired) == (1, 1)
    assert metrics.timer_lateness.count == 1
    assert metrics.timer_lateness.total < 1.0


def test_a_timer_that_fell_due_while_nobody_worked_is_late() -> None:
    async def nap() -> RuntimeMetrics:
        database = MemoryDatabase()
        async with loom.connect(MemoryStore(database)) as runtime:
            runtime.register(Napper(timeout=None), name="nap")
            await runtime.start("nap", {"sleep": 10.0}, run_id="a")
            await until(lambda: runtime.metrics.timers_armed)
        await asyncio.sleep(110.0)
        async with loom.connect(MemoryStore(database)) as second:
            second.register(Napper(timeout=None), name="nap")
            await (await second.handler("a"))
            return second.metrics

    metrics = run_virtual(nap())
    assert metrics.timers_fired == 1
    assert metrics.timer_lateness.total == pytest.approx(100.0, abs=1.0)


async def test_the_way_back_into_memory_is_measured() -> None:
    async with loom.connect("memory://", idle_timeout=0.0) as runtime:
        runtime.register(Napper(timeout=None), name="nap")
        handler = await runtime.start("nap", {"wait": True}, run_id="a")
        metrics = runtime.metrics
        await until(lambda: metrics.released)
        assert metrics.resume_seconds.count == 0
        await runtime.send_event("a", Go())
        await handler
        assert (metrics.released, metrics.resumed, metrics.resume_seconds.count) == (1, 1, 1)
        assert 0 < metrics.resume_seconds.total < 10
        assert runtime.figures == {"in_memory": 0, "released": 1, "resumed": 1}


async def test_results_that_come_too_late_are_counted() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Napper(timeout=None), name="nap")
        handler = await runtime.start("nap", {"wait": True}, run_id="a")
        active_runs = runtime.active_runs
        assert active_runs is not None
        await until(lambda: "a" in active_runs.runs and active_runs.runs["a"].is_at_rest)
        active = active_runs.runs["a"]
        active.notify(TickTimerFired(at=runtime.now(), timer=999))
        await runtime.send_event("a", Go())
        assert await handler == "ok"
        assert runtime.metrics.stale_results == 1


def test_a_lost_lease_is_counted() -> None:
    class Forgetful(MemoryStore):
        beats = 0

        async def beat(self, fence: int, lease: float) -> bool:
            self.beats += 1
            return await super().beat(fence, lease) if self.beats != 3 else False

    async def lose() -> RuntimeMetrics:
        async with loom.connect(Forgetful()) as runtime:
            runtime.register(Napper(timeout=None), name="nap")
            await runtime.ready()
            await asyncio.sleep(60.0)
            return runtime.metrics

    assert run_virtual(lose()).lease_losses == 1


def test_workflows_and_steps_beyond_the_limits_share_their_figures() -> None:
    metrics = RuntimeMetrics()
    for number in range(2 * MAX_WORKFLOWS):
        metrics.of_workflow(f"w{number}").count("started")
    assert len(metrics.workflows) == MAX_WORKFLOWS + 1
    assert metrics.of_workflow("w1").started == 1
    assert metrics.of_workflow("w199") is metrics.of_workflow(OTHER)
    assert metrics.of_workflow(OTHER).started == MAX_WORKFLOWS
    for number in range(2 * MAX_STEPS):
        metrics.know(f"w{number % 7}", [f"s{number}"])
    shown = [step for each in metrics.workflows.values() for step in each.steps]
    assert len(shown) <= MAX_STEPS + MAX_WORKFLOWS + 1
    assert metrics.of_step(metrics.of_workflow("w0"), "s999") is metrics.workflows["w0"].steps[OTHER]
