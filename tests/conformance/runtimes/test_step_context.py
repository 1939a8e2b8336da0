"""`Context.get_step_context()`, and what bodies leave on the event loop, on every runtime."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, WorkflowRuntimeError, step


class Note(Event):
    text: str


def announce(text: str) -> None:
    """What a library does that no context was passed to."""
    Context.get_step_context().write_event_to_stream(Note(text=text))


class Announces(Watched):
    """Is helped by code without a context, and leaves timers behind, of which one was canceled."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        announce("before")
        loop = asyncio.get_running_loop()
        loop.call_later(3600, int)
        async with asyncio.timeout(3600):
            answer = await ctx.wait_for_event(HumanResponseEvent, timeout=3600)
        announce("after")
        left_behind.append(asyncio.create_task(late()))
        return StopEvent(result=answer.text)


left_behind: list[asyncio.Task[None]] = []
proceed: list[asyncio.Event] = []


async def late() -> None:
    """Goes on after the run has ended."""
    await proceed[-1].wait()
    announce("late")


async def run_and_close(deployment: Deployment) -> tuple[list[str], weakref.ref[Announces]]:
    """What the stream of a run had, whose runtime is closed by now, and its workflow."""
    runtime = await deployment.open({"announces": (workflow := Announces(Witness()))})
    handler = await runtime.start("announces", run_id="a")
    await until_idle(runtime, "a")
    await runtime.send_event("a", HumanResponseEvent(text="x"))
    assert await result(handler) == "x"
    told = [event.text async for event in handler.stream_events() if isinstance(event, Note)]
    await deployment.close(runtime)
    return told, weakref.ref(workflow)


async def test_what_a_body_leaves_behind_finds_no_context(deployment: Deployment) -> None:
    proceed[:] = [asyncio.Event()]
    told, _ = await run_and_close(deployment)
    assert told == ["before", "after"]
    proceed[0].set()
    with pytest.raises(WorkflowRuntimeError, match=r"get_step_context\(\) is only available from within step"):
        await left_behind.pop()


async def test_what_a_body_leaves_behind_holds_no_workflow(deployment: Deployment) -> None:
    proceed[:] = [asyncio.Event()]
    _, workflow = await run_and_close(deployment)

    def is_gone() -> bool:
        gc.collect()
        return workflow() is None

    await until(is_gone, "the workflow to be gone")
    left_behind.pop().cancel()
