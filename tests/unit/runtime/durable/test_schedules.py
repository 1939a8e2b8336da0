"""Schedules over weeks and years, under a virtual clock."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.errors import WorkflowRuntimeError
from loom.store import codec
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.records import RunQuery, RunRow
from loom.testing import run_virtual

DAY = 86_400


class Note(Workflow):
    @step
    async def write(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.get("text"))


class Wants(StartEvent):
    number: int


class Strict(Workflow):
    @step
    async def write(self, ev: Wants) -> StopEvent:
        return StopEvent(result=ev.number)


def virtually(main: Coroutine[Any, Any, None], start: str = "2026-01-01T00:00") -> None:
    run_virtual(main, start=datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp())


def open_runtime(database: MemoryDatabase | None = None, **workflows: Workflow) -> DurableRuntime:
    """A worker that looks at the store once an hour: looking takes time even where the clock is virtual."""
    runtime = loom.connect(MemoryStore(database or MemoryDatabase()), poll_interval=3600, lease=3 * 3600)
    for name, workflow in (workflows or {"note": Note()}).items():
        runtime.register(workflow, name=name)
    return runtime


async def started(runtime: DurableRuntime, name: str) -> list[str]:
    """When the runs of a schedule were due, oldest first."""
    infos = [info async for info in runtime.list(tags={"loom.schedule": name})]
    return [info.run_id.removeprefix(f"{name}:") for info in infos][::-1]


def test_cron_follows_the_clock_of_its_zone() -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            await runtime.schedule("early", "note", cron="30 2 * * *", time_zone="Europe/Berlin")
            await asyncio.sleep(4 * DAY)
            # Berlin's clock skips 2:30 on the 29th; from then on 2:30 is 0:30 UTC.
            expected = ["20260328T013000Z", "20260329T013000Z", "20260330T003000Z", "20260331T003000Z"]
            assert await started(runtime, "early") == expected

    virtually(main(), "2026-03-27T12:00")


def test_a_recurrence_follows_the_clock_of_its_zone() -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            when = {"frequency": "Day", "schedule": {"hours": [2], "minutes": [30]}, "timeZone": "Europe/Berlin"}
            await runtime.schedule("early", "note", recurrence=when)
            await asyncio.sleep(3 * DAY)
            # Its clock shows 2:30 twice on the 25th, and the first counts.
            assert await started(runtime, "early") == ["20261024T003000Z", "20261025T003000Z", "20261026T013000Z"]

    virtually(main(), "2026-10-23T12:00")


def test_a_schedule_ends_with_its_last_occurrence_and_stays_over() -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            when = {"frequency": "Day", "startTime": "2026-01-02T06:00:00Z", "endTime": "2026-01-03T12:00:00Z"}
            await runtime.schedule("twice", "note", recurrence=when)
            await asyncio.sleep(5 * DAY)
            assert await started(runtime, "twice") == ["20260102T060000Z", "20260103T060000Z"]
            assert (await runtime.get("schedule:twice")).status == "completed"
            assert await runtime.schedules() == []
            again = await runtime.schedule("twice", "note", recurrence=when)
            assert (again.run_id, again.next_at, again.last_run_id) == (
                "schedule:twice",
                None,
                "twice:20260103T060000Z",
            )
            assert (await runtime.schedule("twice", "note", every=60)).run_id == "schedule:twice:2"

    virtually(main())


@pytest.mark.parametrize(("number", "idle_timeout"), [(1000, None), (300, 0)], ids=["in memory", "released"])
def test_nothing_gathers_in_a_schedule_that_goes_on(number: int, idle_timeout: float | None) -> None:
    async def main() -> None:
        runtime = loom.connect("memory://", poll_interval=3600, lease=3 * 3600, idle_timeout=idle_timeout)
        async with runtime:
            runtime.register(Note(), name="note")
            await runtime.schedule("often", "note", every=600, input={"text": "x"})
            sizes = []
            for _ in range(2):
                await asyncio.sleep(number / 2 * 600 + 1)
                sizes.append(len(codec.encode_state(await runtime.state_at("schedule:often"))))
            assert len(await started(runtime, "often")) == number
            exported = await runtime.store.export("schedule:often")
            assert exported is not None
            assert exported.row.head.ticks > 4 * number
            assert abs(sizes[1] - sizes[0]) < 16
            assert sizes[1] < 3_000
            # What a snapshot covers is deleted with the next one.
            assert sum(chunk.ticks for chunk in exported.chunks) < 1_600
            assert sum(len(chunk.data) for chunk in exported.chunks) < 500_000

    virtually(main())


def test_a_start_is_repeated_until_the_store_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            failures = 3
            whole = runtime.start

            async def failing(*args: Any, **kwargs: Any) -> Any:
                nonlocal failures
                failures -= 1
                if failures >= 0:
                    raise StoreUnavailable("The database is starting up.")
                return await whole(*args, **kwargs)

            async def gone(run_id: str) -> Any:
                monkeypatch.setattr(runtime, "row", row)
                raise StoreUnavailable(f"The database has no time for {run_id}.")

            row = runtime.row
            await runtime.ready()
            monkeypatch.setattr(runtime, "start", failing)
            monkeypatch.setattr(runtime, "row", gone)
            await runtime.schedule("daily", "note", every=DAY)
            await asyncio.sleep(2.5 * DAY)
            assert await started(runtime, "daily") == ["20260102T000000Z", "20260103T000000Z"]
            assert (await runtime.get("schedule:daily")).status == "running"

    virtually(main())


def test_what_a_run_cannot_begin_with_is_refused_where_the_code_is_at_hand(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        database = MemoryDatabase()
        async with open_runtime(database, strict=Strict()) as runtime:
            with pytest.raises(WorkflowRuntimeError, match="number"):
                await runtime.schedule("daily", "strict", every=DAY, input={"number": "x"})
            with pytest.raises(TypeError, match="is no flow"):
                await runtime.schedule("daily", "strict", every=DAY, input={"number": 1}, parameters={"a": 1})
            with pytest.raises(ValueError, match=r"input\.number is a object"):
                await runtime.schedule("daily", "strict", every=DAY, input={"number": object()})
            assert await runtime.schedules() == []
        async with loom.connect(MemoryStore(database)) as client:
            await client.schedule("daily", "strict", every=DAY, input={"number": "x"})
        async with open_runtime(database, strict=Strict()) as runtime:
            await asyncio.sleep(1.5 * DAY)
            [seen] = await runtime.schedules()
            assert "number" in (seen.last_error or "")
            assert seen.next_at == datetime(2026, 1, 3, tzinfo=UTC)
            assert await started(runtime, "daily") == []

    virtually(main())
    assert "The schedule daily could not start run daily:20260102T000000Z" in caplog.text


@pytest.mark.parametrize("name", ["", "a:1", "x" * 490, "null\0"])
def test_names_that_runs_could_not_have_are_refused(name: str) -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            with pytest.raises(ValueError, match="schedule"):
                await runtime.schedule(name, "note", every=DAY)

    virtually(main())


def test_a_run_that_has_the_id_of_a_schedule_is_left_alone() -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            await runtime.start("note", run_id="schedule:daily")
            with pytest.raises(ValueError, match="'schedule:daily' belongs to another run"):
                await runtime.schedule("daily", "note", every=DAY)
            assert (await runtime.get("schedule:daily")).workflow == "note"

    virtually(main())


def test_a_flow_may_begin_with_any_body_parameters_and_variables() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        document = {
            "parameters": {"p": {"type": "string"}},
            "actions": {
                "a": {"type": "compose", "inputs": "@concat(triggerBody()[0], parameters('p'), variables('v'))"}
            },
        }
        async with loom.connect(MemoryStore(database)) as client:
            await client.schedule("daily", "flow", every=DAY, input=["b"], parameters={"p": "p"}, variables={"v": "v"})
            await client.schedule("bare", "flow", every=DAY, input=["b"])
        async with open_runtime(database, flow=loom.load(document)) as runtime:
            await asyncio.sleep(1.5 * DAY)
            ended = await (await runtime.handler("daily:20260102T000000Z"))
            assert ended.actions["a"].outputs == "bpv"
            assert (await runtime.get_schedule("daily")).parameters == {"p": "p"}
            assert await started(runtime, "bare") == ["20260102T000000Z"]

    virtually(main())


def of_triggers(triggers: dict[str, Any], **parts: Any) -> loom.Flow:
    return loom.load({"triggers": triggers, "actions": {"a": {"type": "Compose", "inputs": "@trigger()"}}, **parts})


def test_triggers_may_be_cron_have_parameters_and_be_several() -> None:
    async def main() -> None:
        flow = of_triggers(
            {
                "ask": {"type": "Request"},
                "nine": {"type": "schedule", "cron": "0 9 * * *", "timeZone": "Europe/Berlin"},
                "often": {"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": "@parameters('n')"}},
            },
            parameters={"n": {"type": "int", "defaultValue": 8}},
        )
        async with open_runtime(flow=flow) as runtime:
            await asyncio.sleep(DAY + 1)
            assert {each.name: each.recurrence for each in await runtime.schedules()} == {
                "flow": {"cron": "0 9 * * *", "timeZone": "Europe/Berlin"},
                "flow.often": {"frequency": "Hour", "interval": 8},
            }
            assert await started(runtime, "flow") == ["20260101T080000Z"]
            assert len(await started(runtime, "flow.often")) == 3
            ended = await (await runtime.handler("flow:20260101T080000Z"))
            trigger = ended.actions["a"].outputs
            assert trigger["name"] == "nine"
            assert trigger["outputs"]["scheduledTime"] == "2026-01-01T08:00:00.000000Z"

    virtually(main())


def test_the_conditions_of_a_trigger_must_hold() -> None:
    async def main() -> None:
        when = {"frequency": "Day", "startTime": "2026-01-01T06:00:00Z"}
        monday = {"expression": "@equals(dayOfWeek(utcNow()), parameters('day'))"}
        flow = of_triggers(
            {"daily": {"type": "Recurrence", "recurrence": when, "conditions": [monday]}},
            parameters={"day": {"type": "int", "defaultValue": 1}},
        )
        async with open_runtime(flow=flow) as runtime:
            await asyncio.sleep(14 * DAY)
            assert await started(runtime, "flow") == ["20260105T060000Z", "20260112T060000Z"]
            [seen] = await runtime.schedules()
            assert seen.last_error is None

    virtually(main())


def test_conditions_that_are_no_answer_start_nothing_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        odd = {"expression": "@utcNow()"}
        when = {"frequency": "Day"}
        flow = of_triggers({"daily": {"type": "Recurrence", "recurrence": when, "conditions": [odd]}})
        async with open_runtime(flow=flow) as runtime:
            await asyncio.sleep(1.5 * DAY)
            [seen] = await runtime.schedules()
            assert "not true or false" in (seen.last_error or "")
            assert await started(runtime, "flow") == []

    virtually(main())
    assert "could not start" in caplog.text


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ({"type": "Recurrence", "recurrence": {"frequency": "[parameters('f')]"}}, "frequency must be"),
        ({"type": "Recurrence", "recurrence": {"frequency": "@parameters('f')"}}, "cannot be evaluated"),
        ({"type": "Recurrence"}, "frequency must be"),
        ({"type": "schedule", "cron": "every day"}, "five fields"),
    ],
)
def test_a_flow_whose_recurrence_cannot_be_kept_is_worked_for_all_the_same(
    trigger: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_runtime(flow=of_triggers({"odd": trigger})) as runtime:
            assert await runtime.schedules() == []
            assert (await (await runtime.start("flow"))).status == "Succeeded"

    with caplog.at_level(logging.WARNING):
        virtually(main())
    assert "The trigger odd of the flow flow starts no runs" in caplog.text
    assert problem in caplog.text


def test_triggers_are_left_alone_if_they_shall_be() -> None:
    async def main() -> None:
        triggers = {"daily": {"type": "Recurrence", "recurrence": {"frequency": "Day"}}}
        async with loom.connect("memory://", schedules=False) as runtime:
            runtime.register(of_triggers(triggers), name="flow")
            assert await runtime.schedules() == []
        async with loom.connect("memory://") as runtime:
            runtime.register(of_triggers(triggers), name="flow", schedules=False)
            assert await runtime.schedules() == []
        async with loom.connect("memory://") as runtime:
            by_hand = loom.load({"triggers": triggers, "actions": {}}, name="by_hand", runtime=runtime)
            assert (await by_hand.run()).status == "Succeeded"
            assert await runtime.schedules() == []

    virtually(main())


def test_a_fork_of_a_schedule_is_no_schedule() -> None:
    async def main() -> None:
        async with open_runtime() as runtime:
            await runtime.schedule("daily", "note", every=DAY)
            await asyncio.sleep(1)
            await runtime.fork("schedule:daily", tick=2, run_id="copy")
            assert [each.run_id for each in await runtime.schedules()] == ["schedule:daily"]
            await asyncio.sleep(1.5 * DAY)
            assert await started(runtime, "daily") == ["20260102T000000Z"]

    virtually(main())


# -- flows that are deleted, where lists follow late ------------------------------------------------------------------


def daily(*triggers: str) -> loom.Flow:
    """A flow with these triggers, each once a day."""
    when = {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}
    actions = {"Answer": {"type": "Compose", "inputs": len(triggers)}}
    return loom.load({"triggers": dict.fromkeys(triggers, when), "actions": actions}, name="flow")


class LateLists(MemoryStore):
    """A store that lists no schedule, like one whose lists follow late: another process has made it just now."""

    is_late = True

    async def find(self, query: RunQuery) -> list[RunRow]:
        return [] if self.is_late and query.workflow == "loom.schedule" else await super().find(query)


@pytest.fixture
def late() -> LateLists:
    return LateLists(MemoryDatabase())


async def statuses(runtime: DurableRuntime, *names: str) -> list[str]:
    return [(await runtime.get(f"schedule:{name}")).status for name in names]


@pytest.mark.parametrize("instead", [None, daily()], ids=["deleted", "replaced"])
def test_the_schedule_of_a_flow_ends_though_no_list_has_it_yet(late: LateLists, instead: loom.Flow | None) -> None:
    async def main() -> None:
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600, definitions=True) as runtime:
            await runtime.definitions.put("flow", daily("first"))
            await asyncio.sleep(1)
            assert await statuses(runtime, "flow") == ["running"]
            if instead is None:
                await runtime.definitions.delete("flow")
            else:
                await runtime.definitions.put("flow", instead)
            await asyncio.sleep(1)
            assert await statuses(runtime, "flow") == ["cancelled"]

    virtually(main())


def test_all_schedules_of_a_deleted_flow_end_though_no_list_has_them_yet(late: LateLists) -> None:
    async def main() -> None:
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600, definitions=True) as runtime:
            await runtime.definitions.put("flow", daily("first", "second"))
            await asyncio.sleep(1)
            assert await statuses(runtime, "flow", "flow.second") == ["running", "running"]
            await runtime.definitions.delete("flow")
            await asyncio.sleep(1)
            assert await statuses(runtime, "flow", "flow.second") == ["cancelled", "cancelled"]

    virtually(main())


def test_a_schedule_by_hand_that_has_the_name_of_a_flow_is_left_alone(late: LateLists) -> None:
    async def main() -> None:
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600, definitions=True) as runtime:
            await runtime.schedule("flow", "note", cron="0 0 * * *")
            await runtime.definitions.put("flow", daily())
            await runtime.definitions.delete("flow")
            await asyncio.sleep(1)
            assert await statuses(runtime, "flow") == ["running"]

    virtually(main())


def test_a_schedule_that_was_left_behind_ends_before_it_starts_anything(late: LateLists) -> None:
    """The process that deleted the flow could not see to its schedule. The schedule ends itself, and can come back."""

    async def main() -> None:
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600) as runtime:
            runtime.register(daily("first"), name="flow")
            await asyncio.sleep(1)
            await runtime.definitions.stored.delete("flow")
            await asyncio.sleep(2 * DAY)
            assert await statuses(runtime, "flow") == ["cancelled"]
            late.is_late = False
            assert await started(runtime, "flow") == []
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600) as runtime:
            runtime.register(daily("first"), name="flow")
            await asyncio.sleep(2.5 * DAY)
            assert len(await started(runtime, "flow")) == 2

    virtually(main())


def test_a_schedule_whose_trigger_the_flow_has_no_more_ends_before_it_starts_anything(late: LateLists) -> None:
    async def main() -> None:
        async with loom.connect(late, poll_interval=3600, lease=3 * 3600, definitions=True) as runtime:
            await runtime.definitions.put("flow", daily("first", "second"))
            await asyncio.sleep(1)
            await runtime.definitions.put("flow", daily("first"))
            await asyncio.sleep(2 * DAY)
            assert await statuses(runtime, "flow", "flow.second") == ["running", "cancelled"]
            late.is_late = False
            assert await started(runtime, "flow.second") == []
            assert len(await started(runtime, "flow")) == 2

    virtually(main())


@pytest.mark.parametrize("recurs", [{"frequency": "Day", "interval": 1}])
def test_the_own_schedule_of_a_disabled_flow_starts_nothing_and_makes_nothing_up(recurs: dict[str, Any]) -> None:
    document = {
        "triggers": {"daily": {"type": "Recurrence", "recurrence": recurs}},
        "actions": {"Note": {"type": "Compose", "inputs": 1}},
    }

    async def main() -> None:
        database = MemoryDatabase()
        async with open_runtime(database, flow=loom.load({"definition": document})) as runtime:
            await runtime.schedule("mine", "flow", every=DAY)
            await asyncio.sleep(1.5 * DAY)
            before = await started(runtime, "flow")
            await runtime.disable_flow("flow")
            await asyncio.sleep(3 * DAY)
            assert await started(runtime, "flow") == before
            info = await runtime.get_schedule("flow")
            assert (info.paused, info.last_error) == (False, None)
            assert info.next_at is not None
            assert info.next_at.timestamp() > runtime.now()
        # It stays so after a restart; an operator's own schedule is no trigger of the flow.
        async with open_runtime(database, flow=loom.load({"definition": document})) as runtime:
            await asyncio.sleep(DAY)
            assert await started(runtime, "flow") == before
            assert len(await started(runtime, "mine")) > 3
            await runtime.enable_flow("flow")
            await asyncio.sleep(1.2 * DAY)
            assert len(await started(runtime, "flow")) == len(before) + 1

    virtually(main())


def windows(delay: str | None = None) -> loom.Flow:
    trigger = {
        "type": "SlidingWindow",
        "recurrence": {"frequency": "Hour", "interval": 6},
        **({"inputs": {"delay": delay}} if delay is not None else {}),
    }
    outputs = "@{triggerOutputs()['windowStartTime']} to @{triggerOutputs()['windowEndTime']}"
    actions = {"Say": {"type": "Compose", "inputs": outputs, "runAfter": {}}}
    return loom.load({"triggers": {"window": trigger}, "actions": actions}, name="windows")


async def said(runtime: DurableRuntime) -> list[str]:
    """The windows of the runs, oldest first, without the parts of a second."""
    found = []
    async for info in runtime.list(workflow="windows"):
        text = (await (await runtime.handler(info.run_id))).actions["Say"].outputs
        found.append(text.replace(".000000Z", ""))
    return found[::-1]


def test_windows_follow_each_other_without_a_gap_also_over_a_night_without_a_worker() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        async with open_runtime(database, windows=windows()) as runtime:
            await asyncio.sleep(7 * 3600)
            assert await said(runtime) == ["2026-01-01T00:00:00 to 2026-01-01T06:00:00"]
        await asyncio.sleep(DAY)
        async with open_runtime(database, windows=windows()) as runtime:
            await asyncio.sleep(60)
            edges = ["01T06", "01T12", "01T18", "02T00", "02T06"]
            assert (await said(runtime))[1:] == [
                f"2026-01-{begin}:00:00 to 2026-01-{end}:00:00" for begin, end in itertools.pairwise(edges)
            ]

    virtually(main())


def test_a_window_waits_for_what_comes_late() -> None:
    async def main() -> None:
        async with open_runtime(windows=windows("PT30M")) as runtime:
            await asyncio.sleep(6.4 * 3600)
            assert await said(runtime) == []
            await asyncio.sleep(0.2 * 3600)
            assert await said(runtime) == ["2026-01-01T00:00:00 to 2026-01-01T06:00:00"]
            assert (await runtime.trigger_history("windows")).firings[0].runs == 1

    virtually(main())


def test_a_delay_that_is_none_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_runtime(windows=windows("soon")) as runtime:
            await asyncio.sleep(60)
            assert await runtime.schedules() == []

    virtually(main())
    assert "its delay 'soon' is no duration such as PT15M." in caplog.text
