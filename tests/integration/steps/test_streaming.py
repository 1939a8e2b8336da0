"""Reading a run's stream: once as the handler's own reading, or any number of times by cursor."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from steps_rig import outcome_of, settled, streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import InternalDispatchEvent, StepStateChanged, WorkflowFailedEvent


class Progress(Event):
    n: int = 0


class Result(StopEvent):
    value: int = 0


class Counts(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(5):
            ctx.write_event_to_stream(Progress(n=n))
            await asyncio.sleep(0)
        return StopEvent(result="done")


def numbers(events: list[Event]) -> list[int]:
    return [e.n for e in events if isinstance(e, Progress)]


async def test_stream_has_what_was_written_and_ends_with_the_stop_event():
    handler = Counts(timeout=5).run()
    events = await streamed(handler)
    assert numbers(events) == [0, 1, 2, 3, 4]
    assert type(events[-1]) is StopEvent
    assert events[-1].result == "done"
    assert len(events) == 6


async def test_internal_events_only_on_request():
    assert not [e for e in await streamed(Counts(timeout=5).run()) if isinstance(e, InternalDispatchEvent)]
    internal = await streamed(Counts(timeout=5).run(), internal=True)
    assert [e for e in internal if isinstance(e, StepStateChanged)]


async def test_stream_can_be_read_after_the_run():
    handler = Counts(timeout=5).run()
    assert await handler == "done"
    assert numbers(await streamed(handler)) == [0, 1, 2, 3, 4]


async def test_stream_can_be_read_once_only():
    handler = Counts(timeout=5).run()
    await streamed(handler)
    with pytest.raises(WorkflowRuntimeError, match=r"All the streamed events have already been consumed\."):
        await streamed(handler)


async def test_stream_that_was_left_early_goes_on_from_there():
    handler = Counts(timeout=5).run()
    seen = []
    async for event in handler.stream_events():
        seen.append(event)
        if len(seen) == 2:
            break
    await handler
    assert numbers(seen) == [0, 1]
    rest = await streamed(handler)
    assert numbers(rest) == [2, 3, 4]


async def test_any_number_of_readers_by_cursor():
    handler = Counts(timeout=5).run()

    async def read(after: int) -> list[int]:
        return numbers([e async for e in handler.stream_events(after=after)])

    early = await asyncio.gather(read(-1), read(-1))
    assert early == [[0, 1, 2, 3, 4]] * 2
    assert numbers(await streamed(handler)) == [0, 1, 2, 3, 4]


async def test_stream_ends_when_the_run_fails():
    class Fails(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Progress(n=1))
            raise LookupError("broken")

    handler = Fails(timeout=5).run()
    events = await streamed(handler)
    assert numbers(events) == [1]
    assert type(events[-1]) is WorkflowFailedEvent
    assert events[-1].step_name == "start"
    assert isinstance(events[-1].exception, LookupError)
    assert isinstance(await outcome_of(handler), LookupError)


async def test_custom_stop_event_is_on_the_stream_as_itself():
    class Custom(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Result:
            return Result(value=3)

    handler = Custom(timeout=5).run()
    events = await streamed(handler)
    assert [type(e) for e in events] == [Result]
    assert (await handler).value == 3


async def test_events_are_streamed_as_they_come():
    class Gated(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Progress(n=1))
            await gate.wait()
            return StopEvent()

    gate = asyncio.Event()
    handler = Gated(timeout=5).run()
    async for event in handler.stream_events():
        if isinstance(event, Progress):
            assert not handler.is_done()
            gate.set()
    await handler


async def test_events_written_by_child_tasks_are_on_the_stream():
    class Children(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def child(n: int) -> None:
                ctx.write_event_to_stream(Progress(n=n))

            await asyncio.gather(*(child(n) for n in range(3)))
            return StopEvent()

    assert sorted(numbers(await streamed(Children(timeout=5).run()))) == [0, 1, 2]


async def test_context_of_the_handler_streams_too():
    handler = Counts(timeout=5).run()
    events = [e async for e in handler.ctx.stream_events()]
    assert numbers(events) == [0, 1, 2, 3, 4]
    assert isinstance(events[0], StepStateChanged), "unlike the handler's, it has the internal events as well"
    assert await handler == "done"


async def test_context_has_its_events_in_a_queue_and_its_result_for_old_programs():
    handler = Counts(timeout=5).run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        queue = handler.ctx.streaming_queue
        events = [await queue.get()]
        while not isinstance(events[-1], StopEvent):
            events.append(await queue.get())
        assert numbers(events) == [0, 1, 2, 3, 4]
        assert isinstance(events[0], StepStateChanged)
        await handler
        assert handler.ctx.get_result() == "done"


async def test_dropped_reader_leaves_the_run_alone():
    handler = Counts(timeout=5).run()
    task = asyncio.ensure_future(streamed(handler))
    await settled(2)
    task.cancel()
    assert await handler == "done"
