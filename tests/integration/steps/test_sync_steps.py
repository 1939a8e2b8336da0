"""Sync steps run in threads and can use all of the context that does not wait."""

from __future__ import annotations

import contextvars
import threading

import pytest
from steps_rig import of_type, streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowRuntimeError

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Job(Event):
    n: int = 0


class Sync(Workflow):
    @step
    def start(self, ev: StartEvent) -> Job:
        return Job(n=ev.n + 1)

    @step
    async def end(self, ev: Job) -> StopEvent:
        return StopEvent(result=ev.n)


async def test_sync_and_async_steps_mix():
    assert await Sync(timeout=5).run(n=1) == 2


async def test_sync_step_runs_in_another_thread_with_the_context_variables():
    class Where(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(threading.get_ident(), tenant.get()))

    tenant.set("acme")
    ident, seen = await Where(timeout=5).run()
    assert ident != threading.get_ident()
    assert seen == "acme"


async def test_failure_of_a_sync_step_is_the_runs():
    class Fails(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            raise LookupError("from a thread")

    with pytest.raises(LookupError, match="from a thread"):
        await Fails(timeout=5).run()


class UsesContext(Workflow):
    @step
    def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(3):
            ctx.send_event(Job(n=n))
            ctx.write_event_to_stream(Job(n=100 + n))
        return None

    @step(num_workers=1)
    def work(self, ctx: Context, ev: Job) -> StopEvent | None:
        found = ctx.collect_events(ev, [Job] * 3)
        return StopEvent(result=[e.n for e in found]) if found else None


async def test_sync_step_can_send_write_and_collect():
    handler = UsesContext(timeout=5).run()
    events = await streamed(handler)
    assert await handler == [0, 1, 2]
    assert [e.n for e in of_type(events, Job)] == [100, 101, 102]


async def test_wrong_target_is_an_error_in_the_thread():
    class Wrong(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                ctx.send_event(Job(), step="nowhere")
            except WorkflowRuntimeError as error:
                return StopEvent(result=str(error))
            return StopEvent()

    assert await Wrong(timeout=5).run() == "Step nowhere does not exist"


async def test_step_context_is_found_in_the_thread():
    class Finds(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            Context.get_step_context().write_event_to_stream(Job(n=1))
            return StopEvent()

    events = await streamed(Finds(timeout=5).run())
    assert [e.n for e in of_type(events, Job)] == [1]


async def test_sync_steps_run_beside_each_other():
    class Meet(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step(num_workers=2)
        def work(self, ctx: Context, ev: Job) -> StopEvent | None:
            barrier.wait()
            return StopEvent(result="met") if ev.n else None

    barrier = threading.Barrier(2, timeout=5)
    assert await Meet(timeout=5).run() == "met"


async def test_stop_iteration_of_a_sync_step_is_no_hang():
    class Exhausted(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            return next(iter(()))

    with pytest.raises(RuntimeError, match="start raised StopIteration"):
        await Exhausted(timeout=2).run()
