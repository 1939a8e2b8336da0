"""What llama-index-workflows 2.26 is known to get wrong, about executions: each test fails there and holds here."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Annotated

import pytest
from pydantic import Field
from steps_rig import of_type, outcome_of, settled, streamed, until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from loom.steps.errors import ContextSerdeError, WorkflowTimeoutError
from loom.steps.events import StepFailedEvent, WorkflowIdleEvent
from loom.steps.resources import Resource
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Note(Event):
    lines: list[str] = Field(default_factory=list)


async def test_concurrent_collects_do_not_run_bodies_quadratically():
    class Collects(Workflow):
        bodies = 0

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            for n in range(20):
                ctx.send_event(Job(n=n))
            return None

        @step(num_workers=20)
        async def join(self, ctx: Context, ev: Job) -> StopEvent | None:
            self.bodies += 1
            await asyncio.sleep(0.01)
            found = ctx.collect_events(ev, [Job] * 20)
            return StopEvent(result=sorted(e.n for e in found)) if found else None

    workflow = Collects(timeout=10)
    assert await workflow.run() == list(range(20))
    assert workflow.bodies <= 21


async def test_idempotency_key_is_the_same_for_every_attempt():
    class Keys(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            keys.append(ctx.idempotency_key)
            if len(keys) < 3:
                raise ValueError("again")
            return StopEvent()

    keys: list[str] = []
    await Keys(timeout=5).run()
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_cancelled_error_in_a_step_is_a_failure_and_no_hang():
    class Cancels(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            raise asyncio.CancelledError

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result="rescued")

    assert await Cancels(timeout=2).run() == "rescued"


async def test_sync_step_can_send_and_write():
    class Sync(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.write_event_to_stream(Note(lines=["from a thread"]))
            ctx.send_event(Job(n=1))
            return None

        @step
        def end(self, ev: Job) -> StopEvent:
            return StopEvent(result=ev.n)

    handler = Sync(timeout=5).run()
    events = await streamed(handler)
    assert await handler == 1
    assert [e.lines for e in of_type(events, Note)] == [["from a thread"]]


async def test_result_after_the_deadline_does_not_win():
    class Blocks(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            time.sleep(0.2)  # noqa: ASYNC251 - the subject
            return StopEvent(result="too late")

    assert isinstance(await outcome_of(Blocks(timeout=0.05).run()), WorkflowTimeoutError)


async def test_slow_resource_that_two_steps_want_is_no_cycle():
    async def slow() -> object:
        begun.set()
        await gate.wait()
        return object()

    class Both(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | Done | None:
            ctx.send_event(Job())
            ctx.send_event(Done())
            return None

        @step
        async def one(self, ev: Job, it: Annotated[object, Resource(slow)]) -> StopEvent | None:
            return took(it)

        @step
        async def two(self, ev: Done, it: Annotated[object, Resource(slow)]) -> StopEvent | None:
            return took(it)

    def took(it: object) -> StopEvent | None:
        got.append(it)
        return StopEvent(result=got[0] is got[1]) if len(got) == 2 else None

    got: list[object] = []
    begun, gate = asyncio.Event(), asyncio.Event()
    handler = Both(timeout=5).run()
    await begun.wait()
    await settled(100)
    gate.set()
    assert await handler is True


async def test_two_lambdas_are_two_resources():
    class Lambdas(Workflow):
        @step
        async def start(
            self, ev: StartEvent, a: Annotated[str, Resource(lambda: "a")], b: Annotated[str, Resource(lambda: "b")]
        ) -> StopEvent:
            return StopEvent(result=a + b)

    assert await Lambdas(timeout=5).run() == "ab"


class OldName(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(3):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()


class NewName(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        return Job()

    @step
    async def labour(self, ctx: Context, ev: Job) -> StopEvent:
        return StopEvent(result="laboured")


async def test_queued_events_of_a_renamed_step_are_not_dropped():
    handler = OldName(timeout=5).run()
    await settled()
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    with pytest.raises(ContextSerdeError, match="'work'"):
        Context.from_dict(NewName(timeout=5), data)
    assert Context.from_dict(OldName(timeout=5), data).is_running


async def test_renamed_step_can_be_declared():
    handler = OldName(timeout=5).run()
    await settled()
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    workflow = NewName(timeout=5)
    with pytest.raises(ContextSerdeError, match="'work'"):
        Context.from_dict(workflow, data, renames={"work": "toil"})
    context = Context.from_dict(workflow, data, renames={"work": "labour"})
    assert context.is_running
    assert await workflow.run(ctx=context) == "laboured"


async def test_run_with_nothing_left_to_do_shows_as_idle_and_can_be_cancelled():
    class Ends(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent | None:
            return None

    handler = Ends(timeout=None).run()
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, WorkflowIdleEvent):
            assert event.waiters == []
            break
    assert handler.ctx.is_idle
    await handler.cancel_run()
    assert handler.is_done()


async def test_branches_do_not_share_events_by_reference():
    class Shares(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Note:
            return Note(lines=["original"])

        @step
        async def left(self, ev: Note) -> Job:
            ev.lines.append("left was here")
            return Job(n=len(ev.lines))

        @step
        async def right(self, ev: Note) -> Job:
            ev.lines.append("right was here")
            return Job(n=len(ev.lines))

        @step
        async def join(self, ctx: Context, ev: Job) -> StopEvent | None:
            found = ctx.collect_events(ev, [Job, Job])
            return StopEvent(result=[e.n for e in found]) if found else None

    assert await Shares(timeout=5).run() == [2, 2]


async def test_branches_that_wait_do_not_share_the_reply():
    class Shares(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step
        async def ask(self, ctx: Context, ev: Job) -> Done:
            note = await ctx.wait_for_event(Note)
            note.lines.append("seen")
            return Done(n=len(note.lines))

        @step
        async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
            found = ctx.collect_events(ev, [Done, Done])
            return StopEvent(result=[e.n for e in found]) if found else None

    handler = Shares(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Note(lines=[]))
    assert await handler == [1, 1]


def test_extra_fields_of_a_stop_event_are_in_its_dump():
    dumped = StopEvent(result=1, extra="kept").model_dump()
    assert dumped["result"] == 1
    assert dumped["_data"] == {"extra": "kept"}
    assert StopEvent.model_validate(dumped).extra == "kept"


async def test_waiting_run_is_not_lost_with_its_handler():
    ended = asyncio.Event()

    class Waits(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply, timeout=None)
            ended.set()
            return StopEvent()

    workflow = Waits(timeout=None)
    await until_idle(workflow.run(run_id="nobody holds me"))
    for _ in range(3):
        gc.collect()
        await settled()
    workflow.runtime.get("nobody holds me").send(Reply())
    await asyncio.wait_for(ended.wait(), 60)
    await settled()
