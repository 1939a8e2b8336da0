"""Schedules: recurring starts. May import the server's frame and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import Response

from loom.flows.calls import FlowStart
from loom.flows.records import MASK
from loom.runtime.durable.names import can_be_kept
from loom.runtime.durable.schedules import ScheduleNotFound
from loom.runtime.flow import Flow
from loom.runtime.masking import Masking
from loom.runtime.plain import iso
from loom.server.answers import JsonAnswer
from loom.server.cursors import read_cursor, write_cursor
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route, check_id, pointer
from loom.server.served import served_code
from loom.server.v1.runs import refused
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from datetime import datetime

    from loom.runtime.durable.schedules import ScheduleInfo
    from loom.server.routing import Call
    from loom.server.shapes import Page
    from loom.server.shapes_definitions import Schedule

_TIMING: dict[str, type | tuple[type, ...]] = {
    "cron": str, "every": (int, float), "recurrence": dict, "time_zone": str,
}  # fmt: skip
_START: dict[str, type | tuple[type, ...]] = {"parameters": dict, "variables": dict, "tags": dict, "catch_up": bool}
_TYPES = {**_TIMING, **_START, "name": str, "workflow": str, "paused": bool}
_WORDS = {str: "a string", dict: "an object", bool: "true or false", (int, float): "a number of seconds"}


async def list_schedules(call: Call) -> Response:
    """`GET /v1/schedules`, by their names."""
    call.check_query("limit", "cursor")
    limit, given = call.page_size(), call.query("cursor")
    after = read_cursor(given, tuple[str])[0] if given is not None else None
    found = [each for each in await call.runtime.schedules() if call.principal.sees(each.workflow)]
    rest = [each for each in found if after is None or each.name > after]
    cursor = write_cursor(rest[limit - 1].name) if len(rest) > limit else None
    page: Page[Schedule] = {"items": [_shown(call, each) for each in rest[:limit]], "next_cursor": cursor}
    return JsonAnswer(page)


async def put(call: Call) -> Response:
    """`POST /v1/schedules`: 201 if it is new, 200 if the same is there or another one was replaced."""
    call.check_query()
    body = await call.fields(*_TYPES, "input", required=("name", "workflow"))
    for field, kind in _TYPES.items():
        value = body.get(field)
        if value is not None and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
            raise invalid(f"The field {field!r} must be {_WORDS[kind]}.", pointer(field))
    name, workflow = check_id("name", body["name"]), body["workflow"]
    await served_code(call, workflow)
    before = await _found(call, name)
    if before is not None and not call.principal.sees(before.workflow):
        raise ApiProblem("name-taken", f"Another schedule is called {name!r}.")
    await _kept(call, name, workflow, body)
    await _turn(call, name, body.get("paused"))
    return JsonAnswer(_shown(call, await call.runtime.get_schedule(name)), 201 if before is None else 200)


async def _kept(call: Call, name: str, workflow: str, body: dict[str, Any]) -> None:
    given = {field: body[field] for field in (*_TIMING, *_START, "input") if body.get(field) is not None}
    try:
        await call.runtime.schedule(name, workflow, **given)
    except (ValueError, TypeError, WorkflowRuntimeError) as error:
        found = error if isinstance(error, ValidationError) else error.__cause__
        if isinstance(found, ValidationError):
            raise refused("The input is not what the workflow takes.", found) from error
        named = str(error).partition(" ")[0]
        raise invalid(str(error), pointer(named) if named in _TYPES else "") from error


async def get(call: Call) -> Response:
    """`GET /v1/schedules/{schedule_id}`."""
    call.check_query()
    return JsonAnswer(_shown(call, await _named(call)))


async def delete(call: Call) -> Response:
    """`DELETE /v1/schedules/{schedule_id}`: the runs that it has started go on."""
    call.check_query()
    schedule = await _named(call)
    try:
        await call.runtime.unschedule(schedule.name)
    except ScheduleNotFound as error:
        raise ApiProblem("schedule-not-found", str(error)) from error
    return Response(status_code=204)


async def pause(call: Call) -> Response:
    """`POST /v1/schedules/{schedule_id}/pause`."""
    return await _turned(call, paused=True)


async def resume(call: Call) -> Response:
    """`POST /v1/schedules/{schedule_id}/resume`."""
    return await _turned(call, paused=False)


async def _turned(call: Call, *, paused: bool) -> Response:
    call.check_query()
    await call.fields()
    schedule = await _named(call)
    await _turn(call, schedule.name, paused)
    return JsonAnswer(_shown(call, await call.runtime.get_schedule(schedule.name)), 202)


async def _turn(call: Call, name: str, paused: bool | None) -> None:
    """Pause or resume the run that the schedule is, if it is not so already."""
    schedule = await call.runtime.get_schedule(name)
    if paused is not None and paused != schedule.paused:
        await (call.runtime.pause if paused else call.runtime.resume)(schedule.run_id)


async def _named(call: Call) -> ScheduleInfo:
    """The schedule in the path. What a key may not see is not there for it."""
    name = call.request.path_params["schedule_id"]
    schedule = await _found(call, name)
    if schedule is None or not call.principal.sees(schedule.workflow):
        raise ApiProblem("schedule-not-found", f"There is no schedule {name[:200]!r}.")
    return schedule


async def _found(call: Call, name: str) -> ScheduleInfo | None:
    try:
        return await call.runtime.get_schedule(name) if can_be_kept(name) else None
    except ScheduleNotFound:
        return None


def _shown(call: Call, schedule: ScheduleInfo) -> Schedule:
    """A schedule as callers see it, without what is secure in the flow that it starts."""
    start = _masked(call, schedule)
    return {
        "name": schedule.name,
        "workflow": schedule.workflow,
        "recurrence": schedule.recurrence,
        "input": start.body if schedule.input is not None else None,
        "parameters": start.parameters if schedule.parameters is not None else None,
        "variables": start.variables if schedule.variables is not None else None,
        "tags": schedule.tags,
        "catch_up": schedule.catch_up,
        "trigger": schedule.trigger,
        "next_at": _moment(schedule.next_at),
        "last_at": _moment(schedule.last_at),
        "last_run_id": schedule.last_run_id,
        "last_error": schedule.last_error,
        "paused": schedule.paused,
        "run_id": schedule.run_id,
    }


def _masked(call: Call, schedule: ScheduleInfo) -> FlowStart:
    """What its runs begin with, as people may see it. Of a flow that nobody here knows all of it is hidden."""
    parameters, variables = schedule.parameters or {}, schedule.variables or {}
    start = FlowStart(schedule.input, parameters=parameters, variables=variables)
    code = call.runtime.codes.get(schedule.workflow)
    if code is None:
        return FlowStart(MASK, parameters=dict.fromkeys(parameters, MASK), variables=dict.fromkeys(variables, MASK))
    return Masking(code.workflow.program).start(start) if isinstance(code.workflow, Flow) else start


def _moment(moment: datetime | None) -> str | None:
    return iso(moment.timestamp()) if moment is not None else None


ROUTES = (
    Route("GET", "/v1/schedules", list_schedules, "read"),
    Route("POST", "/v1/schedules", put, "admin"),
    Route("GET", "/v1/schedules/{schedule_id}", get, "read"),
    Route("DELETE", "/v1/schedules/{schedule_id}", delete, "admin"),
    Route("POST", "/v1/schedules/{schedule_id}/pause", pause, "admin"),
    Route("POST", "/v1/schedules/{schedule_id}/resume", resume, "admin"),
)
