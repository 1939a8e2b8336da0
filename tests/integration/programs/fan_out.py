"""Fan-out: send_event with collect_events, several expected types, and a returned list with its join."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio
from typing import Annotated

from workflows import Context, Workflow, step
from workflows.collect import Collect, Take
from workflows.events import Event, StartEvent, StopEvent


class Query(Event):
    number: int


class Answer(Event):
    number: int
    text: str


class Total(Event):
    total: int


class Audit(Event):
    note: str


class SendAndCollect(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Query | None:
        await ctx.store.set("expected", ev.count)
        for number in range(ev.count):
            ctx.send_event(Query(number=number))
        return None

    @step(num_workers=2)
    async def work(self, ev: Query) -> Answer:
        await asyncio.sleep(0)
        return Answer(number=ev.number, text=f"answer {ev.number}")

    @step
    async def join(self, ctx: Context, ev: Answer) -> StopEvent | None:
        answers = ctx.collect_events(ev, [Answer] * await ctx.store.get("expected"))
        if answers is None:
            return None
        return StopEvent(result=sorted(answer.text for answer in answers))


class TwoKinds(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Total | Audit | None:
        ctx.send_event(Audit(note="checked"))
        ctx.send_event(Total(total=7))
        return None

    @step
    async def join(self, ctx: Context, ev: Total | Audit) -> StopEvent | None:
        found = ctx.collect_events(ev, [Total, Audit])
        if found is None:
            return None
        total, audit = found
        return StopEvent(result=f"{total.total} {audit.note}")


class Listed(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Query]:
        return [Query(number=number) for number in range(ev.count)]

    @step
    async def work(self, ev: Query) -> Answer | None:
        return None if ev.number == 3 else Answer(number=ev.number, text=str(ev.number**2))

    @step
    async def join(self, evs: list[Answer]) -> StopEvent:
        return StopEvent(result=sorted(answer.number for answer in evs))


class Fastest(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Query]:
        return [Query(number=number) for number in range(3)]

    @step
    async def work(self, ev: Query) -> Answer:
        return Answer(number=ev.number, text="done")

    @step
    async def join(self, evs: Annotated[list[Answer], Collect(Take(2))]) -> StopEvent:
        return StopEvent(result=len(evs))


class Slots(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Total | Audit | None:
        ctx.send_event(Total(total=1))
        ctx.send_event(Audit(note="one"))
        return None

    @step
    async def join(self, total: Total, audit: Audit) -> StopEvent:
        return StopEvent(result=(total.total, audit.note))


async def main() -> None:
    print(await SendAndCollect(timeout=10).run(count=5))
    print(await TwoKinds(timeout=10).run())
    print(await Listed(timeout=10).run(count=6))
    print(await Listed(timeout=10).run(count=0))
    print(await Fastest(timeout=10).run())
    print(await Slots(timeout=10).run())


asyncio.run(main())
