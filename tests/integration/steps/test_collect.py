"""`ctx.collect_events`: buffers of exact types, per step and buffer id."""

from __future__ import annotations

import asyncio
from collections import Counter

from steps_rig import streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class C(Event):
    n: int = 0


class Ordered(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | None:
        for event in (B(n=1), A(n=2), B(n=3), A(n=4)):
            ctx.send_event(event)
        return None

    @step(num_workers=1)
    async def join(self, ctx: Context, ev: A | B) -> StopEvent | None:
        found = ctx.collect_events(ev, [A, B, A, B])
        return StopEvent(result=[(type(e).__name__, e.n) for e in found]) if found else None


async def test_full_set_comes_in_the_order_of_expected():
    assert await Ordered(timeout=5).run() == [("A", 2), ("B", 1), ("A", 4), ("B", 3)]


class Rounds(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(6):
            ctx.send_event(A(n=n))
        return None

    @step(num_workers=1)
    async def pair(self, ctx: Context, ev: A) -> B | None:
        found = ctx.collect_events(ev, [A, A])
        return B(n=sum(e.n for e in found)) if found else None

    @step
    async def join(self, ctx: Context, ev: B) -> StopEvent | None:
        found = ctx.collect_events(ev, [B] * 3)
        return StopEvent(result=[e.n for e in found]) if found else None


async def test_full_set_empties_the_buffer():
    assert await Rounds(timeout=5).run() == [1, 5, 9]


class Buffers(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(4):
            ctx.send_event(A(n=n))
        return None

    @step(num_workers=1)
    async def pair(self, ctx: Context, ev: A) -> StopEvent | None:
        found = ctx.collect_events(ev, [A, A], buffer_id="odd" if ev.n % 2 else "even")
        self.sets += [[e.n for e in found]] if found else []
        return StopEvent(result=self.sets) if len(self.sets) == 2 else None

    sets: list[list[int]]


async def test_buffers_are_apart_by_their_id():
    workflow = Buffers(timeout=5)
    workflow.sets = []
    assert await workflow.run() == [[0, 2], [1, 3]]


class PerStep(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        ctx.send_event(A(n=1))
        ctx.send_event(A(n=2))
        return None

    @step(num_workers=1)
    async def one(self, ctx: Context, ev: A) -> B | None:
        found = ctx.collect_events(ev, [A, A])
        return B(n=len(found)) if found else None

    @step(num_workers=1)
    async def other(self, ctx: Context, ev: A) -> B | None:
        found = ctx.collect_events(ev, [A, A])
        return B(n=len(found)) if found else None

    @step
    async def join(self, ctx: Context, ev: B) -> StopEvent | None:
        found = ctx.collect_events(ev, [B, B])
        return StopEvent(result=[e.n for e in found]) if found else None


async def test_buffers_are_apart_by_step():
    assert await PerStep(timeout=5).run() == [2, 2]


class Nothing(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ctx.collect_events(ev, []))


async def test_expecting_nothing_gives_an_empty_list():
    assert await Nothing(timeout=5).run() == []


class Unwanted(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | C | None:
        for event in (A(n=1), A(n=2), C(n=9), B(n=3)):
            ctx.send_event(event)
        return None

    @step(num_workers=1)
    async def join(self, ctx: Context, ev: A | B | C) -> StopEvent | None:
        found = ctx.collect_events(ev, [A, B])
        return StopEvent(result=[e.n for e in found]) if found else None


async def test_event_that_is_not_wanted_any_more_is_dropped():
    assert await Unwanted(timeout=5).run() == [1, 3]


class Again(Workflow):
    got: list[list[int]]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(3):
            ctx.send_event(A(n=n))
        return None

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def join(self, ctx: Context, ev: A) -> StopEvent | None:
        found = ctx.collect_events(ev, [A] * 3)
        if found is None:
            return None
        self.got.append([e.n for e in found])
        if len(self.got) < 3:
            raise ValueError("again")
        return StopEvent(result=self.got)


async def test_retry_of_the_attempt_that_got_the_set_gets_it_again():
    workflow = Again(timeout=5)
    workflow.got = []
    assert await workflow.run() == [[0, 1, 2]] * 3


class Concurrent(Workflow):
    """All bodies are in flight at once when the first of them collects."""

    def __init__(self, n: int, num_rounds: int = 1) -> None:
        super().__init__(timeout=10)
        self.n, self.num_rounds = n, num_rounds
        self.calls: Counter[str] = Counter()
        self.sets: list[list[int]] = []

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(self.n * self.num_rounds):
            ctx.send_event(A(n=n))
        return None

    @step(num_workers=100)
    async def join(self, ctx: Context, ev: A) -> B | None:
        self.calls["join"] += 1
        await asyncio.sleep(0)
        found = ctx.collect_events(ev, [A] * self.n)
        return B(n=len(found)).model_copy(update={"n": len(found)}) if found else None

    @step
    async def end(self, ctx: Context, ev: B) -> StopEvent | None:
        done = ctx.collect_events(ev, [B] * self.num_rounds)
        return StopEvent(result=[e.n for e in done]) if done else None


async def test_concurrent_executions_lose_no_event():
    assert await Concurrent(20).run() == [20]


async def test_concurrent_rounds_lose_no_event():
    assert await Concurrent(5, 4).run() == [5, 5, 5, 5]


async def test_set_is_made_once_though_all_collect_at_once():
    workflow = Concurrent(20)
    handler = workflow.run()
    events = await streamed(handler)
    assert [type(e) for e in events] == [StopEvent]
    assert workflow.calls["join"] <= 21


async def test_body_may_collect_more_than_once():
    class Twice(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            first = ctx.collect_events(A(n=1), [A, A])
            second = ctx.collect_events(A(n=2), [A, A])
            return StopEvent(result=(first, [e.n for e in second]))

    assert await Twice(timeout=5).run() == (None, [1, 2])
