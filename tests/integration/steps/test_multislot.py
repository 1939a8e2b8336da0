"""Steps with several event parameters: they pair by arrival."""

from __future__ import annotations

from loom import Context, Event, StartEvent, StopEvent, Workflow, step


class Left(Event):
    n: int = 0


class Right(Event):
    n: int = 0


class Pair(Event):
    left: int = 0
    right: int = 0


class Join(Workflow):
    lefts: tuple[int, ...] = (1,)
    rights: tuple[int, ...] = (10,)

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Left | Right | None:
        for n in self.lefts:
            ctx.send_event(Left(n=n))
        for n in self.rights:
            ctx.send_event(Right(n=n))
        return None

    @step
    async def pair(self, a: Left, b: Right) -> Pair:
        return Pair(left=a.n, right=b.n)

    @step
    async def join(self, ctx: Context, ev: Pair) -> StopEvent | None:
        pairs = ctx.collect_events(ev, [Pair] * min(len(self.lefts), len(self.rights)))
        return StopEvent(result=[(p.left, p.right) for p in pairs]) if pairs else None


async def test_step_with_two_slots_fires_with_one_event_of_each():
    assert await Join(timeout=5).run() == [(1, 10)]


async def test_slots_pair_by_arrival_first_with_first():
    workflow = Join(timeout=5)
    workflow.lefts, workflow.rights = (1, 2, 3), (10, 20, 30)
    assert sorted(await workflow.run()) == [(1, 10), (2, 20), (3, 30)]


async def test_surplus_of_one_slot_waits():
    workflow = Join(timeout=5)
    workflow.lefts, workflow.rights = (1, 2, 3), (10,)
    assert await workflow.run() == [(1, 10)]


async def test_slots_may_be_filled_by_different_branches():
    class Branches(Workflow):
        @step
        async def left(self, ev: StartEvent) -> Left:
            return Left(n=1)

        @step
        async def right(self, ev: StartEvent) -> Right:
            return Right(n=2)

        @step
        async def pair(self, ctx: Context, b: Right, a: Left) -> StopEvent:
            return StopEvent(result=(a.n, b.n))

    assert await Branches(timeout=5).run() == (1, 2)
