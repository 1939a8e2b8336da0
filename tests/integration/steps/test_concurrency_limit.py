"""`num_concurrent_runs` holds back further runs of one instance."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from steps_rig import outcome_of, settled

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowCancelledByUser, WorkflowTimeoutError


class Go(Event):
    pass


class Limited(Workflow):
    running = most = 0

    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        if ev.get("fails"):
            raise ValueError("fails")
        return StopEvent(result=ev.get("n"))


def limited(limit: int | None, timeout: float | None = 5) -> Limited:
    workflow = Limited(timeout=timeout, num_concurrent_runs=limit)
    workflow.gate = asyncio.Event()
    return workflow


async def test_no_more_runs_than_the_limit_at_once():
    workflow = limited(2)
    handlers = [workflow.run(n=n) for n in range(5)]
    await settled()
    assert workflow.running == 2
    workflow.gate.set()
    assert await asyncio.gather(*handlers) == [0, 1, 2, 3, 4]
    assert workflow.most == 2


async def test_without_a_limit_all_run_at_once():
    workflow = limited(None)
    handlers = [workflow.run(n=n) for n in range(5)]
    await settled()
    assert workflow.running == 5
    workflow.gate.set()
    await asyncio.gather(*handlers)


async def test_limit_is_of_the_instance():
    one, other = limited(1), limited(1)
    handlers = [one.run(n=1), other.run(n=2)]
    await settled()
    assert (one.running, other.running) == (1, 1)
    one.gate.set()
    other.gate.set()
    await asyncio.gather(*handlers)


class Gauge:
    """Counts how many are inside at once; safe from any thread."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1


def of_functions(gauge: Gauge) -> type[Workflow]:
    """A workflow of functions outside of the class, sync and async, in two steps."""

    class Functions(Workflow):
        pass

    @step(workflow=Functions)
    def begin(ev: StartEvent) -> Go:
        gauge.enter()
        return Go()

    @step(workflow=Functions)
    async def end(ev: Go) -> StopEvent:
        await asyncio.sleep(0)
        gauge.leave()
        return StopEvent()

    return Functions


def of_callables(gauge: Gauge) -> type[Workflow]:
    """A workflow whose steps are a decorated function and an added one."""

    def in_turn(body: Callable[..., Awaitable[StopEvent]]) -> Callable[..., Awaitable[StopEvent]]:
        @functools.wraps(body)
        async def wrapped(*args: Any, **kwargs: Any) -> StopEvent:
            gauge.enter()
            try:
                return await body(*args, **kwargs)
            finally:
                gauge.leave()

        return wrapped

    class Callables(Workflow):
        @step
        @in_turn
        async def end(self, ev: Go) -> StopEvent:
            await asyncio.sleep(0)
            return StopEvent()

    @step(workflow=Callables)
    async def begin(ev: StartEvent) -> Go:
        return Go()

    return Callables


@pytest.mark.parametrize("make", [of_functions, of_callables])
@pytest.mark.parametrize(("limit", "expected"), [(1, {1}), (3, {1, 2, 3}), (None, {1, 2, 3, 4, 5, 6})])
async def test_the_limit_holds_whatever_the_steps_are(
    make: Callable[[Gauge], type[Workflow]], limit: int | None, expected: set[int]
):
    gauge = Gauge()
    workflow = make(gauge)(timeout=60, num_concurrent_runs=limit)
    await asyncio.gather(*(workflow.run() for _ in range(6)))
    assert gauge.most in expected
    assert gauge.inside == 0


async def test_failed_run_gives_its_turn_away():
    workflow = limited(1)
    first, second = workflow.run(fails=True), workflow.run(n=2)
    workflow.gate.set()
    with pytest.raises(ValueError, match="fails"):
        await first
    assert await second == 2


async def test_clock_of_a_run_that_is_held_back_starts_when_it_does():
    workflow = limited(1, timeout=0.5)
    first, second = workflow.run(n=1), workflow.run(n=2)
    assert isinstance(await outcome_of(first), WorkflowTimeoutError)
    workflow.gate.set()
    assert await second == 2


async def test_cancelling_a_run_that_is_held_back():
    workflow = limited(1)
    first, second, third = (workflow.run(n=n) for n in range(3))
    await settled()
    await second.cancel_run(timeout=1)
    assert isinstance(await outcome_of(second), WorkflowCancelledByUser)
    workflow.gate.set()
    assert await first == 0
    assert await third == 2
    assert workflow.most == 1


async def test_event_sent_to_a_run_that_is_held_back_is_not_lost():
    class Asks(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Go)
            return StopEvent(result=ev.n)

    workflow = Asks(timeout=5, num_concurrent_runs=1)
    first, second = workflow.run(n=1), workflow.run(n=2)
    second.ctx.send_event(Go())
    await settled()
    first.ctx.send_event(Go())
    assert await first == 1
    assert await second == 2


class Nested(Workflow):
    """Runs children of the same instance, so many levels deep; only the leaves count as running."""

    running = most = 0

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.levels:
            children = [ctx.run_child(self, levels=ev.levels - 1, width=ev.width) for _ in range(ev.width)]
            return StopEvent(result=sum(await asyncio.gather(*children)))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return StopEvent(result=1)


@pytest.mark.parametrize(("levels", "width"), [(4, 1), (1, 5), (2, 3)])
async def test_children_of_the_same_workflow_use_the_place_of_their_parent(levels: int, width: int):
    workflow = Nested(timeout=20, num_concurrent_runs=1)
    assert await workflow.run(levels=levels, width=width) == width**levels
    assert workflow.most == 1
    assert await workflow.run(levels=0, width=0) == 1, "and every place is free again"


async def test_several_parents_and_their_children_stay_within_the_limit():
    workflow = Nested(timeout=20, num_concurrent_runs=2)
    assert await asyncio.gather(*(workflow.run(levels=1, width=3) for _ in range(5))) == [3] * 5
    assert workflow.most == 2


async def test_places_are_given_back_when_a_parent_is_cancelled():
    workflow = Nested(timeout=20, num_concurrent_runs=1)
    handler = workflow.run(levels=2, width=1)
    stuck = Stuck(timeout=20, num_concurrent_runs=1)
    waiting = stuck.run(levels=2)
    await settled()
    assert stuck.reached.is_set(), "the last of three has the place of the first"
    await waiting.cancel_run()
    assert isinstance(await outcome_of(waiting), WorkflowCancelledByUser)
    assert await handler == 1
    stuck.gate.set()
    assert await stuck.run(levels=1) == "out"


class Stuck(Workflow):
    """The same in one line, with a leaf that waits for a gate."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.gate, self.reached = asyncio.Event(), asyncio.Event()

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.levels:
            return StopEvent(result=await ctx.run_child(self, levels=ev.levels - 1))
        self.reached.set()
        await self.gate.wait()
        return StopEvent(result="out")
