"""The workflows whose runs are recorded. Old histories name them, so they may grow but not change."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    text: str
    about: str = ""


class Note(Event):
    text: str


class Part(Event):
    number: int


class Done(Event):
    number: int


class Warp(Event):
    colour: str


class Weft(Event):
    colour: str


class Chain(Workflow):
    """Two steps in a row, a store, a line on the stream."""

    @step
    async def first(self, ctx: Context, ev: StartEvent) -> Part:
        await ctx.store.set("words", ("warp", "weft"))
        ctx.write_event_to_stream(Note(text=f"on {ev.topic}"))
        await ctx.store.set("count", 2)
        return Part(number=1)

    @step
    async def second(self, ctx: Context, ev: Part) -> StopEvent:
        return StopEvent(result=[ev.number, await ctx.store.get("count")])


class FanOut(Workflow):
    """A list of parts, two workers, a join."""

    @step
    async def deal(self, ev: StartEvent) -> list[Part]:
        return [Part(number=number) for number in range(ev.parts)]

    @step(num_workers=2)
    async def work(self, ev: Part) -> Done | None:
        await asyncio.sleep(1 + (ev.number * 7) % 4)
        return Done(number=ev.number) if ev.number != 3 else None

    @step
    async def join(self, parts: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(part.number for part in parts))


class Stubborn(Workflow):
    """Fails twice, with a delay in which it is released."""

    @step(retry_policy=retry_policy(wait=wait_fixed(30), stop=stop_after_attempt(3)))
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        number = ctx.retry_info().retry_number
        ctx.write_event_to_stream(Note(text=f"attempt {number}"))
        if number < 2:
            raise ConnectionError("try again")
        return StopEvent(result=number)


class Patient(Workflow):
    """Waits with a timeout, asks again with requirements, and is released in between."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Note(text="before"))
        try:
            await ctx.wait_for_event(Answer, waiter_event=Question(text="soon?"), waiter_id="soon", timeout=3600)
        except TimeoutError:
            await ctx.store.set("late", True)
        answer = await ctx.wait_for_event(
            Answer, waiter_event=Question(text="which?"), waiter_id="which", requirements={"about": "b"}, timeout=None
        )
        return StopEvent(result=answer.text)


class Sleeper(Workflow):
    """Sleeps for two hours."""

    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(3600)
        ctx.write_event_to_stream(Note(text="an hour"))
        await ctx.sleep(3600)
        return StopEvent(result="rested")


class Collector(Workflow):
    """Sends events by hand and collects their results; two executions at once answer from old buffers."""

    @step
    async def deal(self, ctx: Context, ev: StartEvent) -> Part | None:
        for number in range(4):
            ctx.send_event(Part(number=number))
        return None

    @step(num_workers=4)
    async def work(self, ev: Part) -> Done:
        return Done(number=ev.number)

    @step(num_workers=2)
    async def gather(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, [Done] * 4)
        await asyncio.sleep(1)
        return StopEvent(result=[event.number for event in found]) if found else None


class Careful(Workflow):
    """A step fails for good, and a handler takes over."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def risky(self, ev: StartEvent) -> Done:
        raise ValueError("no thread left")

    @catch_error(for_steps=["risky"])
    async def rescue(self, ev: StepFailedEvent) -> Done:
        return Done(number=ev.attempts)

    @step
    async def end(self, ev: Done) -> StopEvent:
        return StopEvent(result=ev.number)


class Mended(Workflow):
    """Fails until somebody mends the world."""

    broken: ClassVar[bool] = True

    @step
    async def deal(self, ev: StartEvent) -> list[Part]:
        return [Part(number=1), Part(number=2)]

    @step(num_workers=2)
    async def work(self, ev: Part) -> Done:
        await asyncio.sleep(ev.number)
        if ev.number == 2 and Mended.broken:
            raise RuntimeError("it broke")
        return Done(number=ev.number)

    @step
    async def join(self, parts: list[Done]) -> StopEvent:
        return StopEvent(result=len(parts))


class Billed(Workflow):
    """Calls something once, in spite of a retry and of a process that ends."""

    @step(retry_policy=retry_policy(wait=wait_fixed(5), stop=stop_after_attempt(3)))
    async def bill(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Note(text="begun"))
        receipt: Any = await ctx.once("charge", lambda: {"receipt": 17})
        await ctx.store.set("paid", True)
        await asyncio.sleep(10)
        if ctx.retry_info().retry_number == 0:
            raise ConnectionError("the mail server is busy")
        return StopEvent(result=receipt["receipt"])


class Parent(Workflow):
    """Has a child run, and needs its result."""

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        result = await ctx.run_child("Chain", topic="children")
        return StopEvent(result=["child", result])


class Whole(Workflow):
    """Waits for an answer, which its second step takes."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="go on?")

    @step
    async def take(self, ctx: Context, ev: Answer) -> Done:
        return Done(number=len(ev.text))

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent:
        await ctx.sleep(60)
        return StopEvent(result=ev.number)


class Halved(Workflow):
    """The same without its last step: a run that sleeps in it cannot go on."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="go on?")

    @step
    async def take(self, ctx: Context, ev: Answer) -> StopEvent:
        return StopEvent(result="another way")


class Cross(Workflow):
    """A join of several slots."""

    @step
    async def dye(self, ctx: Context, ev: StartEvent) -> Warp | Weft | None:
        for colour in ("red", "green"):
            ctx.send_event(Weft(colour=colour))
        ctx.send_event(Warp(colour="blue"))
        return None

    @step
    async def cross(self, warp: Warp, weft: Weft) -> StopEvent:
        return StopEvent(result=f"{warp.colour} on {weft.colour}")


class Late(Workflow):
    """Asks late for what was sent early."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(100)
        first = await ctx.wait_for_event(Answer, waiter_id="first", timeout=None)
        second = await ctx.wait_for_event(Answer, waiter_id="second", timeout=None)
        return StopEvent(result=[first.text, second.text])


class Telling(Workflow):
    """Streams tokens and asks. How many tokens a repeated body streams is up to the case."""

    tokens: ClassVar[list[int]] = []
    """The number of tokens of each repetition."""

    @step
    async def tell(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(Telling.tokens.pop(0)):
            ctx.write_event_to_stream(Note(text=f"token {number}"))
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text="more?"), timeout=None)
        await ctx.store.set("answer", answer.text)
        ctx.write_event_to_stream(Note(text=f"heard {answer.text}"))
        return StopEvent(result=answer.text)
