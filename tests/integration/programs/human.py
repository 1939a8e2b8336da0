"""A human in the loop: by returned events, by wait_for_event, and with the context saved in between."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio
import json

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent


class Question(InputRequiredEvent):
    text: str


class Reply(HumanResponseEvent):
    text: str
    user: str = "anybody"


class Asked(Event):
    pass


class ByEvents(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="How many?")

    @step
    async def answer(self, ev: Reply) -> StopEvent:
        return StopEvent(result=f"{ev.text} it is")


class ByWaiting(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(
            Reply, waiter_event=Question(text="Who?"), waiter_id="who", requirements={"user": "ada"}
        )
        return StopEvent(result=f"{reply.user} says {reply.text}")


class TimedWait(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(Reply, timeout=0.05)
        except TimeoutError as error:
            return StopEvent(result=str(error))
        return StopEvent(result="answered")


async def by_events() -> None:
    handler = ByEvents(timeout=10).run()
    async for event in handler.stream_events():
        print("stream", type(event).__name__)
        if isinstance(event, Question):
            await handler.send_event(Reply(text="three"))
    print(await handler)


async def by_waiting() -> None:
    handler = ByWaiting(timeout=10).run()
    async for event in handler.stream_events():
        print("stream", type(event).__name__)
        if isinstance(event, Question):
            handler.ctx.send_event(Reply(text="nobody asked you", user="bob"))
            handler.ctx.send_event(Reply(text="me", user="ada"))
    print(await handler)


async def saved_in_between() -> None:
    workflow = ByEvents(timeout=10)
    handler = workflow.run()
    async for event in handler.stream_events():
        if isinstance(event, Question):
            break
    saved = json.dumps(handler.ctx.to_dict())
    await handler.cancel_run()
    context = Context.from_dict(workflow, json.loads(saved))
    print("running", context.is_running)
    resumed = workflow.run(ctx=context)
    resumed.ctx.send_event(Reply(text="four"))
    print(await resumed)


async def main() -> None:
    print("human", ByEvents().validate(), TimedWait().validate())
    await by_events()
    await by_waiting()
    await saved_in_between()
    print(await TimedWait(timeout=10).run())


asyncio.run(main())
