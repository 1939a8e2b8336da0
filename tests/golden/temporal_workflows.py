"""The workflows whose histories on Temporal are recorded. Old histories name them, so they may grow but not change."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import loom
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import ChildRunFailed
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    text: str


class Piece(Event):
    number: int
    text: str = ""


class Done(Event):
    number: int


class Note(Event):
    text: str


class Spread(Workflow):
    """Many pieces at once, and their join."""

    @step
    async def cut(self, ev: StartEvent) -> list[Piece]:
        return [Piece(number=number, text="thread" * ev.length) for number in range(ev.pieces)]

    @step(num_workers=10_000)
    async def sew(self, ev: Piece) -> Done:
        return Done(number=ev.number)

    @step
    async def join(self, parts: list[Done]) -> StopEvent:
        return StopEvent(result=len(parts))


class Endless(Workflow):
    """Goes round and round, and listens meanwhile."""

    @step
    async def begin(self, ev: StartEvent) -> Piece:
        return Piece(number=ev.rounds)

    @step
    async def go_round(self, ctx: Context, ev: Piece) -> Piece | StopEvent:
        if ev.number:
            return Piece(number=ev.number - 1)
        return StopEvent(result=await ctx.store.get("heard", default=0))

    @step
    async def listen(self, ctx: Context, ev: Answer) -> None:
        async with ctx.store.edit_state() as store:
            store["heard"] = store.get("heard", 0) + 1
        ctx.write_event_to_stream(Note(text=ev.text))


class Waiting(Workflow):
    """Leaves three times, and comes back; what it did before is not done again."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        receipt: Any = await ctx.once("bill", lambda: 17)
        ctx.write_event_to_stream(Note(text="billed"))
        first = await ctx.wait_for_event(Answer, waiter_event=Question(text="which?"), waiter_id="first", timeout=None)
        await ctx.sleep(0.05)
        try:
            await ctx.wait_for_event(Answer, waiter_id="second", timeout=0.05)
        except TimeoutError:
            ctx.write_event_to_stream(Note(text="nobody"))
        return StopEvent(result=[receipt, first.text])


class Stubborn(Workflow):
    """Fails twice."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0.05), stop=stop_after_attempt(3)))
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number < 2:
            raise ConnectionError("try again")
        return StopEvent(result=ctx.retry_info().retry_number)


class Failing(Workflow):
    """Fails for good."""

    @step
    async def call(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no thread left")


class Child(Workflow):
    """Answers, or fails."""

    @step
    async def answer(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.number < 0:
            raise ValueError("no such number")
        return StopEvent(result=ev.number * 2)


class Parent(Workflow):
    """Has two child runs, one of which fails."""

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        good = await ctx.run_child("Child", number=21)
        try:
            bad = await ctx.run_child("Child", number=-1)
        except ChildRunFailed as error:
            bad = type(error).__name__
        return StopEvent(result=[good, bad])


class Counting(Workflow):
    """Several bodies write one store at once."""

    @step
    async def deal(self, ctx: Context, ev: StartEvent) -> list[Piece]:
        await ctx.store.set("total", 0)
        return [Piece(number=number) for number in range(1, 5)]

    @step(num_workers=4)
    async def add(self, ctx: Context, ev: Piece) -> Done:
        async with ctx.store.edit_state() as store:
            before = store["total"]
            await asyncio.sleep(0.01)
            store["total"] = before + ev.number
        return Done(number=ev.number)

    @step
    async def join(self, ctx: Context, parts: list[Done]) -> StopEvent:
        return StopEvent(result=await ctx.store.get("total"))


class Whole(Workflow):
    """Asks, and its second step takes the answer."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="go on?")

    @step
    async def take(self, ctx: Context, ev: Answer) -> Done:
        return Done(number=len(ev.text))

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent:
        await ctx.wait_for_event(Answer, waiter_id="end", timeout=None)
        return StopEvent(result=ev.number)


class Halved(Workflow):
    """The same without its last step: a run that is in it cannot go on."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="go on?")

    @step
    async def take(self, ctx: Context, ev: Answer) -> StopEvent:
        return StopEvent(result="another way")


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


class Order(StartEvent):
    colour: str


class Unlike(Workflow):
    """Nothing like any of them: what a worker may have at hand years later."""

    @step
    async def alone(self, ev: Order) -> StopEvent:
        return StopEvent(result="alone")


@loom.activity("golden-double")
async def double(number: int) -> int:
    return number * 2


LOOP: dict[str, Any] = {
    "actions": {
        "first": {"type": "compose", "inputs": "@triggerBody()?['number']"},
        "loop": {
            "type": "until",
            "expression": "@greaterOrEquals(iterationIndexes('loop'), 3)",
            "limit": {"count": 10},
            "actions": {
                "twice": {
                    "type": "activity",
                    "inputs": {"activityType": "golden-double", "input": "@iterationIndexes('loop')"},
                }
            },
            "runAfter": {"first": ["Succeeded"]},
        },
    }
}

_mended: set[str] = set()
"""What `golden-mend` no longer fails for."""


@loom.activity("golden-mend")
async def mend(place: str) -> str:
    if place.endswith("!") and place not in _mended:
        _mended.add(place)
        raise ValueError(f"{place} is broken")
    return place


RETRIED: dict[str, Any] = {
    "actions": {
        "rounds": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('loopIndex'), 3)",
            "actions": {
                "round": {
                    "type": "activity",
                    "inputs": {
                        "activityType": "golden-mend",
                        "input": "@{variables('loopIndex')}@{if(equals(variables('loopIndex'), 1), '!', '')}",
                    },
                }
            },
        },
        "each": {
            "type": "foreach",
            "items": ["a", "b!", "c"],
            "actions": {"one": {"type": "activity", "inputs": {"activityType": "golden-mend", "input": "@item()"}}},
        },
    }
}


@loom.activity("golden-spin")
async def spin(_: Any, context: loom.ActionContext) -> int:
    if context.attempt < 6:
        raise ConnectionError("not yet")
    return context.attempt


SPINNING: dict[str, Any] = {
    "actions": {
        "spin": {
            "type": "retry",
            "action": {"type": "activity", "inputs": {"activityType": "golden-spin"}},
            "retryPolicy": {"type": "fixed", "count": 900, "interval": "PT0S"},
        }
    }
}
