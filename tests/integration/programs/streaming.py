"""The stream: events of steps, internal ones, endings by timeout, failure and cancellation."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio

from workflows import Context, Workflow, step
from workflows.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError
from workflows.events import Event, StartEvent, StepStateChanged, StopEvent


class Progress(Event):
    part: str


class Report(StopEvent):
    pages: int


class Streaming(Workflow):
    @step
    async def write(self, ctx: Context, ev: StartEvent) -> Report:
        for part in ("one", "two", "three"):
            ctx.write_event_to_stream(Progress(part=part))
            await asyncio.sleep(0)
        return Report(pages=3)


class Slow(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Progress(part="begun"))
        await asyncio.sleep(60)
        return StopEvent()


class Failing(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise LookupError("nothing there")


def shown(event: Event) -> str:
    if isinstance(event, StepStateChanged):
        return f"{event.name} {event.step_state.value} {event.worker_id} {event.input_event_name}"
    return f"{type(event).__name__} {event.model_dump()}"


async def main() -> None:
    handler = Streaming(timeout=10).run()
    async for event in handler.stream_events(expose_internal=True):
        print(shown(event))
    print(repr(await handler))
    try:
        async for event in handler.stream_events():
            print(event)
    except WorkflowRuntimeError as error:
        print(type(error).__name__, error)

    for workflow in (Slow(timeout=0.1), Failing(timeout=10)):
        handler = workflow.run()
        print([type(event).__name__ async for event in handler.stream_events()])
        try:
            await handler
        except (WorkflowTimeoutError, LookupError) as error:
            print(type(error).__name__, error)

    handler = Slow(timeout=10).run()
    names = []
    async for event in handler.stream_events():
        names.append(type(event).__name__)
        if isinstance(event, Progress):
            await handler.cancel_run()
    print(names, handler.is_done())
    try:
        await handler
    except WorkflowCancelledByUser as error:
        print(type(error).__name__, error)


asyncio.run(main())
