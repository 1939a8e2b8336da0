"""Schedules start each run once and in time, through crashes, long nights and changes of mind."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_info, until_released, until_status

import loom
from loom import RunInfo, StartEvent, StopEvent, step
from loom.runtime.durable.names import SCHEDULES
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.schedules import ScheduleNotFound
from loom.runtime.durable.schedules_run import ScheduleStart, ScheduleWorkflow

HOUR, DAY = 3600, 86_400
QUICK: dict[str, Any] = {"poll_interval": 0.05}
"""A process that sees at once when the test lets time pass."""


class Report(Watched):
    @step
    async def write(self, ev: StartEvent) -> StopEvent:
        await self.witness.at(f"report {ev.get('about')}")
        return StopEvent(result=ev.get("about"))


async def started(runtime: DurableRuntime, workflow: str = "report") -> list[RunInfo]:
    """The runs of a workflow, oldest first."""
    return [info async for info in runtime.list(workflow=workflow)][::-1]


async def until_started(runtime: DurableRuntime, number: int, workflow: str = "report") -> list[RunInfo]:
    """Wait until so many runs of a workflow were started, and no more than that."""

    async def enough() -> list[RunInfo] | None:
        runs = await started(runtime, workflow)
        return runs if len(runs) >= number else None

    runs = await until(enough, f"{number} runs of {workflow}")
    assert runs is not None
    assert len(runs) == number
    return runs


async def until_asleep(runtime: DurableRuntime, name: str) -> RunInfo:
    """Wait until a schedule has nothing to do before its next occurrence, and nothing in its mail."""
    run_id = (await runtime.get_schedule(name)).run_id

    async def rests() -> RunInfo | None:
        info = await runtime.get(run_id)
        state = await runtime.state_at(run_id)
        return info if state.timers and state.asleep and not await runtime.store.inbox(run_id, 0) else None

    info = await until(rests, f"the schedule {name} to sleep")
    assert info is not None
    return info


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_runs_are_started_in_time(deployment: Deployment, witness: Witness, idle_timeout: float | None) -> None:
    runtime = await deployment.open({"report": Report(witness)}, idle_timeout=idle_timeout, **QUICK)
    made = await runtime.schedule("hourly", "report", every=HOUR, input={"about": "tea"}, tags={"kind": "daily"})
    assert (made.name, made.workflow, made.run_id) == ("hourly", "report", "schedule:hourly")
    assert made.last_run_id is None
    for number in (1, 2):
        assert made.next_at is not None
        due = made.next_at + timedelta(hours=number - 1)
        await until_asleep(runtime, "hourly")
        assert len(await started(runtime)) == number - 1
        await deployment.pass_time(HOUR)
        run = (await until_started(runtime, number))[-1]
        assert run.run_id == f"hourly:{due:%Y%m%dT%H%M%SZ}"
        assert run.tags == {"kind": "daily", "loom.schedule": "hourly"}
        assert run.created_at >= due
        assert await result(await runtime.handler(run.run_id)) == "tea"
        await until_asleep(runtime, "hourly")
        [seen] = await runtime.schedules()
        assert (seen.last_at, seen.last_run_id) == (due, run.run_id)
        assert seen.next_at == due + timedelta(hours=1)


async def test_a_schedule_that_waits_leaves_memory(deployment: Deployment) -> None:
    runtime = await deployment.open({"report": Report()}, idle_timeout=0)
    await runtime.schedule("daily", "report", cron="0 9 * * *", time_zone="Europe/Berlin")
    await until_asleep(runtime, "daily")
    await until_released(runtime, "schedule:daily")


async def test_of_what_was_missed_in_a_long_night_the_last_is_started(deployment: Deployment) -> None:
    first = await deployment.open({"report": Report()})
    made = await first.schedule("hourly", "report", every=HOUR)
    await until_asleep(first, "hourly")
    await deployment.close(first)
    await deployment.pass_time(3 * DAY + 60)
    second = await deployment.open({"report": Report()})
    [run] = await until_started(second, 1)
    await until_asleep(second, "hourly")
    [seen] = await second.schedules()
    assert made.next_at is not None
    assert seen.last_run_id == run.run_id
    assert seen.last_at == made.next_at + timedelta(hours=71)
    assert seen.next_at == made.next_at + timedelta(hours=72)
    assert len(await started(second)) == 1


async def test_all_that_was_missed_is_started_if_it_shall_be(deployment: Deployment) -> None:
    first = await deployment.open({"report": Report()})
    made = await first.schedule("hourly", "report", every=HOUR, catch_up=True)
    await until_asleep(first, "hourly")
    await deployment.crash(first)
    await deployment.pass_time(4 * HOUR + 60)
    second = await deployment.open({"report": Report()})
    runs = await until_started(second, 4)
    await until_asleep(second, "hourly")
    assert made.next_at is not None
    dues = [made.next_at + timedelta(hours=number) for number in range(4)]
    assert [run.run_id for run in runs] == [f"hourly:{due:%Y%m%dT%H%M%SZ}" for due in dues]


async def test_a_crash_right_after_a_start_starts_nothing_twice(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ScheduleWorkflow._started

    async def held(self: ScheduleWorkflow, schedule: ScheduleStart, at: float) -> tuple[str | None, str | None]:
        answer = await whole(self, schedule, at)
        witness.saw("started")
        await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(ScheduleWorkflow, "_started", held)
    first = await deployment.open({"report": Report(witness)}, **QUICK)
    await first.schedule("hourly", "report", every=HOUR, input={"about": 1})
    await until_asleep(first, "hourly")
    await deployment.pass_time(HOUR)
    await witness.came("started")
    await deployment.crash(first)
    monkeypatch.setattr(ScheduleWorkflow, "_started", whole)
    second = await deployment.open({"report": Report(witness)}, **QUICK)
    [run] = await started(second)
    await until_status(second, run.run_id, "completed")
    await until_asleep(second, "hourly")
    assert [each.run_id for each in await started(second)] == [run.run_id]
    assert (await second.get_schedule("hourly")).last_run_id == run.run_id
    await deployment.pass_time(HOUR)
    await until_started(second, 2)


async def test_a_client_makes_schedules_and_any_worker_starts_their_runs(deployment: Deployment) -> None:
    client = await deployment.open()
    made = await client.schedule("hourly", "report", every=HOUR, input={"about": "all"})
    assert made.next_at is not None
    assert [each.name for each in await client.schedules()] == ["hourly"]
    worker = await deployment.open({"other": Report()}, **QUICK)
    await until_asleep(worker, "hourly")
    await deployment.pass_time(HOUR)
    [run] = await until_started(worker, 1)
    assert run.run_id == f"hourly:{made.next_at:%Y%m%dT%H%M%SZ}"
    assert run.status == "running"
    await deployment.close(worker)
    worker = await deployment.open({"report": Report()}, **QUICK)
    assert await result(await worker.handler(run.run_id)) == "all"


async def test_the_same_again_changes_nothing_and_another_one_replaces_it(deployment: Deployment) -> None:
    runtime = await deployment.open({"report": Report()}, **QUICK)
    made = await runtime.schedule("nightly", "report", cron="0 2 * * *")
    await until_asleep(runtime, "nightly")
    assert await runtime.schedule("nightly", "report", cron="0 2 * * *") == made
    other = await runtime.schedule("nightly", "report", every=HOUR, input={"about": "new"})
    assert other.run_id == "schedule:nightly:2"
    await until_status(runtime, "schedule:nightly", "cancelled")
    assert [each.run_id for each in await runtime.schedules()] == ["schedule:nightly:2"]
    await until_asleep(runtime, "nightly")
    await deployment.pass_time(HOUR)
    [run] = await until_started(runtime, 1)
    assert await result(await runtime.handler(run.run_id)) == "new"


async def test_an_older_one_whose_cancellation_was_lost_ends_itself(deployment: Deployment) -> None:
    runtime = await deployment.open({"report": Report()}, **QUICK)
    await runtime.schedule("nightly", "report", every=HOUR)
    await until_asleep(runtime, "nightly")
    newer = ScheduleStart(name="nightly", workflow="report", timing={"frequency": "Day"})
    # And the process dies before it can cancel the older one.
    assert await runtime.schedule_client._made._is_stored("nightly", SCHEDULES, 2, newer.fields(2), {})
    await deployment.pass_time(HOUR)
    await until_status(runtime, "schedule:nightly", "completed")
    assert await started(runtime) == []
    assert [each.run_id for each in await runtime.schedules()] == ["schedule:nightly:2"]


async def test_what_is_unscheduled_starts_nothing_and_can_be_scheduled_again(deployment: Deployment) -> None:
    client = await deployment.open()
    await client.schedule("hourly", "report", every=HOUR)
    await client.unschedule("hourly")  # nobody is there to do it
    assert await client.schedules() == []
    with pytest.raises(ScheduleNotFound, match="There is no schedule 'hourly'"):
        await client.unschedule("hourly")
    with pytest.raises(ScheduleNotFound):
        await client.get_schedule("hourly")
    again = await client.schedule("hourly", "report", every=HOUR)
    assert again.run_id == "schedule:hourly:2"
    await deployment.pass_time(HOUR)
    worker = await deployment.open({"report": Report()}, **QUICK)
    await until_status(worker, "schedule:hourly", "cancelled")
    await until_started(worker, 1)
    await worker.unschedule("hourly")
    await until_status(worker, "schedule:hourly:2", "cancelled")
    assert len(await started(worker)) == 1


async def test_a_paused_schedule_starts_nothing_until_it_is_resumed(deployment: Deployment) -> None:
    runtime = await deployment.open({"report": Report()}, **QUICK)
    made = await runtime.schedule("hourly", "report", every=HOUR)
    await until_asleep(runtime, "hourly")
    await runtime.pause(made.run_id)
    await until_info(runtime, made.run_id, lambda info: info.paused)
    [seen] = await runtime.schedules()
    assert seen.paused
    await deployment.pass_time(3 * HOUR + 60)
    await until(lambda: _fired(runtime, made.run_id), "the timer to fire")
    assert await started(runtime) == []
    await runtime.resume(made.run_id)
    [run] = await until_started(runtime, 1)
    assert made.next_at is not None
    assert run.run_id == f"hourly:{made.next_at + timedelta(hours=2):%Y%m%dT%H%M%SZ}"
    await until_asleep(runtime, "hourly")
    assert not (await runtime.get_schedule("hourly")).paused


async def test_what_was_asked_of_a_schedule_is_seen_before_somebody_does_it(deployment: Deployment) -> None:
    client = await deployment.open()
    made = await client.schedule("hourly", "report", every=HOUR)
    await client.pause(made.run_id)
    assert (await client.get_schedule("hourly")).paused
    other = await client.schedule("hourly", "report", every=2 * HOUR)
    assert (other.run_id, other.paused) == ("schedule:hourly:2", True)
    await client.resume(other.run_id)
    assert [each.paused for each in await client.schedules()] == [False]
    await client.pause(other.run_id)
    worker = await deployment.open({"report": Report()}, **QUICK)
    await until_info(worker, other.run_id, lambda info: info.paused)
    await until_status(worker, made.run_id, "cancelled")


async def _fired(runtime: DurableRuntime, run_id: str) -> bool:
    return any([type(tick).__name__ == "TickTimerFired" async for _, _, tick in runtime.history(run_id)])


async def test_a_start_that_is_refused_is_told_and_the_next_one_tried(deployment: Deployment) -> None:
    runtime = await deployment.open({"report": Report()}, **QUICK)
    made = await runtime.schedule("hourly", "report", every=HOUR)
    await until_asleep(runtime, "hourly")
    assert made.next_at is not None
    taken = f"hourly:{made.next_at:%Y%m%dT%H%M%SZ}"
    await runtime.start("other", run_id=taken)
    await deployment.pass_time(HOUR)

    async def told() -> str | None:
        return (await runtime.get_schedule("hourly")).last_error

    assert "exists already, as a run of 'other'" in (await until(told) or "")
    await until_asleep(runtime, "hourly")
    await deployment.pass_time(HOUR)
    await until_started(runtime, 1)
    await until_asleep(runtime, "hourly")
    assert (await runtime.get_schedule("hourly")).last_error is None


def flow(hours: int, words: str) -> loom.Flow:
    """A flow that answers with its trigger's name, every so many hours."""
    trigger = {"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": hours}}
    answer = {"type": "Compose", "inputs": f"{words} by @{{trigger()['name']}}"}
    return loom.load({"triggers": {"Often": trigger}, "actions": {"Answer": answer}}, name="greet")


async def test_a_flow_sees_to_its_schedule_itself_and_a_new_version_replaces_it(deployment: Deployment) -> None:
    first = await deployment.open({"greet": flow(1, "hello")}, **QUICK)
    [made] = await first.schedules()
    assert (made.name, made.workflow, made.trigger) == ("greet", "greet", "Often")
    await until_asleep(first, "greet")
    await deployment.pass_time(HOUR)
    [run] = await until_started(first, 1, "greet")
    ended = await result(await first.handler(run.run_id))
    assert ended.actions["Answer"].outputs == "hello by Often"
    await until_asleep(first, "greet")
    await deployment.crash(first)

    same = await deployment.open({"greet": flow(1, "hello")}, **QUICK)
    assert [each.run_id for each in await same.schedules()] == ["schedule:greet"]
    await deployment.close(same)

    second = await deployment.open({"greet": flow(2, "good bye")}, **QUICK)
    [other] = await second.schedules()
    assert (other.run_id, other.recurrence["interval"]) == ("schedule:greet:2", 2)
    await until_asleep(second, "greet")
    await deployment.pass_time(2 * HOUR)
    run = (await until_started(second, 2, "greet"))[-1]
    assert (await result(await second.handler(run.run_id))).actions["Answer"].outputs == "good bye by Often"
    await deployment.close(second)

    by_hand = loom.load({"actions": {"Answer": {"type": "Compose", "inputs": 1}}}, name="greet")
    third = await deployment.open({"greet": by_hand}, **QUICK)
    assert await third.schedules() == []
    await until_status(third, "schedule:greet:2", "cancelled")
