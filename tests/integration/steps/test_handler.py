"""What a handler and its context offer, and what they refuse."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
import weakref
from typing import Any

import pytest
from steps_rig import outcome_of, settled, until_idle

from loom import Context, Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step
from loom.steps.errors import ContextStateError, WorkflowCancelledByUser, WorkflowRuntimeError
from loom.steps.events import WorkflowCancelledEvent
from loom.steps.state_store import DictState


class Go(Event):
    n: int = 0


class Result(StopEvent):
    value: int = 0


class Begin(StartEvent):
    topic: str
    size: int = 1


class Plain(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.get("topic"))


class Custom(Workflow):
    @step
    async def start(self, ev: Begin) -> Result:
        return Result(value=ev.size)


class Waits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        go = await ctx.wait_for_event(Go)
        return StopEvent(result=go.n)


async def test_result_of_a_plain_stop_event_is_its_result():
    handler = Plain(timeout=5).run(topic="x")
    assert await handler == "x"
    assert await handler == "x"
    stop = await handler.stop_event_result()
    assert type(stop) is StopEvent
    assert stop.result == "x"


async def test_result_of_another_stop_event_is_the_event():
    result = await Custom(timeout=5).run(topic="x", size=3)
    assert type(result) is Result
    assert result.value == 3


async def test_start_event_instead_of_keywords():
    assert (await Custom(timeout=5).run(start_event=Begin(topic="x", size=4))).value == 4


async def test_keywords_beside_a_start_event_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture):
    result = await Custom(timeout=5).run(start_event=Begin(topic="x", size=4), size=9)
    assert result.value == 4
    assert any("size" in record.getMessage() for record in caplog.records)


async def test_bad_keywords_are_an_error_at_the_call():
    with pytest.raises(
        WorkflowRuntimeError, match="Failed creating a start event of type 'Begin' with the keyword arguments"
    ):
        Custom(timeout=5).run(size=1)


async def test_start_event_must_be_one():
    with pytest.raises(ValueError, match="start_event"):
        Custom(timeout=5).run(start_event=Go())


def test_run_needs_a_running_loop():
    with pytest.raises(RuntimeError):
        Plain(timeout=5).run()


async def test_handler_before_and_after_the_end():
    handler = Waits(timeout=5).run()
    assert isinstance(handler, WorkflowHandler)
    assert not isinstance(handler, asyncio.Future)
    assert not handler.is_done()
    assert handler.get_stop_event() is None
    await until_idle(handler)
    await handler.send_event(Go(n=3))
    assert await handler == 3
    assert handler.is_done()
    assert handler.get_stop_event().result == 3


async def test_step_exception_is_raised_as_it_is():
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")

    class Fails(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            raise Odd(1, 2)

    handler = Fails(timeout=5).run()
    with pytest.raises(Odd, match="1 and 2"):
        await handler
    with pytest.raises(Odd):
        await handler
    assert handler.get_stop_event() is None
    assert handler.is_done()


async def test_cancelled_run_has_its_event_and_does_not_go_on():
    workflow = Waits(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    assert handler.ctx.is_running is True
    await handler.cancel_run()
    assert type(handler.get_stop_event()) is WorkflowCancelledEvent
    assert handler.ctx.is_running is False


async def test_handler_shows_its_workflow_run_and_result():
    handler = Plain(timeout=5, workflow_name="plain").run(run_id="r1", topic="x")
    assert str(handler) == "WorkflowHandler(workflow=plain, run_id=r1, result=None)"
    assert repr(handler) == "WorkflowHandler(workflow='plain', run_id='r1', status='running')"
    await handler
    assert str(handler) == "WorkflowHandler(workflow=plain, run_id=r1, result=x)"
    assert repr(handler) == "WorkflowHandler(workflow='plain', run_id='r1', status='completed')"


async def test_run_id_is_given_or_made():
    named = Plain(timeout=5).run(run_id="mine", topic="x")
    assert named.run_id == "mine"
    assert await named == "x"
    other = Plain(timeout=5).run()
    assert other.run_id
    assert other.run_id != "mine"
    await other


async def test_live_duplicate_of_a_run_id_is_refused():
    handler = Waits(timeout=5).run(run_id="twice")
    with pytest.raises(RuntimeError, match="twice"):
        Waits(timeout=5).run(run_id="twice")
    handler.ctx.send_event(Go(n=1))
    await handler
    again = Waits(timeout=5).run(run_id="twice")
    again.ctx.send_event(Go(n=2))
    assert await again == 2


async def test_handler_can_be_awaited_from_many_places():
    handler = Waits(timeout=5).run()
    tasks = [asyncio.ensure_future(outcome_of(handler)) for _ in range(3)]
    await until_idle(handler)
    handler.ctx.send_event(Go(n=1))
    assert await asyncio.gather(*tasks) == [1, 1, 1]


async def test_deprecated_names_of_futures_still_work():
    handler = Plain(timeout=5).run(topic="x")
    await handler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert handler.done() is True
        assert handler.cancelled() is False
        assert handler.exception() is None


@pytest.mark.parametrize("name", ["done", "cancelled", "exception", "cancel"])
async def test_deprecated_names_warn_once_per_process(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("loom.steps.errors._shown", set())
    handler = Plain(timeout=5).run()
    await handler
    with pytest.warns(DeprecationWarning, match=rf"WorkflowHandler\.{name}\(\) is deprecated"):
        getattr(handler, name)()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(handler, name)()


async def test_asking_whether_it_runs_is_deprecated_in_a_step(monkeypatch: pytest.MonkeyPatch):
    class Asks(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ctx.is_running)

    monkeypatch.setattr("loom.steps.errors._shown", set())
    with pytest.warns(DeprecationWarning, match="is_running"):
        assert await Asks(timeout=5).run() is True


async def test_exception_of_a_run_that_goes_on_is_not_known():
    handler = Waits(timeout=5).run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(asyncio.InvalidStateError):
            handler.exception()
        assert handler.cancelled() is False
        await handler.cancel_run()
        assert isinstance(handler.exception(), WorkflowCancelledByUser)
        assert handler.cancelled() is True


async def test_context_before_the_run():
    ctx = Context(Plain(timeout=5))
    assert ctx.is_running is False
    with pytest.raises(ContextStateError, match=r"send_event\(\) called before workflow started\."):
        ctx.send_event(Go())
    with pytest.raises(
        ContextStateError, match=r"stream_events requires a running workflow\. Call workflow\.run\(\) first\."
    ):
        ctx.stream_events()
    with pytest.raises(ContextStateError, match="running_steps requires a running workflow"):
        await ctx.running_steps()


@pytest.mark.parametrize("when", ["before", "outside"])
async def test_inner_face_is_refused_elsewhere(when: str):
    if when == "before":
        ctx = Context(Plain(timeout=5))
    else:
        handler = Plain(timeout=5).run()
        await handler
        ctx = handler.ctx
    why = {
        "before": "requires a running workflow. Call workflow.run() first.",
        "outside": "is only available from within step functions.",
    }[when]
    with pytest.raises(ContextStateError, match=re.escape(f"collect_events {why}")):
        ctx.collect_events(Go(), [Go])
    with pytest.raises(ContextStateError, match=re.escape(f"wait_for_event {why}")):
        await ctx.wait_for_event(Go)
    with pytest.raises(ContextStateError, match=re.escape(f"write_event_to_stream {why}")):
        ctx.write_event_to_stream(Go())
    with pytest.raises(ContextStateError, match=re.escape(f"retry_info {why}")):
        ctx.retry_info()


async def test_outer_face_is_refused_in_a_step():
    class Looks(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            problems = []
            for attempt in (ctx.running_steps, ctx.to_dict, ctx.stream_events):
                try:
                    result = attempt()
                    if asyncio.iscoroutine(result):
                        await result
                except ContextStateError as error:
                    problems.append(str(error))
            return StopEvent(result=problems)

    problems = await Looks(timeout=5).run()
    why = "is only available from handler code, not from within steps."
    assert problems == [f"running_steps {why}", f"to_dict {why}", f"stream_events {why}"]


async def test_running_steps_from_outside():
    class Busy(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            await gate.wait()
            return StopEvent()

    gate = asyncio.Event()
    handler = Busy(timeout=5).run()
    await settled()
    assert await handler.ctx.running_steps() == ["start"]
    gate.set()
    await handler
    assert handler.ctx.is_running is False


async def test_a_sender_learns_that_the_run_has_ended():
    handler = Plain().run()
    await handler
    with pytest.raises(WorkflowRuntimeError, match="it takes no event any more"):
        handler.ctx.send_event(Go())
    with pytest.raises(WorkflowRuntimeError, match="it takes no event any more"):
        await handler.send_event(Go())


async def test_what_is_no_event_is_refused_in_a_step():
    refused: list[BaseException] = []

    class Wrong(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for call in (ctx.write_event_to_stream, ctx.send_event):
                try:
                    call(5)
                except Exception as error:  # noqa: BLE001 - the test looks at it
                    refused.append(error)
            ctx.write_event_to_stream(None)
            return StopEvent()

    handler = Wrong().run()
    assert [type(event) async for event in handler.stream_events()] == [StopEvent]
    assert [type(error) for error in refused] == [TypeError, WorkflowRuntimeError]


async def test_context_of_a_live_run_cannot_start_another():
    workflow = Waits(timeout=5)
    handler = workflow.run()
    await settled()
    with pytest.raises(ContextStateError, match=r"Cannot start a new run while context is already running\."):
        workflow.run(ctx=handler.ctx)
    await handler.cancel_run()


async def test_step_context_is_found_from_helpers():
    async def helper() -> type:
        return type(await Context.get_step_context().store.get_state())

    class Helps(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await helper())

    assert await Helps(timeout=5).run() is DictState
    with pytest.raises(WorkflowRuntimeError):
        Context.get_step_context()


async def test_run_outlives_its_handler():
    ended = asyncio.Event()

    class Ends(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Go)
            ended.set()
            return StopEvent()

    handler = Ends(timeout=5).run()
    await until_idle(handler)
    send = handler.ctx.send_event
    del handler
    gc.collect()
    send(Go())
    await asyncio.wait_for(ended.wait(), 60)
    await settled()


async def test_idempotency_key_is_stable_and_per_work_item():
    class Keys(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Go:
            self.keys.append(ctx.idempotency_key)
            return Go()

        @step
        async def end(self, ctx: Context, ev: Go) -> StopEvent:
            self.keys.append(ctx.idempotency_key)
            return StopEvent()

        keys: list[str]

    workflow = Keys(timeout=5)
    workflow.keys = []
    await workflow.run(run_id="k")
    assert len(set(workflow.keys)) == 2
    assert all("k" in key for key in workflow.keys)


async def test_finished_run_leaves_nothing_behind():
    class Big(Event):
        payload: str = ""

    class Publishes(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Big:
            big = Big(payload="x")
            alive.append(weakref.ref(big))
            ctx.write_event_to_stream(big)
            return big

        @step
        async def end(self, ev: Big) -> StopEvent:
            return StopEvent()

    alive: list[weakref.ref[Any]] = []
    workflow = Publishes(timeout=5)
    handler = workflow.run()
    await handler
    await settled()
    assert alive[0]() is not None, "the handler can still read the stream"
    del handler
    await settled()
    gc.collect()
    assert alive[0]() is None
