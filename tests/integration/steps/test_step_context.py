"""`Context.get_step_context()`, and what a body leaves on the event loop: neither holds a run that has ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any, ClassVar

import pytest
from steps_rig import settled, until_idle

from loom import Context, Event, InputRequiredEvent, StartEvent, StopEvent, Workflow, catch_error, step
from loom.runtime.logs import LogContext
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StepFailedEvent

OUTSIDE = r"get_step_context\(\) is only available from within step functions"


class Note(Event):
    text: str


class Go(Event):
    pass


def announce(text: str) -> None:
    """What a decorator or a library does that no context was passed to."""
    Context.get_step_context().write_event_to_stream(Note(text=text))


async def test_helpers_tasks_and_threads_of_a_step_find_its_context() -> None:
    class Helps(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Note:
            announce("helper")

            async def child() -> None:
                announce("task")

            await asyncio.gather(child())
            await asyncio.to_thread(announce, "thread")
            return Note(text="go on")

        @step
        def last(self, ev: Note) -> StopEvent:
            announce("sync step")
            return StopEvent()

    handler = Helps(timeout=5).run()
    told = [ev.text async for ev in handler.stream_events() if isinstance(ev, Note)]
    assert told == ["helper", "task", "thread", "sync step"]
    await handler


async def test_outside_of_a_step_there_is_none() -> None:
    found: dict[str, Any] = {}

    class Leaves(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            async def late() -> None:
                await gate.wait()
                with pytest.raises(WorkflowRuntimeError, match=OUTSIDE):
                    Context.get_step_context()
                found["late"] = True

            found["task"] = asyncio.create_task(late())
            return StopEvent()

    with pytest.raises(WorkflowRuntimeError, match=OUTSIDE):
        Context.get_step_context()
    gate = asyncio.Event()
    await Leaves(timeout=5).run()
    with pytest.raises(WorkflowRuntimeError, match=OUTSIDE):
        Context.get_step_context()
    gate.set()
    await found.pop("task")
    assert found == {"late": True}


async def test_a_task_that_outlives_its_step_may_still_use_the_context_that_it_holds() -> None:
    class Leaves(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Note | None:
            async def late() -> None:
                await gate.wait()
                ctx.send_event(Note(text="late"))

            self.task = asyncio.create_task(late())
            return None

        @step
        async def last(self, ev: Note) -> StopEvent:
            return StopEvent(result=ev.text)

    gate = asyncio.Event()
    workflow = Leaves(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    gate.set()
    assert await handler == "late"
    await workflow.task


class Timers(Workflow):
    """Leaves timers on the event loop, as clients with kept connections and limits of time do."""

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Note:
        ctx_here = Context.get_step_context()
        await ctx_here.store.set("seen", 1)
        asyncio.get_running_loop().call_later(3600, int)
        async with asyncio.timeout(3600):  # its timer is canceled, and stays on the loop until it is due
            await asyncio.sleep(0)
        return Note(text="go on")

    @step(num_workers=1)
    def in_a_thread(self, ev: Note) -> StopEvent:
        announce("thread")
        return StopEvent()


class Waits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await asyncio.wait_for(asyncio.sleep(0), 3600)
        answer = await ctx.wait_for_event(Go, waiter_event=InputRequiredEvent(), timeout=3600)
        await ctx.sleep(0)
        return StopEvent(result=type(answer).__name__)


class Fails(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        asyncio.get_running_loop().call_later(3600, int)
        raise ValueError("on purpose")

    @catch_error
    async def recover(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
        asyncio.get_running_loop().call_later(3600, int)
        return StopEvent()


class Background(Workflow):
    """Leaves a task that goes on after its step and knows nothing of it."""

    tasks: ClassVar[list[asyncio.Task[Any]]] = []

    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        self.tasks.append(asyncio.create_task(asyncio.Event().wait()))
        return StopEvent()


@pytest.mark.parametrize(
    ("kind", "ends"),
    [(Timers, "ends"), (Waits, "ends"), (Waits, "is cancelled"), (Fails, "ends"), (Background, "ends")],
)
async def test_nothing_that_a_step_leaves_on_the_loop_holds_its_workflow(kind: type[Workflow], ends: str) -> None:
    """The timeouts of the run and of what its bodies did are far from due when the workflow is dropped."""

    async def use() -> weakref.ref[Workflow]:
        workflow = kind(timeout=3600)
        handler = workflow.run()
        if kind is Waits:
            await until_idle(handler)
            if ends == "is cancelled":
                await handler.cancel_run()
                return weakref.ref(workflow)
            await handler.send_event(Go())
        await handler
        return weakref.ref(workflow)

    try:
        gone = await use()
        await settled()
        gc.collect()
        assert gone() is None
    finally:
        while Background.tasks:
            Background.tasks.pop().cancel()


async def test_lines_of_a_task_that_outlives_its_step_still_name_it(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tests.late")

    class Leaves(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            async def late() -> None:
                await gate.wait()
                logger.warning("late")

            tasks.append(asyncio.create_task(late()))
            return StopEvent()

    gate, tasks = asyncio.Event(), []
    caplog.handler.addFilter(context := LogContext())
    try:
        await Leaves(timeout=5).run(run_id="r1")
        gate.set()
        await tasks[0]
    finally:
        caplog.handler.removeFilter(context)
    [line] = [record for record in caplog.records if record.name == "tests.late"]
    assert (line.run_id, line.step) == ("r1", "start")  # type: ignore[attr-defined]


async def test_the_thread_of_a_step_that_ran_out_of_time_has_left_it() -> None:
    found: list[str] = []
    proceed, left = threading.Event(), threading.Event()

    class Slow(Workflow):
        @step(timeout=0.01)
        def start(self, ev: StartEvent) -> StopEvent:
            proceed.wait(60)
            try:
                Context.get_step_context()
            except WorkflowRuntimeError as error:
                found.append(str(error))
            left.set()
            return StopEvent()

    with pytest.raises(TimeoutError):
        await Slow(timeout=5).run()
    proceed.set()
    await asyncio.to_thread(left.wait, 60)
    assert len(found) == 1
