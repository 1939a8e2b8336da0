"""Schedules: what any process can say and ask about them. Each is a run of its own; see `schedules_run`.

Another definition under the same name is another generation: a run `schedule:<name>:<n>`. The newest one counts; older
ones are cancelled, and end themselves if that was lost.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.times import moment
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.durable import history
from loom.runtime.durable.generations import Generation, Generations
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

if TYPE_CHECKING:
    from loom.runtime.durable.run_client import RunClient

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


class ScheduleClient:
    """Makes, finds and ends the schedules of a store."""

    def __init__(self, runs: RunClient) -> None:
        self._runs = runs
        self._made = Generations(runs, SCHEDULE_TAG, schedule_run_id)

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
        await self._made.keep(schedule.name, SCHEDULES, schedule.fields, tags or {})

    async def end(self, name: str) -> bool:
        """End all generations of a schedule. False if there was none, or it was over."""
        found = await self._made.of(name, SCHEDULES)
        await self._made.cancel(found)
        return bool(found) and found[0].is_alive

    async def all(self) -> list[ScheduleInfo]:
        """Return all schedules that start runs, or would if they were not paused, by their names."""
        await self._runs.ready()
        rows = await self._made.rows(SCHEDULES, {})
        newest: dict[str, Generation] = {}
        for row in rows:
            name, number = self._made.identity(row)
            if name not in newest or newest[name].number < number:
                newest[name] = Generation(number, row)
        found = [await self._made.seen(newest[name].number, newest[name].row) for name in sorted(newest)]
        return [await self._described(generation) for generation in found if generation.is_alive]

    async def get(self, name: str) -> ScheduleInfo:
        """Return a schedule as it is now, also if it has come to its end; `ScheduleNotFound` if there is none."""
        await self._runs.ready()
        found = await self._made.of(name, SCHEDULES)
        if not found or not (found[0].is_alive or found[0].row.head.status == "completed"):
            raise ScheduleNotFound(name)
        return await self._described(found[0])

    async def is_replaced(self, name: str, generation: int) -> bool:
        """Whether there is a newer generation of a schedule."""
        return await self._made.is_replaced(name, SCHEDULES, generation)

    # -- runs of schedules --------------------------------------------------------------------------------------------

    async def names_of(self, flow: str) -> list[str]:
        """Return the names of running schedules that a flow's triggers have made."""
        return sorted(
            {self._made.identity(row)[0] for row in await self._made.rows(SCHEDULES, {FLOW_TAG: flow}, running=True)}
        )

    async def is_of(self, flow: str, name: str) -> bool:
        """Whether a schedule of this name is running, and a trigger of the flow has made it. It needs no list."""
        if await self._made.row(name, SCHEDULES, 1) is None:
            return False  # as a rule, and found out at little cost
        found = await self._made.of(name, SCHEDULES)
        return bool(found) and found[0].is_alive and found[0].row.tags.get(FLOW_TAG) == flow

    async def _described(self, generation: Generation) -> ScheduleInfo:
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
