"""The runtime in memory: turns, clocks, children, and the journals of the default runtime."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.runtime.memory import BasicRuntime, JournalRecord, MemoryRuntime, basic_runtime, get_current_runtime
from loom.runtime.memory_adapter import JOURNAL_TICKS
from loom.steps.errors import (
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    WorkflowValidationError,
)
from loom.steps.events import WorkflowIdleEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.steps.state_store import apply_state_patch
from loom.testing import VIRTUAL_EPOCH, run_virtual

request: ContextVar[str] = ContextVar("request", default="nobody")


class Limited(Workflow):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.running = 0
        self.most = 0
        self.order: list[int] = []

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(ev.number)
        await asyncio.sleep(10)
        self.running -= 1
        return StopEvent(result=request.get())


@pytest.mark.parametrize(("limit", "seconds"), [(1, 60), (2, 30), (4, 20), (None, 10)])
def test_so_many_runs_at_a_time(limit: int | None, seconds: float) -> None:
    workflow = Limited(num_concurrent_runs=limit)

    async def main() -> float:
        await asyncio.gather(*(workflow.run(number=number) for number in range(6)))
        return asyncio.get_running_loop().time() - VIRTUAL_EPOCH

    assert run_virtual(main()) == seconds
    assert workflow.most == (limit or 6)
    assert workflow.order == list(range(6))


def test_clock_of_a_run_that_was_held_back_starts_when_it_does() -> None:
    workflow = Limited(num_concurrent_runs=1, timeout=15)

    async def main() -> list[str]:
        return list(await asyncio.gather(*(workflow.run(number=number) for number in range(3))))

    assert len(run_virtual(main())) == 3


def test_limit_is_per_instance() -> None:
    async def main() -> float:
        await asyncio.gather(*(Limited(num_concurrent_runs=1).run(number=number) for number in range(3)))
        return asyncio.get_running_loop().time() - VIRTUAL_EPOCH

    assert run_virtual(main()) == 10


def test_run_that_was_held_back_has_the_context_of_its_caller() -> None:
    workflow = Limited(num_concurrent_runs=1)

    async def call(name: str) -> str:
        request.set(name)
        result: str = await workflow.run(number=0)
        return result

    async def main() -> list[str]:
        return list(await asyncio.gather(call("a"), call("b"), call("c")))

    assert run_virtual(main()) == ["a", "b", "c"]


def test_failed_and_cancelled_runs_give_their_turn_away() -> None:
    workflow = Limited(num_concurrent_runs=1, timeout=5)

    async def main() -> str:
        first, second, third = (workflow.run(number=number) for number in range(3))
        with pytest.raises(WorkflowTimeoutError):
            await first
        await second.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await second
        with pytest.raises(WorkflowTimeoutError):
            await third
        return "all ended"

    assert run_virtual(main()) == "all ended"


class Sent(Event):
    number: int


class Threaded(Workflow):
    """Its first step is synchronous and uses all of the context that needs no awaiting."""

    @step
    def send(self, ctx: Context, ev: StartEvent) -> None:
        assert threading.current_thread() is not threading.main_thread()
        for number in range(ev.count):
            ctx.send_event(Sent(number=number))
            ctx.write_event_to_stream(Sent(number=-number))

    @step
    def collect(self, ctx: Context, ev: Sent) -> StopEvent | None:
        found = ctx.collect_events(ev, [Sent] * 3)
        return StopEvent(result=sorted(event.number for event in found)) if found else None


@pytest.mark.parametrize("virtual", [True, False])
def test_sync_step_sends_events_from_its_thread(virtual: bool) -> None:
    async def main() -> tuple[Any, list[int]]:
        handler = Threaded(disable_validation=True, timeout=5).run(count=3)
        written = [event.number async for event in handler.stream_events() if isinstance(event, Sent)]
        return await handler, written

    assert (run_virtual if virtual else asyncio.run)(main()) == ([0, 1, 2], [0, -1, -2])


def test_event_sent_from_a_foreign_thread_reaches_the_run() -> None:
    async def main() -> str:
        handler = Asking(timeout=5).run()
        await asyncio.sleep(0)
        thread = threading.Thread(target=handler.ctx.send_event, args=(HumanResponseEvent(text="hi"),))
        thread.start()
        result: str = await handler
        thread.join()
        return result

    assert asyncio.run(main()) == "hi"


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id="the question", requirements={"kind": None})
        return StopEvent(result=answer.get("text"))


class Prompting(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="?")

    @step
    async def answer(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.get("text"))


async def next_idle(stream: Any) -> WorkflowIdleEvent:
    async for event in stream:
        if isinstance(event, WorkflowIdleEvent):
            return event
    raise AssertionError("the run never was idle")


def test_idle_run_says_what_it_waits_for_and_since_when() -> None:
    async def main() -> tuple[Any, ...]:
        handler = Asking(timeout=None).run()
        assert not handler.ctx.is_idle
        idle = await next_idle(handler.stream_events(expose_internal=True))
        assert handler.ctx.is_idle
        handler.ctx.send_event(HumanResponseEvent(text="hi"))
        result = await handler
        return idle.waiters, idle.idle_since, result, handler.ctx.is_idle

    waiters, since, result, idle_after = run_virtual(main())
    assert [(w["step"], w["waiter_id"], w["event_type"]) for w in waiters] == [
        ("ask", "the question", "workflows.events.HumanResponseEvent")
    ]
    assert waiters[0]["requirements"] == {"kind": None}
    assert since == VIRTUAL_EPOCH
    assert (result, idle_after) == ("hi", False)


def test_run_that_asked_by_an_event_is_idle_too() -> None:
    async def main() -> Any:
        handler = Prompting(timeout=None).run()
        idle = await next_idle(handler.stream_events(expose_internal=True))
        assert handler.ctx.is_idle
        handler.ctx.send_event(HumanResponseEvent(text="hi"))
        assert await handler == "hi"
        return idle.waiters

    assert [(waiter["step"], waiter["waiter_id"]) for waiter in run_virtual(main())] == [("answer", None)]


class Chatty(Workflow):
    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(3):
            await ctx.wait_for_event(HumanResponseEvent)
            await ctx.sleep(60)
        return StopEvent()


def test_idle_is_told_on_the_transition_only_and_a_sleeping_run_is_not_idle() -> None:
    async def main() -> tuple[int, list[tuple[bool, bool]]]:
        runtime = MemoryRuntime()
        handler = Chatty(timeout=None, runtime=runtime).run(run_id="r")
        run = runtime.get("r")
        seen = []
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((run.state.is_idle(), run.state.is_asleep()))
            handler.ctx.send_event(HumanResponseEvent())
            await asyncio.sleep(1)
            seen.append((run.state.is_idle(), run.state.is_asleep()))
            await asyncio.sleep(100)
        await handler
        events = [event async for event in handler.stream_events(expose_internal=True)]
        return sum(isinstance(event, WorkflowIdleEvent) for event in events), seen

    idle_times, seen = run_virtual(main())
    assert idle_times == 3
    assert seen == [(True, False), (False, True)] * 3


def test_event_that_comes_with_the_wait_leaves_no_idle_moment() -> None:
    class Quick(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            handlers[0].ctx.send_event(HumanResponseEvent(text="early"))
            answer = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=answer.get("text"))

    handlers: list[Any] = []

    async def main() -> tuple[str, int]:
        handlers.append(Quick(timeout=None).run())
        events = [event async for event in handlers[0].stream_events(expose_internal=True)]
        return await handlers[0], sum(isinstance(event, WorkflowIdleEvent) for event in events)

    result, idle_times = run_virtual(main())
    assert result == "early"
    assert idle_times == 0


async def test_waiting_run_is_held_without_its_handler_and_a_finished_one_by_nobody(until_idle: Any) -> None:
    runtime = MemoryRuntime()
    handler: Any = Asking(runtime=runtime).run(run_id="r")
    await until_idle(handler)
    del handler
    gc.collect()
    run: Any = runtime.get("r")
    run.send(HumanResponseEvent(text="still here"))
    assert (await run.outcome()).result == "still here"
    gone = weakref.ref(run)
    del run
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_given_clock_is_what_runs_read() -> None:
    runtime = MemoryRuntime(clock=lambda: 123.0)
    workflow = Prompting(runtime=runtime)
    assert runtime.now() == 123.0
    handler = workflow.run(run_id="r")
    run = runtime.get("r")
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    await handler
    assert {tick.at for tick in run.journal} == {123.0}


async def test_a_restored_context_of_an_idle_run_is_idle(until_idle: Any) -> None:
    workflow = Asking()
    handler = workflow.run()
    await until_idle(handler)
    saved = handler.ctx.to_dict()
    await handler.cancel_run()
    assert (handler.ctx.is_running, handler.ctx.is_idle) == (False, False)

    restored = Context.from_dict(workflow, saved)
    assert (restored.is_running, restored.is_idle) == (True, True)
    again = workflow.run(ctx=restored)
    await again.send_event(HumanResponseEvent(kind=None, text="yes"))
    assert await again == "yes"
    assert (restored.is_running, restored.is_idle) == (False, False)


def test_a_run_of_steps_loads_nothing_of_flows() -> None:
    """Programs with steps only start without the expressions, the actions and the planner of flows."""
    code = """
import asyncio, sys
from loom import StartEvent, StopEvent, Workflow, step

class Brief(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

async def main():
    await Brief().run()

asyncio.run(main())
heavy = ("loom.expressions", "loom.flows.planner", "loom.effects.actions", "loom.runtime.flow", "loom.runtime.durable")
print([name for name in heavy if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# -- the default runtime ----------------------------------------------------------------------------------------------


class Draft(Event):
    text: str


class Checked(Event):
    text: str


class Review(Workflow):
    """Writes, waits for a person, ends. Counts its bodies."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": None, **options})
        self.ran: list[str] = []

    @step
    async def write(self, ctx: Context, ev: StartEvent) -> Draft:
        self.ran.append("write")
        await ctx.store.set("topic", ev.topic)
        return Draft(text=f"on {ev.topic}")

    @step
    async def check(self, ctx: Context, ev: Draft) -> Checked:
        self.ran.append("check")
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="ok?"))
        return Checked(text=f"{ev.text}: {answer.verdict}")

    @step
    async def end(self, ev: Checked) -> StopEvent:
        self.ran.append("end")
        return StopEvent(result=ev.text)


async def until_asked(handler: Any) -> None:
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            return


async def records_of(workflow: Workflow, run_id: str) -> list[JournalRecord]:
    return [record async for record in workflow.runtime.journal(run_id)]  # type: ignore[attr-defined]


async def some_records(workflow: Workflow, run_id: str) -> list[JournalRecord]:
    """What the journal holds by now."""
    await asyncio.sleep(0)
    found: list[JournalRecord] = []

    async def read() -> None:
        async for record in basic_runtime.journal(run_id):
            found.append(record)

    reader = asyncio.create_task(read())
    for _ in range(5):
        await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait({reader})
    return found


async def test_journal_numbers_all_ticks_from_zero_and_ends_with_the_run() -> None:
    workflow = Review()
    handler = workflow.run(topic="x")
    await until_asked(handler)
    await handler.send_event(HumanResponseEvent(verdict="fine"))
    records = await records_of(workflow, handler.run_id)
    assert await handler == "on x: fine"
    assert [record.seq for record in records] == list(range(len(records)))
    assert len(records) == handler.ctx.to_dict()["journal_seq"]
    assert all(isinstance(record.data, str) for record in records)


async def test_journal_is_live_and_can_be_read_after_the_end() -> None:
    workflow = Review()
    handler = workflow.run(topic="x")
    reading = asyncio.create_task(records_of(workflow, handler.run_id))
    await until_asked(handler)
    assert not reading.done()
    handler.ctx.send_event(HumanResponseEvent(verdict="fine"))
    await handler
    assert await reading == await records_of(workflow, handler.run_id)


class Counted(Event):
    n: int


class Counting(Workflow):
    """A run of more ticks than a journal is kept for unasked."""

    @step
    async def begin(self, ev: StartEvent) -> Counted:
        return Counted(n=1)

    @step
    async def count(self, ev: Counted) -> Counted | StopEvent:
        return Counted(n=ev.n + 1) if ev.n < JOURNAL_TICKS else StopEvent(result=ev.n)


async def test_long_journal_that_nobody_has_asked_for_is_not_kept() -> None:
    workflow = Counting(timeout=None, runtime=BasicRuntime())
    handler = workflow.run()
    await handler
    run = handler.ctx._run
    assert run is not None
    assert len(run._adapter.journal) <= JOURNAL_TICKS  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="was not kept: it had more than 1,000 ticks"):
        await records_of(workflow, handler.run_id)


async def test_long_journal_is_kept_for_a_caller_that_asked_before() -> None:
    workflow = Counting(timeout=None, runtime=BasicRuntime())
    handler = workflow.run()
    reading = asyncio.create_task(records_of(workflow, handler.run_id))
    await handler
    assert [record.seq for record in await reading] == list(range(JOURNAL_TICKS + 2))


async def test_runtime_keeps_all_journals_if_it_is_told_to() -> None:
    workflow = Counting(timeout=None, runtime=BasicRuntime(keep_journals=True))
    handler = workflow.run()
    await handler
    assert len(await records_of(workflow, handler.run_id)) == JOURNAL_TICKS + 2


async def test_journal_of_nobody_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="No active workflow with run_id 'nobody'"):
        await anext(aiter(basic_runtime.journal("nobody")))


async def test_run_is_restored_from_its_records_alone() -> None:
    first = Review()
    handler = first.run(topic="x")
    await until_asked(handler)
    records = await some_records(first, handler.run_id)
    await handler.cancel_run()

    again = Review()
    context = basic_runtime.restore(again, None, records)
    assert context.is_running
    assert await context.store.get("topic") == "x"
    resumed = again.run(ctx=context)
    resumed.ctx.send_event(HumanResponseEvent(verdict="late"))
    assert await resumed == "on x: late"
    assert again.ran == ["check", "end"], "what had been done is not done again"


async def test_cancelled_run_can_be_restored_to_its_very_end() -> None:
    first = Review()
    handler = first.run(topic="x")
    await until_asked(handler)
    await handler.cancel_run()
    context = basic_runtime.restore(first, None, await records_of(first, handler.run_id))
    assert context.is_running
    resumed = first.run(ctx=context)
    resumed.ctx.send_event(HumanResponseEvent(verdict="ok"))
    assert await resumed == "on x: ok"


async def test_finished_run_is_restored_as_finished() -> None:
    workflow = Review()
    handler = workflow.run(topic="x")
    handler.ctx.send_event(HumanResponseEvent(verdict="ok"))
    await handler
    context = basic_runtime.restore(workflow, None, await records_of(workflow, handler.run_id))
    assert not context.is_running
    assert await context.store.get("topic") == "x"


async def test_snapshot_with_the_tail_of_its_session() -> None:
    first = Review()
    handler = first.run(topic="x")
    before = json.loads(json.dumps(handler.ctx.to_dict()))
    await until_asked(handler)
    records = await some_records(first, handler.run_id)
    middle = json.loads(json.dumps(handler.ctx.to_dict()))
    handler.ctx.send_event(HumanResponseEvent(verdict="ok"))
    await handler
    everything = await records_of(first, handler.run_id)

    for snapshot, tail, ran in (
        (before, records, ["check", "end"]),
        (middle, records, ["check", "end"]),
        (middle, records[middle["journal_seq"] :], ["check", "end"]),
    ):
        again = Review()
        context = basic_runtime.restore(again, snapshot, tail)
        assert context.is_running
        resumed = again.run(ctx=context)
        resumed.ctx.send_event(HumanResponseEvent(verdict="later"))
        assert await resumed == "on x: later"
        assert again.ran == ran

    for snapshot in (before, middle):
        assert not basic_runtime.restore(Review(), snapshot, everything).is_running


async def test_numbering_goes_on_across_resumes() -> None:
    first = Review()
    handler = first.run(topic="x")
    await until_asked(handler)
    old = await some_records(first, handler.run_id)
    await handler.cancel_run()

    second = Review()
    resumed = second.run(ctx=basic_runtime.restore(second, None, old))
    new = asyncio.create_task(records_of(second, resumed.run_id))
    resumed.ctx.send_event(HumanResponseEvent(verdict="ok"))
    await resumed
    everything = [*old, *await new]
    assert [record.seq for record in everything] == list(range(len(everything)))
    assert not basic_runtime.restore(Review(), None, everything).is_running

    third = Review()
    context = basic_runtime.restore(third, None, everything[:-1])
    assert context.is_running
    assert await third.run(ctx=context) == "on x: ok"
    assert third.ran == ["end"], "only what the last record had told is done again"


async def test_restored_context_can_be_saved_to_compact_the_journal() -> None:
    first = Review()
    handler = first.run(topic="x")
    await until_asked(handler)
    records = await some_records(first, handler.run_id)
    await handler.cancel_run()

    compact = json.loads(json.dumps(basic_runtime.restore(first, None, records).to_dict()))
    assert compact["journal_seq"] == len(records)
    second = Review()
    resumed = second.run(ctx=Context.from_dict(second, compact))
    new = asyncio.create_task(records_of(second, resumed.run_id))
    resumed.ctx.send_event(HumanResponseEvent(verdict="ok"))
    assert await resumed == "on x: ok"
    tail = await new
    assert tail[0].seq == len(records)
    third = Review()
    context = basic_runtime.restore(third, compact, tail[:-1])
    assert await third.run(ctx=context) == "on x: ok"
    assert third.ran == ["end"]


async def test_gap_in_the_records_is_an_error() -> None:
    workflow = Review()
    handler = workflow.run(topic="x")
    handler.ctx.send_event(HumanResponseEvent(verdict="ok"))
    await handler
    records = await records_of(workflow, handler.run_id)
    with pytest.raises(ValueError, match="Journal gap: expected seq 1, got 2"):
        basic_runtime.restore(workflow, None, [records[0], *records[2:]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nonsense", "not a journal record"),
        ('{"v": 2, "tick": {"type": "TickCancelRun", "at": 1.0}}', "version 2"),
        ('{"v": 1, "tick": {"type": "os.system", "at": 1.0}}', "not a journal record"),
    ],
)
def test_record_that_cannot_be_read_is_an_error(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        basic_runtime.restore(Review(), None, [JournalRecord(0, data)])


class Slow(Workflow):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": 100 * 3600.0, **options})
        self.ran: list[str] = []

    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def flaky(self, ev: StartEvent) -> Draft:
        self.ran.append("flaky")
        if not ev.get("good") and len(self.ran) == 1:
            raise ValueError("at first")
        return Draft(text="x")

    @step
    async def nap(self, ctx: Context, ev: Draft) -> Checked:
        self.ran.append("nap")
        await ctx.sleep(2 * 3600)
        self.ran.append("woke")
        return Checked(text=ev.text)

    @step
    async def end(self, ev: Checked) -> StopEvent:
        self.ran.append("end")
        return StopEvent(result=ev.text)


def test_timers_of_a_snapshot_are_found_by_the_records_behind_it() -> None:
    async def main() -> None:
        first = Slow()
        handler = first.run()
        snapshots = []
        for hours in (0.5, 0.7, 1.5):
            await asyncio.sleep(hours * 3600)
            snapshots.append(json.loads(json.dumps(handler.ctx.to_dict())))
        assert await handler == "x"
        records = [record async for record in basic_runtime.journal(handler.run_id)]
        for snapshot in snapshots:
            again = Slow()
            assert await again.run(ctx=basic_runtime.restore(again, snapshot, records[:-1])) == "x"
            assert again.ran == ["end"]

    run_virtual(main())


async def test_state_checkpoints_and_patches_restore_a_state() -> None:
    workflow = Review()
    handler = workflow.run(topic="x")
    await until_asked(handler)
    base = basic_runtime.state_checkpoint(handler.run_id)
    await handler.ctx.store.set("more", [1])
    patch = basic_runtime.state_checkpoint(handler.run_id).diff(base)
    records = await some_records(workflow, handler.run_id)
    await handler.cancel_run()

    snapshot = basic_runtime.restore(workflow, None, records).to_dict(include_state=False)
    snapshot["state"] = apply_state_patch(base.to_dict(), patch)
    context: Context = Context.from_dict(workflow, snapshot)
    assert await context.store.get("more") == [1]
    with pytest.raises(RuntimeError, match="No active workflow with run_id 'nobody'"):
        basic_runtime.state_checkpoint("nobody")


def test_runtime_of_a_workflow() -> None:
    given, around = BasicRuntime(), MemoryRuntime()
    assert Review().runtime is basic_runtime
    assert Review(runtime=given).runtime is given
    with around.registering() as entered:
        assert entered is around
        assert get_current_runtime() is around
        assert Review().runtime is around
        assert Review(runtime=given).runtime is given
    assert get_current_runtime() is basic_runtime


async def test_runtime_and_name_stay_after_a_launch() -> None:
    runtime = MemoryRuntime()
    workflow = Review(runtime=runtime)
    assert not runtime.is_launched
    await runtime.launch()
    assert runtime.is_launched
    with pytest.raises(RuntimeError, match="Cannot reassign runtime after workflow has been launched"):
        workflow._switch_runtime(basic_runtime)
    with pytest.raises(RuntimeError, match="after workflow has been launched"):
        workflow._switch_workflow_name("other")
    await runtime.destroy()
    assert not runtime.is_launched
    assert basic_runtime.is_launched


async def test_runtime_stays_after_a_run_and_can_be_changed_before() -> None:
    workflow = Review()
    other = MemoryRuntime()
    workflow._switch_runtime(other)
    assert workflow.runtime is other
    handler = workflow.run(topic="x")
    with pytest.raises(RuntimeError, match="Cannot reassign runtime after workflow has been launched"):
        workflow._switch_runtime(basic_runtime)
    await handler.cancel_run()


async def test_destroy_cancels_what_runs() -> None:
    runtime = MemoryRuntime()
    handler = Review(runtime=runtime).run(topic="x")
    await until_asked(handler)
    await runtime.destroy()
    assert handler.is_done()
    assert handler.ctx.to_dict()["is_running"], "a cancelled run can be resumed"


async def test_live_duplicate_of_a_run_id_is_an_error() -> None:
    workflow = Review()
    handler = workflow.run(topic="x", run_id="same")
    with pytest.raises(RuntimeError, match="Workflow run with run_id 'same' already exists"):
        workflow.run(topic="x", run_id="same")
    await handler.cancel_run()


# -- the depth of chains -----------------------------------------------------------------------------------------------


class Lap(Event):
    left: int


class Laps(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Lap:
        return Lap(left=ev.get("laps"))

    @step
    async def lap(self, ev: Lap) -> Lap | StopEvent:
        return Lap(left=ev.left - 1) if ev.left else StopEvent(result="there")


async def test_a_run_in_memory_has_a_limit_only_if_it_was_asked_for() -> None:
    assert await Laps(timeout=None).run(laps=10_500) == "there"
    assert await Laps(max_depth=5).run(laps=3) == "there"
    handler = Laps(max_depth=5).run(laps=4)
    with pytest.raises(WorkflowRuntimeError, match=r"^Step 'lap' would be execution 6 in a row.*max_depth allows 5\."):
        await handler
    assert not handler.ctx.is_running


async def test_a_run_that_came_to_its_limit_can_go_on_from_its_context() -> None:
    handler = Laps(max_depth=5).run(laps=8)
    with pytest.raises(WorkflowRuntimeError, match="max_depth allows 5"):
        await handler
    workflow = Laps(max_depth=20)
    assert await workflow.run(ctx=Context.from_dict(workflow, {**handler.ctx.to_dict(), "is_running": True})) == "there"


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "5"])
def test_a_limit_of_the_depth_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(WorkflowValidationError, match=r"^max_depth must be an integer greater than 0 or None$"):
        Laps(max_depth=limit)
