"""The default runtime: journals, restoring from them, checkpoints, and which runtime a workflow uses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.basic import BasicRuntime, JournalRecord, basic_runtime, get_current_runtime
from loom.runtime.memory import MemoryRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.steps.state_store import apply_state_patch
from loom.testing import run_virtual


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
