"""A live run: its beginning and end, its children, and event loops that end before it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

import loom
from loom import (
    Context,
    ContextSerdeError,
    Event,
    HumanResponseEvent,
    RunCancelledEvent,
    StartEvent,
    StopEvent,
    Workflow,
    on_cancel,
    step,
)
from loom.core.adapter import RunAdapterDecorator
from loom.core.commands import CommandRunWorker
from loom.core.records import Published
from loom.core.ticks import TickStepResult, WorkflowTick
from loom.effects.context_calls import MAX_NESTING
from loom.effects.execution import StepExecution
from loom.runtime.control_loop import Driver
from loom.runtime.durable import admission
from loom.runtime.live_run import LiveRun
from loom.runtime.memory import MemoryRuntime
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError
from loom.steps.events import WorkflowIdleEvent
from loom.steps.workflow import StepsDefinition


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
    async with asyncio.timeout(60):
        with pytest.raises(OSError, match=r"finalize|observe|publish"):
            await handler
    with pytest.raises(RuntimeError, match="No active workflow"):
        runtime.get("r")


class Spread(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Event | None:
        for n in range(3):
            ctx.send_event(Event(n=n))
        return None

    @step
    async def end(self, ctx: Context, ev: Event) -> StopEvent | None:
        found = ctx.collect_events(ev, [Event] * 3)
        return StopEvent(result=[each.get("n") for each in found]) if found else None


@pytest.mark.parametrize("times", [1, 2])
async def test_what_a_step_sends_passes_the_decorator_and_counts_once(times: int) -> None:
    sent: list[int] = []

    class Sending(RunAdapterDecorator):
        def send_event(self, tick: WorkflowTick) -> None:
            sent.append(getattr(tick, "source").ordinal)  # noqa: B009 - the type is not narrowed
            for _ in range(times):
                super().send_event(tick)

    assert await Spread(runtime=MemoryRuntime(decorate=Sending)).run() == [0, 1, 2]
    assert sent == [0, 1, 2]


async def test_step_is_finalized_when_the_run_has_its_result() -> None:
    told: list[bool] = []

    class Watching(RunAdapterDecorator):
        def finalize_step(self, command: CommandRunWorker) -> None:
            told.append(handler.ctx.to_dict()["is_running"])

    handler = Brief(runtime=MemoryRuntime(decorate=Watching)).run()
    await handler
    assert told == [False]


def refuse(self: StepsDefinition) -> Any:
    raise OSError("no config")


async def test_run_that_cannot_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = MemoryRuntime()
    workflow = Brief(runtime=runtime, num_concurrent_runs=1)
    with monkeypatch.context() as patch:
        patch.setattr(StepsDefinition, "config", refuse)
        with pytest.raises(OSError, match="no config"):
            workflow.run(run_id="r")
    async with asyncio.timeout(60):
        assert await workflow.run(run_id="r") == "done"


async def test_run_that_cannot_begin_in_its_turn_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = Brief(runtime=MemoryRuntime(), num_concurrent_runs=1)
    first, second = workflow.run(), workflow.run()
    with monkeypatch.context() as patch:
        patch.setattr(StepsDefinition, "config", refuse)
        async with asyncio.timeout(60):
            assert await first == "done"
            with pytest.raises(OSError, match="no config"):
                await second
    async with asyncio.timeout(60):
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
        thread.join(60)
    assert results == [["done"] * 30] * 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks always start in the next turn of the loop")
async def test_body_that_starts_eagerly_can_wait() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
    handler = Asking().run()
    async with asyncio.timeout(60):
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


# -- children ---------------------------------------------------------------------------------------------------------


SELF = {
    "actions": {
        "deeper": {"type": "workflow", "inputs": {"workflow": "self"}},
    }
}


async def test_a_flow_that_calls_itself_fails_at_the_limit() -> None:
    async with loom.connect("memory://", idle_timeout=None) as runtime:
        runtime.register(loom.load(SELF, name="self"))
        result = await (await runtime.start("self", None, run_id="top"))
        assert result.status == "Failed"
        assert f"nested more than {MAX_NESTING} deep" in result.actions["deeper"].error["message"]
        assert len([info async for info in runtime.list()]) == MAX_NESTING + 1


TWICE = {
    "actions": {
        "both": {
            "type": "foreach",
            "items": [1, 2, 3],
            "actions": {"deeper": {"type": "workflow", "inputs": {"workflow": "twice"}}},
            "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
        },
    }
}


async def test_a_flow_that_calls_itself_more_than_once_fails_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_OPEN", 50)
    async with loom.connect("memory://", idle_timeout=None) as runtime:
        runtime.register(loom.load(TWICE, name="twice"))
        async with asyncio.timeout(60):
            result = await (await runtime.start("twice", None, run_id="top"))
        assert result.status == "Failed"
        assert result.error is not None
        assert "More than 50 open runs descend from the run 'top'." in result.error["message"]
        assert len([info async for info in runtime.list()]) < 250


# -- shutdown ---------------------------------------------------------------------------------------------------------


PROGRAM = """
import asyncio, gc, logging, sys

logging.basicConfig(level=logging.ERROR)  # failed attempts are warnings
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.memory import basic_runtime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

again_at_once = retry_policy(stop=stop_after_attempt(9), wait=wait_fixed(0))
again_later = retry_policy(stop=stop_after_attempt(9), wait=wait_fixed(1000))


class Busy(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


class Retried(Workflow):
    @step(retry_policy=again_at_once)
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


class Delayed(Workflow):
    @step(retry_policy=again_later)
    async def work(self, ev: StartEvent) -> StopEvent:
        raise ValueError("not yet")


class Waiting(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent)


class Sleeping(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(1000)


class Tidying(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.sleep(1000)
        finally:
            ctx.send_event(StartEvent())
            await asyncio.sleep(0.001)


workflow = globals()[sys.argv[1]](timeout=None, num_concurrent_runs=int(sys.argv[2]) or None)


async def main(seconds):
    asyncio.get_running_loop().slow_callback_duration = 60  # the machine may be busy: that is no warning
    for number in range(6):
        workflow.run(run_id=str(number))
    await asyncio.sleep(seconds)


for seconds in (0.02, 0, 0.02):
    asyncio.run(main(seconds))
assert not basic_runtime._runs
assert not basic_runtime._watchers
assert not basic_runtime._turns
gc.collect()
"""


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("kind", ["Busy", "Retried", "Delayed", "Waiting", "Sleeping", "Tidying"])
def test_loop_that_ends_takes_its_runs_with_it(kind: str, limit: int) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, kind, str(limit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


CLEANING_UP = """
import asyncio

from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.memory import basic_runtime


class Quick(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0)
        return StopEvent(result="cleaned up")


class Long(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


results = []


async def beside():
    try:
        await asyncio.sleep(1000)
    finally:
        results.append(await Quick().run())


async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    task = asyncio.create_task(beside())
    Long().run()
    await asyncio.sleep(0.01)
    return task


asyncio.run(main())
assert results == ["cleaned up"], results
assert not basic_runtime._watchers
"""


def test_run_that_begins_while_the_loop_ends_is_not_hindered() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", CLEANING_UP]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


WITHOUT_A_WORD = """
import asyncio

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("text"))


workflow = Asking(timeout=None, num_concurrent_runs=1)


async def begin():
    workflow.run(run_id="a")
    workflow.run(run_id="b")
    await asyncio.sleep(0.01)


async def again():
    handler = workflow.run(run_id="a")
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    async with asyncio.timeout(60):
        return await handler


lost = asyncio.new_event_loop()
lost.run_until_complete(begin())
lost.close()
assert asyncio.run(again()) == "x"
"""


def test_loop_that_was_closed_without_a_word_holds_no_turn_and_no_name() -> None:
    command = [sys.executable, "-c", WITHOUT_A_WORD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr


class Stubborn(Workflow):
    """Ends a while after it was cancelled, if at all."""

    def __init__(self, seen: list[str], ends: asyncio.Event) -> None:
        super().__init__()
        self.seen, self.ends, self.at_work = seen, ends, asyncio.Event()

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        self.at_work.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.ends.wait()
            self.seen.append("stopped")
            raise
        return StopEvent()

    @on_cancel
    async def undo(self, ev: RunCancelledEvent) -> None:
        self.seen.append(f"undo {ev.steps}")


@pytest.mark.parametrize("ends", [True, False])
async def test_a_clean_up_step_begins_after_what_was_stopped_or_after_a_little_grace(ends: bool) -> None:
    seen, gate = [], asyncio.Event()
    workflow = Stubborn(seen, gate)
    handler = workflow.run()
    await workflow.at_work.wait()
    handler._run.request_cancel()
    await asyncio.sleep(0)
    assert seen == []
    if ends:
        gate.set()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    gate.set()
    assert seen == (["stopped", "undo ['work']"] if ends else ["undo ['work']"])


async def test_force_ends_a_run_in_memory_without_its_clean_up() -> None:
    seen, gate = [], asyncio.Event()
    gate.set()
    workflow = Stubborn(seen, gate)
    handler = workflow.run()
    await workflow.at_work.wait()
    await handler.cancel_run(force=True)
    assert handler.is_done()
    assert seen == ["stopped"]
    again = workflow.run(ctx=Context.from_dict(workflow, handler.ctx.to_dict()))
    await again.cancel_run(force=True)


async def test_a_run_at_its_clean_up_cannot_be_saved() -> None:
    gate, came = asyncio.Event(), asyncio.Event()

    class Held(Stubborn):
        @on_cancel
        async def undo(self, ev: RunCancelledEvent) -> None:
            came.set()
            await gate.wait()

    seen: list[str] = []
    ends = asyncio.Event()
    ends.set()
    workflow = Held(seen, ends)
    handler = workflow.run()
    await workflow.at_work.wait()
    handler._run.request_cancel()
    await came.wait()
    with pytest.raises(ContextSerdeError, match="is being cancelled"):
        handler.ctx.to_dict()
    gate.set()
    await handler.cancel_run()
    assert handler.ctx.to_dict()["is_running"] is False


async def test_a_run_that_waits_for_its_turn_has_nothing_to_clean_up() -> None:
    seen, gate = [], asyncio.Event()
    gate.set()

    class One(Stubborn):
        def __init__(self) -> None:
            Workflow.__init__(self, num_concurrent_runs=1)
            self.seen, self.ends, self.at_work = seen, gate, asyncio.Event()

    workflow = One()
    first, second = workflow.run(), workflow.run()
    await workflow.at_work.wait()
    await second.cancel_run()
    assert (second.is_done(), seen) == (True, [])
    await first.cancel_run()
    assert seen == ["stopped", "undo ['work']"]


async def test_a_run_with_a_clean_up_step_is_saved_and_goes_on_with_it() -> None:
    seen, gate = [], asyncio.Event()
    gate.set()
    workflow = Stubborn(seen, gate)
    handler = workflow.run()
    await workflow.at_work.wait()
    saved = handler.ctx.to_dict()
    await handler.cancel_run(force=True)
    workflow.at_work.clear()
    again = workflow.run(ctx=Context.from_dict(workflow, saved))
    await workflow.at_work.wait()
    seen.clear()
    await again.cancel_run()
    assert seen == ["stopped", "undo ['work']"]
