"""The workflows and flows of the scripted runs. Databases in `stores` name them: they may grow, but not change."""

from __future__ import annotations

from typing import Any, ClassVar

import loom
from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    retry_policy,
    step,
    stop_after_attempt,
    wait_fixed,
)


class Progress(Event):
    """A line on the stream of a run."""

    percent: int
    note: str = ""


class Draft(Event):
    """What the first step of a report hands to the second."""

    words: int


class Question(InputRequiredEvent):
    """Asks a person."""

    item: str


class Approval(HumanResponseEvent):
    """The answer of a person."""

    by: str
    amount: int = 0


class Report(Workflow):
    """Completes: two steps, three events on the stream, a value in the store."""

    @step
    async def draft(self, ctx: Context, ev: StartEvent) -> Draft:
        for percent in (10, 50):
            ctx.write_event_to_stream(Progress(percent=percent, note=f"on {ev.get('topic', 'nothing')}"))
        await ctx.store.set("topic", ev.get("topic"))
        return Draft(words=1200)

    @step
    async def publish(self, ctx: Context, ev: Draft) -> StopEvent:
        ctx.write_event_to_stream(Progress(percent=100))
        return StopEvent(result={"words": ev.words, "topic": await ctx.store.get("topic")})


class Broken(Workflow):
    """Fails at its second attempt, until a test mends it."""

    mended: ClassVar[bool] = False

    @step(retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(2)))
    async def work(self, ev: StartEvent) -> StopEvent:
        if not Broken.mended:
            _divide(ev.number)
        return StopEvent(result="mended")


def _divide(number: int) -> float:
    try:
        return number / 0
    except ZeroDivisionError as error:
        raise ValueError(f"{number} cannot be divided") from error


class Slow(Workflow):
    """Fails at once, and tries again a day later."""

    @step(retry_policy=retry_policy(wait=wait_fixed(86400), stop=stop_after_attempt(3)))
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise ConnectionError("the other side is away")
        return StopEvent(result="reached")


class Asks(Workflow):
    """Waits for an approval."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("item", ev.get("item", "?"))
        question = Question(item=ev.get("item", "?"))
        answer = await ctx.wait_for_event(Approval, waiter_event=question, waiter_id="approval", timeout=None)
        return StopEvent(result=f"{answer.amount} by {answer.by}")


class Naps(Workflow):
    """Sleeps for thirty days. What was sent to it early is taken after that."""

    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(30 * 86400)
        if not ev.get("asks"):
            return StopEvent(result="rested")
        answer = await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result=f"rested, said {answer.by}")


class Parent(Workflow):
    """Has a child run, and needs its result."""

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        result = await ctx.run_child(ev.child, topic="children", item="a child's")
        return StopEvent(result=["child", result])


class Whole(Workflow):
    """Goes on after an hour's sleep, in a step that its later version lacks."""

    @step
    async def begin(self, ev: StartEvent) -> Draft:
        return Draft(words=1)

    @step
    async def finish(self, ctx: Context, ev: Draft) -> StopEvent:
        await ctx.sleep(3600)
        return StopEvent(result="whole")


class Halved(Workflow):
    """The later version of `Whole`: a run that sleeps in the missing step is parked."""

    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="halved")


class Dead(Workflow):
    """Comes to rest with nothing that can move it: the run is stuck."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Draft | None:
        return None

    @step
    async def finish(self, ev: Draft) -> StopEvent:
        return StopEvent(result="never")


class Chatty(Workflow):
    """Streams so much before it waits that the store keeps a snapshot of the run."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> Draft:
        for number in range(600):
            ctx.write_event_to_stream(Progress(percent=number // 6))
        return Draft(words=600)

    @step
    async def ask(self, ctx: Context, ev: Draft) -> StopEvent:
        answer = await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result=f"{ev.words} words for {answer.by}")


@loom.activity("surface-weigh")
def weigh(item: Any) -> int:
    """Weigh an item; a heavy one fails until a test mends it."""
    if item == "anvil" and not Broken.mended:
        raise ValueError("the scales do not go that far")
    return len(str(item))


LOOP: dict[str, Any] = {
    "actions": {
        "init": {"type": "initializeVariable", "inputs": {"variables": [{"name": "log", "type": "array"}]}},
        "rounds": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('loopIndex'), 3)",
            "delay": {"interval": {"count": 5, "unit": "minute"}},
            "limit": {"count": 10, "timeout": "P1D"},
            "actions": {
                "ask": {"type": "waitForEvent", "inputs": {"event": "Go", "prompt": "Another round?"}},
                "note": {
                    "type": "appendToArrayVariable",
                    "inputs": {"name": "log", "value": "@body('ask').word"},
                },
            },
        },
        "each": {
            "type": "foreach",
            "items": "@variables('log')",
            "actions": {"weigh": {"type": "activity", "inputs": {"activityType": "surface-weigh", "input": "@item()"}}},
        },
    },
    "outputs": {"log": {"type": "array", "value": "@variables('log')"}},
}

FAILING: dict[str, Any] = {
    "definition": {
        "parameters": {"token": {"type": "SecureString", "defaultValue": "t0p-secret"}},
        "triggers": {"manual": {"type": "Request", "kind": "Http"}},
        "actions": {
            "Hidden": {
                "type": "Compose",
                "inputs": "@concat('s3', 'cret-', triggerBody()?['pin'])",
                "runAfter": {},
                "runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}},
            },
            "Weigh": {
                "type": "activity",
                "inputs": {
                    "activityType": "surface-weigh",
                    "input": "@triggerBody()?['item']",
                    "retryPolicy": {"type": "fixed", "interval": "PT30S", "count": 1},
                },
                "runAfter": {"Hidden": ["Succeeded"]},
            },
            "Answer": {
                "type": "Response",
                "inputs": {"statusCode": 200, "body": "@outputs('Weigh')"},
                "runAfter": {"Weigh": ["Succeeded"]},
            },
        },
    }
}


def stored_flow(word: str) -> dict[str, Any]:
    """Build the definition that the script stores on the server: each word is a version of its own."""
    return {
        "actions": {"say": {"type": "compose", "inputs": word}},
        "outputs": {"said": {"type": "string", "value": "@outputs('say')"}},
    }
