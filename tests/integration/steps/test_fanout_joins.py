"""A returned list opens a stream; `list[E]` steps close it."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import pytest
from steps_rig import eventually, outcome_of

from loom import Context, Event, StartEvent, StopEvent, Workflow, catch_error, step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import CollectionReleaseEvent, StepFailedEvent
from loom.steps.step_config import All, Collect, Take


class Item(Event):
    n: int = 0


class Piece(Event):
    n: int = 0


class Sum(Event):
    n: int = 0


class FanOut(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(ev.n)]

    @step
    async def work(self, ev: Item) -> Piece:
        return Piece(n=ev.n * 10)

    @step
    async def join(self, pieces: list[Piece]) -> StopEvent:
        return StopEvent(result=[p.n for p in pieces])


async def test_join_fires_once_with_all_members():
    assert sorted(await FanOut(timeout=5).run(n=5)) == [0, 10, 20, 30, 40]


async def test_empty_list_fires_the_join_at_once():
    assert await FanOut(timeout=5).run(n=0) == []


class Arrival(FanOut):
    gates: dict[int, asyncio.Event]

    @step
    async def work(self, ev: Item) -> Piece:
        await self.gates[ev.n].wait()
        if ev.n:
            self.gates[ev.n - 1].set()
        return Piece(n=ev.n)


async def test_members_come_in_order_of_arrival():
    workflow = Arrival(timeout=5)
    workflow.gates = {n: asyncio.Event() for n in range(3)}
    workflow.gates[2].set()
    assert await workflow.run(n=3) == [2, 1, 0]


class Direct(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1), Item(n=2)]

    @step
    async def join(self, items: list[Item]) -> StopEvent:
        return StopEvent(result=[i.n for i in items])


async def test_members_may_go_straight_to_the_join():
    assert await Direct(timeout=5).run() == [1, 2]


class Mixed(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(4)]

    @step
    async def work(self, ev: Item) -> Piece | Sum:
        return Piece(n=ev.n) if ev.n % 2 else Sum(n=ev.n)

    @step
    async def join(self, found: list[Piece | Sum]) -> StopEvent:
        return StopEvent(result=sorted((type(e).__name__, e.n) for e in found))


async def test_join_of_a_union():
    assert await Mixed(timeout=5).run() == [("Piece", 1), ("Piece", 3), ("Sum", 0), ("Sum", 2)]


class MaybeList(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item] | Sum | None:
        if ev.how == "list":
            return [Item(n=1)]
        return Sum(n=7) if ev.how == "bare" else None

    @step
    async def join(self, items: list[Item]) -> StopEvent:
        return StopEvent(result="joined")

    @step
    async def bare(self, ev: Sum) -> StopEvent:
        return StopEvent(result="bare")


async def test_declared_bare_type_opens_no_stream():
    assert await MaybeList(timeout=5).run(how="bare") == "bare"
    assert await MaybeList(timeout=5).run(how="list") == "joined"


async def test_none_opens_no_stream():
    handler = MaybeList(timeout=0.05).run(how="none")
    assert "No steps active" in str(await outcome_of(handler))


class Dropping(FanOut):
    @step
    async def work(self, ev: Item) -> Piece | None:
        return Piece(n=ev.n) if ev.n != 1 else None


async def test_member_whose_branch_returns_none_is_settled():
    assert sorted(await Dropping(timeout=5).run(n=3)) == [0, 2]


class Recovered(Workflow):
    seen: list[str]

    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(3)]

    @step
    async def work(self, ev: Item) -> Piece:
        if ev.n == 1:
            raise ValueError("one is bad")
        return Piece(n=ev.n)

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> Piece | None:
        self.seen.append(str(ev.exception))
        return Piece(n=-1) if self.replace else None

    @step
    async def join(self, pieces: list[Piece]) -> StopEvent:
        return StopEvent(result=sorted(p.n for p in pieces))

    replace = False


@pytest.mark.parametrize(("replace", "expected"), [(False, [0, 2]), (True, [-1, 0, 2])])
async def test_recovered_member_is_settled_inside_its_stream(replace: bool, expected: list[int]):
    workflow = Recovered(timeout=5)
    workflow.seen, workflow.replace = [], replace
    assert await workflow.run() == expected
    assert workflow.seen == ["one is bad"]


class TakeTwo(Workflow):
    ran: list[int]
    gate: asyncio.Event

    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(4)]

    @step(num_workers=8)
    async def work(self, ev: Item) -> Piece:
        if ev.n > 1:
            await self.gate.wait()
        self.ran.append(ev.n)
        return Piece(n=ev.n)

    @step
    async def join(self, pieces: Annotated[list[Piece], Collect(Take(2))]) -> Sum:
        self.gate.set()
        self.fired += 1
        return Sum(n=sum(p.n for p in pieces))

    @step
    async def end(self, ev: Sum) -> StopEvent:
        await eventually(lambda: len(self.ran) == 4)
        return StopEvent(result=(ev.n, sorted(self.ran)))

    fired = 0


async def test_take_fires_at_the_nth_arrival_and_the_rest_runs_on():
    workflow = TakeTwo(timeout=5)
    workflow.ran, workflow.gate = [], asyncio.Event()
    assert await workflow.run() == (1, [0, 1, 2, 3])
    assert workflow.fired == 1


class TakeMany(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1), Item(n=2)]

    @step
    async def join(self, items: Annotated[list[Item], Collect(Take(9))]) -> StopEvent:
        return StopEvent(result=[i.n for i in items])


async def test_take_fires_with_what_came_if_the_stream_closes_earlier():
    assert await TakeMany(timeout=5).run() == [1, 2]


def test_collect_is_all_by_default_and_take_needs_a_number():
    assert isinstance(Collect().cardinality, All)
    with pytest.raises(ValueError, match="n"):
        Take(0)


class Nested(Workflow):
    @step
    async def outer(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(3)]

    @step
    async def inner(self, ev: Item) -> list[Piece]:
        return [Piece(n=ev.n) for _ in range(ev.n)]

    @step
    async def inner_join(self, pieces: list[Piece]) -> Sum:
        return Sum(n=sum(p.n for p in pieces))

    @step
    async def outer_join(self, sums: list[Sum]) -> StopEvent:
        return StopEvent(result=sorted(s.n for s in sums))


async def test_nested_streams_pair_with_the_nearest_join():
    assert await Nested(timeout=5).run() == [0, 1, 4]


class Sneaky(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(2)]

    @step
    async def work(self, ctx: Context, ev: Item) -> Piece:
        ctx.send_event(Piece(n=100 + ev.n), step="join" if self.aimed else None)
        return Piece(n=ev.n)

    @step
    async def join(self, pieces: list[Piece]) -> StopEvent:
        return StopEvent(result=sorted(p.n for p in pieces))

    aimed = False


async def test_sent_event_adds_nothing_to_a_stream_and_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert await Sneaky(timeout=5).run() == [0, 1]
    assert any("Piece" in record.getMessage() and "join" in record.getMessage() for record in caplog.records)


async def test_event_aimed_at_a_join_fails_the_run():
    workflow = Sneaky(timeout=5)
    workflow.aimed = True
    with pytest.raises(WorkflowRuntimeError, match="join"):
        await workflow.run()


async def test_failing_join_names_its_input_as_a_release():
    class Fails(Direct):
        @step
        async def join(self, items: list[Item]) -> StopEvent:
            raise ValueError("cannot add")

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=ev.input_event)

    release = await Fails(timeout=5).run()
    assert type(release) is CollectionReleaseEvent
    assert [e.n for e in release.events] == [1, 2]


async def test_waiting_inside_a_stream_keeps_it_open():
    class Waits(FanOut):
        @step
        async def work(self, ctx: Context, ev: Item) -> Piece:
            if ev.n == 1:
                await ctx.wait_for_event(Sum)
            return Piece(n=ev.n)

    handler = Waits(timeout=5).run(n=3)
    await eventually(lambda: handler.ctx.is_idle)
    handler.ctx.send_event(Sum())
    assert sorted(await handler) == [0, 1, 2]


async def test_wrong_member_names_its_position():
    class Wrong(Direct):
        @step
        async def split(self, ev: StartEvent) -> list[Item]:
            return [Item(n=1), "two"]

    with pytest.raises(WorkflowRuntimeError, match="str"):
        await Wrong(timeout=5).run()


async def test_bare_event_under_a_pure_list_annotation_is_an_error():
    class Bare(Direct):
        @step
        async def split(self, ev: StartEvent) -> list[Item]:
            return Item(n=1)

    with pytest.raises(WorkflowRuntimeError, match="Item"):
        await Bare(timeout=5).run()
