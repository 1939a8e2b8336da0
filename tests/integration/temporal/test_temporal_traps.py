"""What is known to go wrong on a Temporal server, as far as it can happen to a Loom run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import temporal_samples
from msgspec.structs import replace
from temporal_samples import BIG, WIDE, Blocking, Counting, Many, Talk, Wide, Word
from temporal_server import fresh_temporal_url, own_server
from temporalio.client import Client, WorkflowQueryFailedError

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.steps.events import WorkflowIdleEvent
from loom.temporal.runtime import TemporalRuntime
from loom.temporal.workflow.policy import POLICIES, Policy
from loom.temporal.workflow.runner import LoomRunner


async def executions_of(client: Client, run_id: str) -> list[str]:
    """The executions that a run had, by their Temporal run ids, the last one first. Lists would follow late."""
    executions = [(await client.get_workflow_handle(run_id).describe()).run_id]
    while True:
        history = await client.get_workflow_handle(run_id, run_id=executions[-1]).fetch_history()
        before = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return executions
        executions.append(before)


async def fired_timers(client: Client, run_id: str) -> int:
    """How many timers have fired in all executions of a run."""
    fired = 0
    for execution in await executions_of(client, run_id):
        history = await client.get_workflow_handle(run_id, run_id=execution).fetch_history()
        fired += sum(event.HasField("timer_fired_event_attributes") for event in history.events)
    return fired


def use_policies(monkeypatch: pytest.MonkeyPatch, *policies: Policy) -> None:
    """Let workers that begin from now on have another table of policies."""
    monkeypatch.setitem(LoomRunner.__init__.__kwdefaults__, "policies", policies)


@pytest.mark.parametrize("cached", [1000, 0], ids=["cached", "replayed"])
async def test_nothing_is_lost_that_arrives_while_a_run_goes_on_in_a_new_execution(cached: int) -> None:
    with own_server(settings={"limit.historyCount.suggestContinueAsNew": 30}) as server:
        async with loom.connect(server.fresh_url(), max_cached_workflows=cached) as runtime:
            runtime.register(Counting(timeout=None), name="counting")
            handler = await runtime.start("counting", {"words": 18}, run_id="a")
            for first in range(0, 18, 6):
                sent = (runtime.send_event("a", Word(n=n), event_id=f"w{n}") for n in range(first, first + 6))
                await asyncio.gather(*sent)
                # A run goes on elsewhere between two activities: let there be such a moment before its last word.
                async with asyncio.timeout(60):
                    while first < 12 and not (await runtime.get("a")).idle_since:  # noqa: ASYNC110 - it tells nobody
                        await asyncio.sleep(0.05)
            async with asyncio.timeout(60):
                assert sorted(await handler) == list(range(18))
            assert len(await executions_of(runtime.client, "a")) >= 2
            published = [event async for event in handler.stream_events(expose_internal=True, after=-1)]
            assert len(published) == (await runtime.get("a")).events, "the stream goes through all executions"


async def test_more_than_a_task_may_carry_leaves_in_parts() -> None:
    assert WIDE * BIG >= 5_000_000
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Wide(timeout=None), name="wide")
        async with asyncio.timeout(60):
            assert await (await runtime.start("wide", run_id="a")) == WIDE * BIG
        fences = await fired_timers(runtime.client, "a")
    assert fences >= WIDE * BIG // 1_500_000


async def test_a_run_keeps_the_budget_that_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    text, budget = 40_000, 100_000
    monkeypatch.setattr(temporal_samples, "BIG", text)
    url, old = fresh_temporal_url(), replace(POLICIES[0], budget=budget)
    use_policies(monkeypatch, old)
    async with loom.connect(url) as runtime:
        runtime.register(Wide(timeout=None), name="wide")
        async with asyncio.timeout(60):
            assert await (await runtime.start("wide", run_id="a")) == WIDE * text
        assert await fired_timers(runtime.client, "a") >= WIDE * text // budget
    use_policies(monkeypatch, old, POLICIES[0])
    async with loom.connect(url, max_cached_workflows=0) as runtime:
        runtime.register(Wide(timeout=None), name="wide")
        # Whoever looks at it replays it, with other parts than a new run would leave in.
        assert len([entry async for entry in runtime.history("a")]) == (await runtime.get("a")).ticks
        async with asyncio.timeout(60):
            assert await (await runtime.start("wide", run_id="b")) == WIDE * text
        assert await fired_timers(runtime.client, "b") < await fired_timers(runtime.client, "a")


async def _many(url: str, pieces: int) -> None:
    async with loom.connect(url, max_steps=200) as runtime:
        runtime.register(Many(timeout=None), name="many")
        async with asyncio.timeout(300):
            assert await (await runtime.start("many", {"pieces": pieces}, run_id="a")) == pieces


async def test_more_steps_at_once_than_the_server_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with room for 120 activities of a run, and a window of 100: a twentieth of what is usual."""
    use_policies(monkeypatch, replace(POLICIES[0], window=100))
    with own_server(settings={"limit.numPendingActivities.error": 120}) as server:
        await _many(server.fresh_url(), 250)


@pytest.mark.full(reason="it takes a minute")
async def test_more_steps_at_once_than_a_server_has_room_for_by_default() -> None:
    await _many(fresh_temporal_url(), 2500)


async def test_a_closed_run_answers_and_an_unknown_question_harms_nobody() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Talk(timeout=None), name="talk")
        handler = await runtime.start("talk", {"words": 1}, run_id="a")
        with pytest.raises(WorkflowQueryFailedError, match="no_such_query"):
            await runtime.client.get_workflow_handle("a").query("no_such_query")
        await runtime.send_event("a", Word(n=7))
        assert await handler == [7]
        ticks = [entry async for entry in runtime.history("a")]
        assert len(ticks) == (await runtime.state_at("a")).ticks
        assert any([isinstance(event, WorkflowIdleEvent) async for event in _all(handler)])


def _all(handler: Any) -> Any:
    return handler.stream_events(expose_internal=True, after=-1)


async def test_an_unknown_type_waits_for_a_worker_that_knows_it() -> None:
    url = fresh_temporal_url()
    async with loom.connect(url) as client:
        await client.start("talk", {"words": 1}, run_id="a")
        async with loom.connect(url) as other:
            other.register(Counting(timeout=None), name="counting")
            await other.start("counting", {"words": 0}, run_id="b")
            described = await client.client.get_workflow_handle("a").describe()
            assert described.close_time is None
        async with loom.connect(url) as runtime:
            runtime.register(Talk(timeout=None), name="talk")
            await runtime.send_event("a", Word(n=1))
            async with asyncio.timeout(60):
                assert await (await runtime.handler("a")) == [1]


async def test_a_body_that_blocks_the_event_loop_is_not_taken_for_dead(caplog: pytest.LogCaptureFixture) -> None:
    Blocking.begun = 0
    async with loom.connect(fresh_temporal_url(), heartbeat_timeout=2.0) as runtime:
        runtime.register(Blocking(timeout=None), name="blocking")
        async with asyncio.timeout(60):
            assert await (await runtime.start("blocking", {"seconds": 4.5})) == "done"
    assert Blocking.begun == 1
    assert "The event loop of this worker is blocked." in caplog.text


async def test_an_event_loop_that_is_blocked_for_ever_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.temporal.activity.heartbeats._PATIENCE_S", 0.0)
    Blocking.begun = 0
    async with loom.connect(fresh_temporal_url(), heartbeat_timeout=0.4, retry_interval=0.1) as runtime:
        runtime.register(Blocking(timeout=None), name="blocking")
        async with asyncio.timeout(60):
            assert await (await runtime.start("blocking", {"seconds": 3.0})) == "done"
    assert Blocking.begun > 1


class Parent(Workflow):
    """Says how its child ended."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            return StopEvent(result=await ctx.run_child("talk", words=1))
        except Exception as error:  # noqa: BLE001 - whatever it is, its words are the result
            return StopEvent(result=str(error))


async def begin_child(runtime: TemporalRuntime) -> str:
    """Start a parent, and wait until it has gone on in a new execution and its child waits; the child's run id."""
    await runtime.start("parent", run_id="a")
    handle = runtime.client.get_workflow_handle("a")
    while True:
        await asyncio.sleep(0.05)
        description = (await handle.describe()).raw_description.workflow_execution_info
        children = list((await runtime.state_at("a")).children.values())
        if description.execution.run_id == description.first_run_id or not children:
            continue
        if (await runtime.get(children[0].run_id)).active_waiters:
            return children[0].run_id


@pytest.mark.parametrize("how", ["terminated", "ends"])
async def test_a_parent_in_a_new_execution_hears_how_its_child_ended(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.temporal.worker_jobs._PAUSE_S", 0.2)
    use_policies(monkeypatch, replace(POLICIES[-1], drain_events=12))
    async with loom.connect(fresh_temporal_url()) as runtime, asyncio.timeout(60):
        assert isinstance(runtime, TemporalRuntime)
        runtime.register(Parent(timeout=None), name="parent")
        runtime.register(Talk(timeout=None), name="talk")
        child = await begin_child(runtime)
        handler = await runtime.handler("a")
        if how == "ends":
            await runtime.send_event(child, Word(n=7))
            assert await handler == [7]
            return
        await runtime.client.get_workflow_handle(child).terminate(reason="by hand")
        assert (
            await handler == f"The child run {child!r} was ended from outside: It was terminated on Temporal: by hand"
        )
        for each in ("a", child):
            assert await runtime.store.history_problems(each) == []
