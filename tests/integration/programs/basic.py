"""A joke and its critique: typed events, a loop with a branch, kwargs and a start event of its own."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio

from workflows import Context, Workflow, step
from workflows.errors import WorkflowRuntimeError, WorkflowValidationError
from workflows.events import Event, StartEvent, StopEvent


class TopicEvent(StartEvent):
    topic: str
    rounds: int = 2


class JokeEvent(Event):
    joke: str
    round: int


class JokeFlow(Workflow):
    """Writes a joke until the critic is content."""

    @step
    async def write(self, ctx: Context, ev: TopicEvent) -> JokeEvent:
        await ctx.store.set("rounds", ev.rounds)
        return JokeEvent(joke=f"a joke about {ev.topic}", round=1)

    @step
    async def criticise(self, ctx: Context, ev: JokeEvent) -> JokeEvent | StopEvent:
        if ev.round < await ctx.store.get("rounds"):
            return JokeEvent(joke=f"a better {ev.joke}", round=ev.round + 1)
        return StopEvent(result={"joke": ev.joke, "rounds": ev.round})


class Plain(Workflow):
    @step
    def shout(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"{ev.first} {ev.get('second', 'nobody')}".upper())


class Wrong(Workflow):
    @step
    async def nothing(self, ev: StartEvent) -> StopEvent:
        return "not an event"


class Lost(Event):
    pass


class Dangling(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent | Lost:
        return StopEvent()


async def main() -> None:
    print(await JokeFlow(timeout=10).run(topic="pirates"))
    print(await JokeFlow(timeout=10).run(start_event=TopicEvent(topic="kings", rounds=4)))
    print(await Plain().run(first="hello"))
    print(await Plain().run(first="hello", second="world"))
    handler = JokeFlow().run(topic="sea")
    stop = await handler.stop_event_result()
    print(type(stop).__name__, stop.result, handler.is_done(), handler.get_stop_event() == stop)
    for make in (lambda: JokeFlow().run(), lambda: Wrong().run(), lambda: Dangling().run()):
        try:
            await make()
        except (WorkflowRuntimeError, WorkflowValidationError) as error:
            print(type(error).__name__, str(error).splitlines()[0][:60])


asyncio.run(main())
