"""A store over a cluster with a worker: rows, streams and journals of runs that move, end, fail and go on."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporal_server import fresh_temporal_url
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import Worker

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.recovery import restored
from loom.runtime.durable.registration import registration_of
from loom.runtime.planners import planner_for
from loom.store import codec
from loom.store.errors import HistoryGone, RunFinished, StoreError
from loom.store.records import RunQuery
from loom.temporal.activity.step_activity import make_activity
from loom.temporal.client.records import metadata_of_row
from loom.temporal.payloads import StartArgument
from loom.temporal.runtime import TemporalRuntime
from loom.temporal.settings import TemporalSettings
from loom.temporal.workflow.policy import Policy
from loom.temporal.workflow.runner import LoomHost, LoomRunner


class Answer(Event):
    value: int


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer)
        ctx.write_event_to_stream(Answer(value=answer.value))
        if answer.value == 13:
            raise ValueError("thirteen")
        return StopEvent(result=answer.value)


class More(Event):
    left: int


class Counts(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> More:
        return More(left=9)

    @step
    async def count(self, ctx: Context, ev: More) -> More | StopEvent:
        ctx.write_event_to_stream(Event(left=ev.left))
        return More(left=ev.left - 1) if ev.left else StopEvent(result="counted")


@pytest.fixture
async def runtime() -> AsyncIterator[TemporalRuntime]:
    async with loom.connect(fresh_temporal_url()) as runtime:
        assert isinstance(runtime, TemporalRuntime)
        runtime.register(Asks(timeout=None), "asks")
        yield runtime


@asynccontextmanager
async def short_histories(**options: Any) -> AsyncIterator[TemporalRuntime]:
    """A client, and a worker whose runs go on in new executions after a few steps."""
    policy = Policy(budget=1_500_000, window=100, drain_events=30, force_events=1_000)
    codes = {"counts": registration_of("counts", Counts(timeout=None))}
    async with loom.connect(fresh_temporal_url()) as runtime:
        assert isinstance(runtime, TemporalRuntime)
        worker = Worker(
            runtime.client,
            task_queue=runtime.store.address.task_queue,
            workflows=[LoomHost],
            activities=[make_activity(codes, runtime.client, TemporalSettings())],
            unsandboxed_workflow_runner=LoomRunner(codes, policies=(policy,)),
            **options,
        )
        async with worker:
            yield runtime


async def eventually(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    until = time.monotonic() + 60
    while (found := await look()) != wanted:
        assert time.monotonic() < until, f"{found} is not {wanted}"
        await asyncio.sleep(0.02)


async def until_idle(runtime: TemporalRuntime, run_id: str) -> None:
    async def is_idle() -> bool:
        return (await runtime.get(run_id)).idle_since is not None

    await eventually(is_idle, True)


async def test_idle_runs_are_found_by_what_they_wait_for(runtime: TemporalRuntime) -> None:
    await runtime.start("asks", {}, run_id="a")
    await until_idle(runtime, "a")

    async def found(**query: Any) -> list[str]:
        return [row.run_id for row in await runtime.store.find(RunQuery(**query))]

    await eventually(lambda: found(idle=True), ["a"])
    assert await found(waiting_for="Answer") == ["a"]
    assert await found(waiting_for=f"{__name__}.Answer") == ["a"]
    assert await found(waiting_for="Question") == []
    assert await found(idle_before=time.time() + 5) == ["a"]
    assert await found(idle_before=time.time() - 60) == []
    assert await found(idle=False) == []
    await eventually(
        runtime.store.counts,
        {**dict.fromkeys(["completed", "failed", "cancelled"], 0), "running": 1, "idle": 1, "owned": 0},
    )


async def test_an_event_id_is_known_before_and_after_the_end(runtime: TemporalRuntime) -> None:
    handler = await runtime.start("asks", {}, run_id="a")
    await until_idle(runtime, "a")
    assert await runtime.send_event("a", Answer(value=1), event_id="e")
    assert not await runtime.send_event("a", Answer(value=2), event_id="e")
    assert await handler == 1
    assert not await runtime.send_event("a", Answer(value=2), event_id="e")
    with pytest.raises(RunFinished, match="completed"):
        await runtime.send_event("a", Answer(value=2), event_id="f")


async def test_the_end_of_a_run_is_read_without_a_worker() -> None:
    url = fresh_temporal_url()
    async with loom.connect(url) as working:
        working.register(Asks(timeout=None), "asks")
        for run_id, value in (("good", 1), ("bad", 13)):
            await working.start("asks", {}, run_id=run_id)
            await working.send_event(run_id, Answer(value=value))
            await eventually(lambda run_id=run_id: _has_ended(working, run_id), True)
        await working.start("asks", {}, run_id="stopped")
        await working.cancel("stopped")
        await eventually(lambda: _has_ended(working, "stopped"), True)
    async with loom.connect(url) as alone:
        began = time.monotonic()
        assert await (await alone.handler("good")) == 1
        with pytest.raises(ValueError, match="thirteen"):
            await (await alone.handler("bad"))
        assert (await alone.get("bad")).error == "ask: ValueError: thirteen"
        assert (await alone.get("stopped")).status == "cancelled"
        assert time.monotonic() - began < 8, "a worker was waited for, which takes 10 s where there is none"


async def _has_ended(runtime: Any, run_id: str) -> bool:
    return (await runtime.get(run_id)).status != "running"


async def test_a_retried_run_has_its_whole_history(runtime: TemporalRuntime) -> None:
    handler = await runtime.start("asks", {}, run_id="a")
    await runtime.send_event("a", Answer(value=13))
    with pytest.raises(ValueError, match="thirteen"):
        await handler
    before = [entry.tick async for entry in runtime.history("a")]
    await runtime.retry("a")
    await eventually(lambda: _has_ended(runtime, "a"), True)
    after = [entry.tick async for entry in runtime.history("a")]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    events = await _stream(runtime, "a")
    row = await runtime.store.get("a")
    assert row is not None
    assert len(events) == row.head.events


async def _stream(runtime: TemporalRuntime, run_id: str) -> list[Any]:
    """All that is on a stream, read page by page: no gap and no repetition."""
    events: list[Any] = []
    while chunks := await runtime.store.stream(run_id, len(events), 2):
        for chunk in chunks:
            events += codec.decode_published(run_id, chunk)[len(events) - chunk.first_cursor :]
    return events


async def test_what_the_server_has_deleted_is_an_error_and_no_gap(runtime: TemporalRuntime) -> None:
    handler = await runtime.start("asks", {}, run_id="a")
    await runtime.send_event("a", Answer(value=13))
    with pytest.raises(ValueError, match="thirteen"):
        await handler
    failed = await runtime.store.load("a")
    assert failed is not None
    async with loom.connect(fresh_temporal_url()) as other:
        assert isinstance(other, TemporalRuntime)
        other.register(Asks(timeout=None), "asks")
        await other.ready()
        metadata = metadata_of_row(failed.row, failed.start, attributes=False)
        argument = StartArgument(metadata, stored=failed, retry=True, previous=str(uuid.uuid4()))
        await other.store._starter._open(argument, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        await eventually(lambda: _has_ended(other, "a"), True)
        ticks, events = failed.row.head.ticks, failed.row.head.events
        assert (await other.store.chunks("a", ticks, 10))[0].first_tick == ticks
        assert (await other.store.stream("a", events, 10))[0].first_cursor == events
        with pytest.raises(HistoryGone, match="was deleted on Temporal"):
            await other.store.chunks("a", 0, 10)
        with pytest.raises(HistoryGone, match="was deleted on Temporal"):
            await other.store.stream("a", 0, 10)


async def test_a_run_that_no_worker_knows_says_so(runtime: TemporalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.temporal.client.reads.ROW_PATIENCE_S", 0.1)
    await runtime.start("unknown", {}, run_id="a")

    async def says_so() -> bool:
        return "none of them knows 'unknown'" in ((await runtime.get("a")).error or "")

    await eventually(says_so, True)
    assert (await runtime.get("a")).status == "running"


async def test_a_list_knows_what_this_process_has_just_done(runtime: TemporalRuntime) -> None:
    for number in range(5):
        await runtime.start("asks", {}, run_id=f"run-{number}")
        assert await anext(info.run_id async for info in runtime.list()) == f"run-{number}"
    handler = await runtime.handler("run-0")
    await runtime.send_event("run-0", Answer(value=1))
    await handler
    assert [info.run_id async for info in runtime.list(status="completed")] == ["run-0"]


async def test_only_a_failed_run_can_be_retried(runtime: TemporalRuntime) -> None:
    await runtime.start("asks", {}, run_id="a")
    with pytest.raises(StoreError, match="is running"):
        await runtime.retry("a")
    await runtime.send_event("a", Answer(value=1))
    await eventually(lambda: _has_ended(runtime, "a"), True)
    with pytest.raises(RunFinished, match="completed"):
        await runtime.retry("a")


@pytest.mark.parametrize("cached", [1000, 0])
async def test_many_executions_are_one_journal_and_one_stream(cached: int) -> None:
    async with short_histories(max_cached_workflows=cached) as runtime:
        handler = await runtime.start("counts", {}, run_id="a")
        assert await handler == "counted"
        origin = await runtime.store.client.get_workflow_handle("a").describe()
        first = origin.raw_description.workflow_execution_info.first_run_id
        assert first != origin.run_id, "it went on in new executions"
        history = [entry async for entry in runtime.history("a")]
        row = await runtime.store.get("a")
        assert row is not None
        assert [entry.seq for entry in history] == list(range(row.head.ticks))
        events = await _stream(runtime, "a")
        assert len(events) == row.head.events
        exported = await runtime.store.export("a")
        assert exported is not None
        assert exported.snapshot is not None
        planner, reader = planner_for(None), runtime.field_reader(row)
        replayed = restored("a", None, exported.chunks, planner, reader)
        assert codec.encode_state(replayed) == exported.snapshot.data
        assert codec.decode_start("a", exported.start).inputs == "{}"


async def test_an_exported_run_goes_on_elsewhere(runtime: TemporalRuntime) -> None:
    await runtime.start("asks", {}, run_id="a", tags={"k": "v"})
    await until_idle(runtime, "a")
    exported = await runtime.export_run("a")
    async with loom.connect(fresh_temporal_url()) as other:
        other.register(Asks(timeout=None), "asks")
        assert await other.import_run(exported) == "a"
        with pytest.raises(StoreError, match="exists already"):
            await other.import_run(exported)
        await other.send_event("a", Answer(value=4))
        assert await (await other.handler("a")) == 4
        assert (await other.get("a")).tags == {"k": "v"}


async def test_a_fork_goes_on_from_a_past_tick(runtime: TemporalRuntime) -> None:
    handler = await runtime.start("asks", {}, run_id="a")
    await until_idle(runtime, "a")
    await runtime.send_event("a", Answer(value=1))
    assert await handler == 1
    names = [type(entry.tick).__name__ async for entry in runtime.history("a")]
    fork = await runtime.fork("a", tick=names.index("TickAddEvent") - 1, run_id="b")
    await runtime.send_event("b", Answer(value=2))
    assert await fork == 2
    assert (await runtime.get("b")).forked_from == "a"
