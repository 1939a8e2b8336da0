"""Bodies that follow from each other share tasks, and cannot tell but by looking at the task itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from itertools import groupby
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.effects import body_task
from loom.effects.body_task import MAX_BODIES, MAX_TIME_S
from loom.steps.errors import WorkflowCancelledByUser

Body = Callable[[int], Awaitable[None]]
place: ContextVar[str] = ContextVar("place", default="nowhere")


class Link(Event):
    n: int


class Chain(Workflow):
    """Calls `body` with the numbers from 0, each in a body of its own."""

    def __init__(self, length: int, body: Body) -> None:
        super().__init__(timeout=None)
        self.length, self.body = length, body

    @step
    async def begin(self, ev: StartEvent) -> Link:
        return Link(n=0)

    @step
    async def go_on(self, ev: Link) -> Link | StopEvent:
        await self.body(ev.n)
        return Link(n=ev.n + 1) if ev.n + 1 < self.length else StopEvent(result=ev.n + 1)


async def test_one_task_runs_several_bodies_but_not_more_than_its_share() -> None:
    tasks: list[Any] = []

    async def body(_: int) -> None:
        tasks.append(asyncio.current_task())

    assert await Chain(100, body).run() == 100
    lengths = [len(list(group)) for _, group in groupby(tasks)]
    assert len(tasks) == 100
    assert max(lengths) <= MAX_BODIES
    assert len(lengths) < 50, "bodies that end at once share tasks"


async def test_each_body_has_a_context_of_its_own() -> None:
    seen: list[str] = []

    async def body(n: int) -> None:
        seen.append(place.get())
        place.set(f"body {n}")
        await asyncio.sleep(0)
        assert place.get() == f"body {n}"
        await asyncio.create_task(asyncio.sleep(0))
        assert place.get() == f"body {n}"

    token = place.set("caller")
    handler = Chain(40, body).run()
    place.reset(token)
    assert await handler == 40
    assert seen == ["caller"] * 40
    assert place.get() == "nowhere"


async def test_task_is_the_same_for_the_whole_body() -> None:
    async def body(_: int) -> None:
        task = asyncio.current_task()
        for pause in (0, 0.0001):
            await asyncio.sleep(pause)
            assert asyncio.current_task() is task
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        assert asyncio.current_task() is task

    assert await Chain(20, body).run() == 20


async def test_timeout_in_a_body_that_shares_a_task_hits_that_body_alone() -> None:
    timed_out: list[int] = []

    async def body(n: int) -> None:
        if n % 3 == 2:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(10)
            timed_out.append(n)

    assert await Chain(12, body).run() == 12
    assert timed_out == [2, 5, 8, 11]


async def test_body_that_cancels_its_own_task_does_not_reach_the_next_one() -> None:
    paused: list[int] = []

    async def body(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if n % 2:
            task.cancel()  # too late for this body: it awaits nothing any more
        else:
            await asyncio.sleep(0)
            paused.append(n)

    assert await Chain(10, body).run() == 10
    assert paused == [0, 2, 4, 6, 8]


async def test_cancelled_run_cancels_a_body_that_shares_a_task() -> None:
    reached, ended = asyncio.Event(), []

    async def body(n: int) -> None:
        if n == 5:
            reached.set()
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                ended.append(place.get())
                raise

    handler = Chain(10, body).run()
    await reached.wait()
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert ended == ["nowhere"]


async def test_other_tasks_get_their_turns_beside_a_long_chain() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def body(_: int) -> None:
        return None

    beside = asyncio.create_task(others())
    await Chain(20 * MAX_BODIES, body).run()
    beside.cancel()
    assert turns >= 20


async def test_body_that_takes_long_is_the_last_one_of_its_task() -> None:
    tasks: list[Any] = []

    async def body(_: int) -> None:
        tasks.append(asyncio.current_task())
        time.sleep(1.2 * MAX_TIME_S)  # noqa: ASYNC251 - it holds the loop, which is the point

    await Chain(6, body).run()
    assert len(set(tasks)) == 6


class Timed(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Link:
        return Link(n=0)

    @step(timeout=0.01)
    async def late(self, ev: Link) -> StopEvent:
        await asyncio.sleep(10)
        return StopEvent()


async def test_timeout_of_a_step_counts_from_its_own_begin() -> None:
    with pytest.raises(TimeoutError):
        await Timed(timeout=None).run()


class Asking(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Link:
        return Link(n=0)

    @step(num_workers=1)
    async def ask(self, ctx: Context, ev: Link) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        await ctx.sleep(0.001)
        return StopEvent(result=answer.text)


async def test_body_that_shares_a_task_gives_its_worker_back_while_it_waits() -> None:
    handler = Asking(timeout=None).run()
    async with asyncio.timeout(5):
        while not handler.ctx.is_idle:  # noqa: ASYNC110 - nothing tells that it is
            await asyncio.sleep(0.001)
    handler.ctx.send_event(HumanResponseEvent(text="yes"))
    assert await handler == "yes"


async def test_failure_of_a_body_that_shares_a_task_is_its_own() -> None:
    async def body(n: int) -> None:
        if n == 7:
            raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        await Chain(10, body).run()


class Piece(Event):
    n: int


class Done(Event):
    n: int


class Together(Workflow):
    """Runs `body` with the numbers below 12 in bodies that begin together."""

    def __init__(self, body: Body) -> None:
        super().__init__(timeout=None)
        self.body = body

    @step
    async def begin(self, ev: StartEvent) -> list[Piece]:
        return [Piece(n=n) for n in range(12)]

    @step(num_workers=12)
    async def work(self, ev: Piece) -> Done:
        await self.body(ev.n)
        return Done(n=ev.n)

    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=[ev.n for ev in evs])


async def test_bodies_that_begin_together_and_end_at_once_share_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_task, "MAX_TIME_S", 1e9)  # a busy machine may stop for longer
    tasks: list[Any] = []
    seen: list[str] = []

    async def body(n: int) -> None:
        tasks.append(asyncio.current_task())
        seen.append(place.get())
        place.set(str(n))

    assert sorted(await Together(body).run()) == list(range(12))
    assert len(set(tasks)) < 12
    assert seen == ["nowhere"] * 12, "each has a context of its own"


async def test_a_body_that_waits_does_not_hold_up_the_ones_that_began_with_it() -> None:
    begun: set[int] = set()
    tasks: set[Any] = set()
    all_begun = asyncio.Event()

    async def body(n: int) -> None:
        begun.add(n)
        tasks.add(asyncio.current_task())
        if len(begun) == 12:
            all_begun.set()
        await all_begun.wait()

    assert sorted(await Together(body).run()) == list(range(12))
    assert len(tasks) == 12


async def test_a_body_that_is_cancelled_from_within_leaves_the_others_alone() -> None:
    ended: list[int] = []

    async def body(n: int) -> None:
        if n == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        ended.append(n)

    await Together(body).run()
    assert ended == list(range(12))


async def test_bodies_that_compute_for_long_let_other_tasks_have_their_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def body(_: int) -> None:
        end = time.perf_counter() + 2 * MAX_TIME_S
        while time.perf_counter() < end:
            pass
        counts.append(turns)

    counts: list[int] = []
    beside = asyncio.create_task(other())
    await Together(body).run()
    beside.cancel()
    assert len(set(counts)) > 1
