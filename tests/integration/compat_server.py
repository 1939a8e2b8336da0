"""A real server on a loopback port, and the workflows and flow that the client's tests run on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.http_server import HttpServer, bind
from loom.server.http_server import serving as serve
from loom.server.settings import ServerSettings
from loom.steps import events


class Greeting(events.StartEvent):
    name: str
    value: int = 0  # a plain start event may have a field of this name


class Greeted(events.StopEvent):
    text: str


class Progress(events.Event):
    number: int


class Question(events.InputRequiredEvent):
    text: str


class Answer(events.HumanResponseEvent):
    text: str


class Nudge(events.Event):
    """Declared by no step: a step awaits it."""

    count: int


class Greet(loom.Workflow):
    @loom.step
    async def greet(self, ctx: loom.Context, event: Greeting) -> Greeted:
        for number in range(3):
            ctx.write_event_to_stream(Progress(number=number))
        return Greeted(text=f"Hello {event.name}")


class Count(loom.Workflow):
    """Counts its runs in the state, which goes from one run of a handler to the next."""

    @loom.step
    async def count(self, ctx: loom.Context, event: events.StartEvent) -> events.StopEvent:
        seen = await ctx.store.get("seen", default=0) + 1
        await ctx.store.set("seen", seen)
        return events.StopEvent(result={"seen": seen, "given": event.get("given")})


class Ask(loom.Workflow):
    @loom.step
    async def ask(self, _event: events.StartEvent) -> Question:
        return Question(text="Who?")

    @loom.step
    async def answered(self, event: Answer) -> events.StopEvent:
        return events.StopEvent(result=f"{event.text}!")


class Await(loom.Workflow):
    @loom.step
    async def wait(self, ctx: loom.Context, _event: events.StartEvent) -> events.StopEvent:
        nudge = await ctx.wait_for_event(Nudge)
        return events.StopEvent(result=nudge.count)


class Break(loom.Workflow):
    @loom.step
    async def fail(self, _event: events.StartEvent) -> events.StopEvent:
        raise ValueError("it broke")


FLOW: dict[str, Any] = {
    "definition": {
        "triggers": {"manual": {"type": "Request", "kind": "Http", "inputs": {"schema": {"type": "object"}}}},
        "actions": {
            "Greet": {"type": "Compose", "inputs": "@concat('Hello ', triggerBody()?['name'])", "runAfter": {}},
            "Shout": {
                "type": "Compose",
                "inputs": "@toUpper(outputs('Greet'))",
                "runAfter": {"Greet": ["Succeeded"]},
            },
        },
        "outputs": {"text": {"type": "String", "value": "@outputs('Shout')"}},
    }
}


def register_all(runtime: DurableRuntime) -> None:
    for name, workflow in {"greet": Greet, "count": Count, "ask": Ask, "await": Await, "break": Break}.items():
        runtime.register(workflow(), name)
    runtime.register(loom.load(FLOW, name="flow"), "flow")


@contextlib.asynccontextmanager
async def serving(runtime: DurableRuntime, port: int = 0, **settings: Any) -> AsyncIterator[HttpServer]:
    """The server, until the block ends."""
    app = create_app(runtime, ServerSettings(drain=1.0, **settings))
    async with serve(app, await bind("127.0.0.1", port)) as server:
        yield server
