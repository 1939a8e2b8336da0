"""Schedules: what any process can say and ask about them. Each is a run of its own; see `schedules_run`.

Another definition under the same name is another generation: a run `schedule:<name>:<n>`. The newest one counts; older
ones are cancelled, and end themselves if that was lost.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from loom.api.times import moment
from loom.core.ticks import TickCancelRun, TickContinueRun, TickPauseRun
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.durable import history
from loom.runtime.durable.names import SCHEDULES, check_name, check_tags, check_workflow
from loom.runtime.durable.run_starter import start_spec
from loom.runtime.durable.schedules_run import (
    FLOW_TAG,
    SCHEDULE_TAG,
    ScheduleStart,
    next_due,
    pinned,
    schedule_run_id,
    start_of,
)
from loom.store import codec
from loom.store.errors import StoreError
from loom.store.operations import PostMessage, Started, StartRun
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.runtime.durable.run_client import RunClient
    from loom.store.records import RunRow

_PAGE = 200
_ATTEMPTS = 20
_MANY = 10_000_000
"""More generations than a schedule ever has."""
_NUMBERED = re.compile(r":\d+\Z")


class ScheduleNotFound(StoreError):
    """There is no schedule of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no schedule {name!r}.")
        self.name = name


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at one moment."""

    name: str
    workflow: str
    recurrence: dict[str, Any]
    """When it is due: a recurrence, or `{"cron": …, "timeZone": …}`."""
    input: Any = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    tags: dict[str, str] = {}
    catch_up: bool = False
    trigger: str | None = None
    """The trigger of a flow that it was made for."""
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_run_id: str | None = None
    last_error: str | None = None
    """Why the last occurrence started no run."""
    paused: bool = False
    run_id: str
    """The run that it is: pause, resume and look at it like any other."""


class _Generation(NamedTuple):
    number: int
    row: RunRow
    is_alive: bool = False
    """It runs, and nobody has cancelled it."""
    is_paused: bool = False


class ScheduleClient:
    """Makes, finds and ends the schedules of a store."""

    def __init__(self, runs: RunClient) -> None:
        self._runs = runs

    async def put(self, schedule: ScheduleStart) -> ScheduleInfo:
        """Store a schedule in place of any other one of its name: see `WorkerRuntime.schedule`."""
        await self._runs.ready()
        await self.keep(schedule)
        return await self.get(schedule.name)

    async def keep(self, schedule: ScheduleStart, tags: dict[str, str] | None = None) -> None:
        """Make sure that a schedule is there, and in no other form than this."""
        check_schedule(schedule.name, schedule.workflow, schedule.tags)
        if (code := self._runs.codes.get(schedule.workflow)) is not None:
            # What its runs cannot begin with is refused here and now.
            start_spec(code, self._runs.codec_for(schedule.workflow), start_of(code, schedule, self._runs.now()))
        for _ in range(_ATTEMPTS):
            found = await self._generations(schedule.name)
            number = found[0].number if found else 1
            # One that has come to its end is kept as it is: it has no occurrence any more.
            stays = not found or found[0].is_alive or found[0].row.head.status == "completed"
            if stays and await self._is_stored(schedule, number, tags):
                break
            if found and await self._is_stored(schedule, number + 1, tags):
                if found[0].is_alive and found[0].is_paused:
                    await self._ask(schedule_run_id(schedule.name, number + 1), TickPauseRun(at=self._runs.now()))
                break
            # Another process was quicker: what it has stored is replaced.
        else:
            taken = schedule_run_id(schedule.name, 1)
            raise ValueError(f"The run_id {taken!r} belongs to another run: give the schedule another name.")
        await self._cancel(await self._generations(schedule.name), keep_newest=True)

    async def _is_stored(self, schedule: ScheduleStart, generation: int, tags: dict[str, str] | None) -> bool:
        """Store one generation of a schedule. False if this generation is another one."""
        fields = schedule.model_copy(update={"generation": generation}).model_dump(mode="json")
        start = codec.encode_start(codec.StartSpec(inputs=AnyEventCodec().value(fields)))
        operation = StartRun(
            schedule_run_id(schedule.name, generation),
            SCHEDULES,
            start,
            self._runs.now(),
            tags={**(tags or {}), SCHEDULE_TAG: schedule.name},
            downtime=await self._runs.downtime(),
        )
        started = await self._runs.committer.submit(self._runs.signed_start(operation))
        assert isinstance(started, Started)
        return started.created or (started.workflow == SCHEDULES and started.start == start)

    async def end(self, name: str) -> bool:
        """End all generations of a schedule. False if there was none, or it was over."""
        found = await self._generations(name)
        await self._cancel(found)
        return bool(found) and found[0].is_alive

    async def all(self) -> list[ScheduleInfo]:
        """Return all schedules that start runs, or would if they were not paused, by their names."""
        await self._runs.ready()
        rows = await self._rows({})
        newest: dict[str, _Generation] = {}
        for row in rows:
            name, number = _identity(row)
            if name not in newest or newest[name].number < number:
                newest[name] = _Generation(number, row)
        found = [await self._seen(newest[name].number, newest[name].row) for name in sorted(newest)]
        return [await self._described(generation) for generation in found if generation.is_alive]

    async def get(self, name: str) -> ScheduleInfo:
        """Return a schedule as it is now, also if it has come to its end; `ScheduleNotFound` if there is none."""
        await self._runs.ready()
        found = await self._generations(name)
        if not found or not (found[0].is_alive or found[0].row.head.status == "completed"):
            raise ScheduleNotFound(name)
        return await self._described(found[0])

    async def is_replaced(self, name: str, generation: int) -> bool:
        """Whether there is a newer generation of a schedule."""
        return await self._generation(name, generation + 1) is not None

    # -- runs of schedules --------------------------------------------------------------------------------------------

    async def names_of(self, flow: str) -> list[str]:
        """Return the names of running schedules that a flow's triggers have made."""
        return sorted({_identity(row)[0] for row in await self._rows({FLOW_TAG: flow}, running=True)})

    async def is_of(self, flow: str, name: str) -> bool:
        """Whether a schedule of this name is running, and a trigger of the flow has made it. It needs no list."""
        if await self._generation(name, 1) is None:
            return False  # as a rule, and found out at little cost
        found = await self._generations(name)
        return bool(found) and found[0].is_alive and found[0].row.tags.get(FLOW_TAG) == flow

    async def _rows(self, tags: dict[str, str], *, running: bool = False) -> list[RunRow]:
        query = RunQuery(workflow=SCHEDULES, tags=tags, status="running" if running else None, limit=_PAGE)
        rows: list[RunRow] = []
        while found := await self._runs.store.find(query):
            rows += [row for row in found if row.run_id == schedule_run_id(*_identity(row))]  # and no forks of them
            query = msgspec.structs.replace(query, after=(found[-1].created_at, found[-1].run_id))
        return rows

    async def _generations(self, name: str) -> list[_Generation]:
        """All generations of a schedule that are stored, newest first."""
        rows = {_identity(row)[1]: row for row in await self._rows({SCHEDULE_TAG: name})}
        # Not every store lists at once what another process has stored just now; by its id it is there.
        number = max(rows, default=0) + 1
        while (row := await self._generation(name, number)) is not None:
            rows[number] = row
            number += 1
        return [await self._seen(number, rows[number]) for number in sorted(rows, reverse=True)]

    async def _generation(self, name: str, number: int) -> RunRow | None:
        row = await self._runs.store.get(schedule_run_id(name, number))
        return row if row is not None and row.workflow == SCHEDULES else None

    async def _seen(self, number: int, row: RunRow) -> _Generation:
        """Return a generation as it is now. What it was asked for counts, whether its run has done it yet or not."""
        if row.head.status != "running":
            return _Generation(number, row)
        # In this order: an owner that takes a cancellation from the inbox ends the run in the same transaction.
        messages = await self._runs.store.inbox(row.run_id, 0)
        latest = await self._runs.store.get(row.run_id) or row
        asked = [codec.decode_tick(item.data, row.run_id) for item in messages]
        is_cancelled = any(isinstance(tick, TickCancelRun) for tick in asked)
        turns = [tick for tick in asked if isinstance(tick, TickPauseRun | TickContinueRun)]
        is_paused = isinstance(turns[-1], TickPauseRun) if turns else latest.head.paused
        return _Generation(number, latest, latest.head.status == "running" and not is_cancelled, is_paused)

    async def _cancel(self, generations: list[_Generation], *, keep_newest: bool = False) -> None:
        for generation in generations[1 if keep_newest else 0 :]:
            if generation.is_alive:
                await self._ask(generation.row.run_id, TickCancelRun(at=self._runs.now()))

    async def _ask(self, run_id: str, tick: TickCancelRun | TickPauseRun) -> None:
        """Ask something of a generation. One that has ended since refuses it, and that is as good."""
        await self._runs.committer.submit(PostMessage(run_id, codec.encode_tick(tick), tick.at))

    async def _described(self, generation: _Generation) -> ScheduleInfo:
        row = generation.row
        stored = await self._runs.store.load(row.run_id)
        assert stored is not None
        inputs = codec.decode_start(row.run_id, stored.start).inputs
        assert inputs is not None
        definition = ScheduleStart(**AnyEventCodec().read_value(inputs))
        state = await history.state_at(self._runs.store, row, AnyEventCodec().field, None)
        kept = dict(
            (await AnyEventCodec().store_from(state.store, state.store_type, state.store_version).get_state()).items()
        )
        timing = pinned(definition.timing, row.created_at)
        next_at = kept["next_at"] if "next_at" in kept else next_due(timing, row.created_at)
        last_at = kept.get("last_at")
        return ScheduleInfo(
            name=definition.name,
            workflow=definition.workflow,
            recurrence=definition.timing,
            input=definition.input,
            parameters=definition.parameters,
            variables=definition.variables,
            tags=definition.tags,
            catch_up=definition.catch_up,
            trigger=definition.trigger or None,
            next_at=moment(next_at) if next_at is not None else None,
            last_at=moment(last_at) if last_at is not None else None,
            last_run_id=kept.get("last_run_id"),
            last_error=kept.get("last_error"),
            paused=generation.is_paused,
            run_id=row.run_id,
        )


def check_schedule(name: str, workflow: str, tags: dict[str, str]) -> None:
    """Raise if a schedule cannot have these names."""
    check_name("The name of a schedule", name)
    check_name("The run_id of a schedule", schedule_run_id(name, _MANY))
    check_workflow(workflow)
    check_tags(tags)
    if _NUMBERED.search(name):
        raise ValueError(f"The name of a schedule must not end with a number like {name!r}: its runs do.")


def _identity(row: RunRow) -> tuple[str, int]:
    """The name and the generation of the schedule that a run is."""
    name = row.tags.get(SCHEDULE_TAG, "")
    rest = row.run_id.removeprefix(schedule_run_id(name, 1)).removeprefix(":")
    return name, int(rest) if rest.isdecimal() else 1
