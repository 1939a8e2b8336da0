"""A run in memory at its edges: what goes wrong around it, who leaves it, and what is left of it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.adapter import RunAdapterDecorator
from loom.core.commands import CommandRunWorker
from loom.core.reports import Published
from loom.core.ticks import TickStepResult, WorkflowTick
from loom.effects.execution import StepExecution
from loom.runtime.driver import Driver
from loom.runtime.live import LiveRun
from loom.runtime.memory import MemoryRuntime
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError
from loom.steps.events import WorkflowIdleEvent


class Brief(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0.001)
        return StopEvent(result="done")


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("text"))


async def until_idle(handler: Any) -> None:
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, WorkflowIdleEvent):
            return


# -- what raises around a run ------------------------------------------------------------------------------------------


class FailsToFinalize(RunAdapterDecorator):
    def finalize_step(self, command: CommandRunWorker) -> None:
        raise OSError("finalize")


class FailsToObserve(RunAdapterDecorator):
    def on_tick(self, tick: WorkflowTick) -> None:
        if isinstance(tick, TickStepResult):
            raise OSError("observe")


class FailsToPublish(RunAdapterDecorator):
    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        if cursor:
            raise OSError("publish")
        super().write_to_event_stream(cursor, event)


@pytest.mark.parametrize("kind", [FailsToFinalize, FailsToObserve, FailsToPublish])
async def test_what_an_adapter_raises_reaches_whoever_awaits_the_run(kind: type[RunAdapterDecorator]) -> None:
    runtime = MemoryRuntime(decorate=kind)
    handler = Brief(runtime=runtime).run(run_id="r")
    async with asyncio.timeout(5):
        with pytest.raises(OSError, match=r"finalize|observe|publish"):
            await handler
    with pytest.raises(RuntimeError, match="No active workflow"):
        runtime.get("r")


async def test_step_is_finalized_when_the_run_has_its_result() -> None:
    told: list[bool] = []

    class Watching(RunAdapterDecorator):
        def finalize_step(self, command: CommandRunWorker) -> None:
            told.append(handler.ctx.to_dict()["is_running"])

    handler = Brief(runtime=MemoryRuntime(decorate=Watching)).run()
    await handler
    assert told == [False]


def refuse() -> Any:
    raise OSError("no config")


async def test_run_that_cannot_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = MemoryRuntime()
    workflow = Brief(runtime=runtime, num_concurrent_runs=1)
    with monkeypatch.context() as patch:
        patch.setattr(workflow, "_config", refuse)
        with pytest.raises(OSError, match="no config"):
            workflow.run(run_id="r")
    async with asyncio.timeout(5):
        assert await workflow.run(run_id="r") == "done"


async def test_run_that_cannot_begin_in_its_turn_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = Brief(runtime=MemoryRuntime(), num_concurrent_runs=1)
    first, second = workflow.run(), workflow.run()
    with monkeypatch.context() as patch:
        patch.setattr(workflow, "_config", refuse)
        async with asyncio.timeout(5):
            assert await first == "done"
            with pytest.raises(OSError, match="no config"):
                await second
    async with asyncio.timeout(5):
        assert await workflow.run() == "done"


# -- event loops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 2])
def test_one_workflow_in_two_threads(limit: int | None) -> None:
    workflow = Brief(timeout=10, runtime=MemoryRuntime(), num_concurrent_runs=limit)
    results: list[list[str]] = []

    async def main() -> list[str]:
        return await asyncio.gather(*[workflow.run() for _ in range(30)])

    threads = [threading.Thread(target=lambda: results.append(asyncio.run(main())), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [["done"] * 30] * 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks always start in the next turn of the loop")
async def test_body_that_starts_eagerly_can_wait() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
    handler = Asking().run()
    async with asyncio.timeout(5):
        await until_idle(handler)
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    assert await handler == "x"


# -- events from outside -----------------------------------------------------------------------------------------------


class Note(Event):
    number: int


class Takes(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> None:
        return None

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result="taken")


async def test_no_event_is_accepted_that_cannot_be_kept() -> None:
    handler = Takes(disable_validation=True).run()
    await until_idle(handler)
    for number in range(1000):
        handler.ctx.send_event(Note(number=number))
    with pytest.raises(WorkflowRuntimeError, match="already keeps 1000 events"):
        handler.ctx.send_event(Note(number=1000))
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == "taken", "what is wanted is taken still"


async def test_only_as_many_are_wanted_as_somebody_waits_for() -> None:
    handler = Asking().run()
    await until_idle(handler)
    for number in range(1000):
        handler.ctx.send_event(Note(number=number))
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    with pytest.raises(WorkflowRuntimeError, match="is refused"):
        handler.ctx.send_event(HumanResponseEvent(text="y"))
    assert await handler == "x"


async def test_run_with_an_undelivered_event_is_not_idle() -> None:
    handler = Asking().run()
    await until_idle(handler)
    assert handler.ctx.is_idle
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    assert not handler.ctx.is_idle
    await handler


# -- what is left ------------------------------------------------------------------------------------------------------


class Everything(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("how", ev.how)
        if ev.how == "fails":
            raise ValueError("on purpose")
        if ev.how in ("is cancelled", "times out"):
            await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=ev.how)


def alive(*kinds: type) -> list[Any]:
    return [found for found in gc.get_objects() if isinstance(found, kinds)]


async def test_finished_runs_leave_nothing_in_memory() -> None:
    gc.collect()
    kinds = (LiveRun, Context, StepExecution, Driver, asyncio.Task)
    before = {id(found) for found in alive(*kinds)}
    for how, timeout, raised in [
        ("completes", None, None),
        ("fails", None, ValueError),
        ("is cancelled", None, WorkflowCancelledByUser),
        ("times out", 0.01, WorkflowTimeoutError),
    ]:
        workflow = Everything(timeout=timeout, runtime=MemoryRuntime())
        handlers = [workflow.run(how=how) for _ in range(50)]
        await asyncio.sleep(0)
        if how == "is cancelled":
            await asyncio.gather(*(handler.cancel_run() for handler in handlers))
        results = await asyncio.gather(*handlers, return_exceptions=True)
        assert {type(result) for result in results} == {raised or str}
        del workflow, handlers, results
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert [found for found in alive(*kinds) if id(found) not in before] == []


async def test_those_who_stopped_waiting_are_forgotten() -> None:
    handler = Asking().run()
    await until_idle(handler)
    gone: list[weakref.ref[Any]] = []

    async def read() -> None:
        async for _ in handler.stream_events(after=10_000):
            pass

    async def wait() -> None:
        await handler

    for waits in (read, wait):
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        gone.append(weakref.ref(task._fut_waiter))  # type: ignore[attr-defined]
        task.cancel()
        await asyncio.wait([task])
        del task
    await asyncio.sleep(0)
    gc.collect()
    assert [future() for future in gone] == [None, None]
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    assert await handler == "x"
