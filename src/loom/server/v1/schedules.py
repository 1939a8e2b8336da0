"""Schedules: recurring starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.responses import Response

from loom.api.answers import Page
from loom.api.definitions import Schedule
from loom.api.requests import NoFields, ScheduleRequest
from loom.flows.calls import MASK, FlowStart
from loom.runtime.durable.names import can_be_kept
from loom.runtime.durable.schedules import ScheduleNotFound
from loom.runtime.flow import Flow
from loom.runtime.masking import Masking
from loom.server.answers import JsonAnswer
from loom.server.call import pointer, served_code
from loom.server.pages import read_cursor, write_cursor
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, LIMIT, Body, Reply, RouteList
from loom.server.v1.runs import refused
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from loom.runtime.durable.schedules import ScheduleInfo
    from loom.server.call import Call

route = RouteList("schedules")

_TURNED = Reply("It is stored; the schedule as it is now.", Schedule)

_GIVEN = (
    "cron", "every", "recurrence", "time_zone", "parameters", "variables", "tags", "catch_up", "input",
)  # fmt: skip
"""Fields of a request that the runtime takes as they are."""


@route(
    "GET",
    "/v1/schedules",
    "listSchedules",
    scope="read",
    summary="List schedules by name",
    params=(LIMIT, CURSOR),
    replies={200: Reply("A page of schedules.", Page[Schedule])},
)
async def list_schedules(call: Call) -> Response:
    """`GET /v1/schedules`, by their names."""
    call.check_query()
    limit, given = call.page_size(), call.query("cursor")
    after = read_cursor(given, tuple[str])[0] if given is not None else None
    found = [each for each in await call.runtime.schedules() if call.principal.sees(each.workflow)]
    rest = [each for each in found if after is None or each.name > after]
    cursor = write_cursor(rest[limit - 1].name) if len(rest) > limit else None
    return JsonAnswer(Page[Schedule](items=[_shown(call, each) for each in rest[:limit]], next_cursor=cursor))


@route(
    "POST",
    "/v1/schedules",
    "putSchedule",
    scope="admin",
    summary="Start runs again and again",
    body=ScheduleRequest,
    replies={201: Reply("It is new.", Schedule), 200: Reply("It was there, or another was replaced.", Schedule)},
    problems=("definition-not-found", "name-taken"),
)
async def put(call: Call) -> Response:
    """`POST /v1/schedules`: 201 if it is new, 200 if the same is there or another one was replaced."""
    call.check_query()
    body = await call.body(ScheduleRequest)
    name, workflow = body.name, body.workflow
    await served_code(call, workflow)
    before = await _found(call, name)
    if before is not None and not call.principal.sees(before.workflow):
        raise ApiProblem("name-taken", f"Another schedule is called {name!r}.")
    await _kept(call, body)
    await _turn(call, name, body.paused)
    return JsonAnswer(_shown(call, await call.runtime.get_schedule(name)), 201 if before is None else 200)


async def _kept(call: Call, body: ScheduleRequest) -> None:
    """Store the schedule."""
    given = {field: value for field in _GIVEN if (value := getattr(body, field)) is not None}
    if body.every is not None and body.every.is_integer():
        given["every"] = int(body.every)  # as it was written, should a refusal repeat it
    try:
        await call.runtime.schedule(body.name, body.workflow, **given)
    except (ValueError, TypeError, WorkflowRuntimeError) as error:
        found = error if isinstance(error, ValidationError) else error.__cause__
        if isinstance(found, ValidationError):
            raise refused("The input is not what the workflow takes.", found) from error
        named = str(error).partition(" ")[0]
        raise invalid(str(error), pointer(named) if named in body.__struct_fields__ else "") from error


@route(
    "GET",
    "/v1/schedules/{schedule_id}",
    "getSchedule",
    scope="read",
    summary="Get a schedule",
    replies={200: Reply("The schedule.", Schedule)},
)
async def get(call: Call) -> Response:
    """`GET /v1/schedules/{schedule_id}`."""
    call.check_query()
    return JsonAnswer(_shown(call, await _named(call)))


@route(
    "DELETE",
    "/v1/schedules/{schedule_id}",
    "deleteSchedule",
    scope="admin",
    summary="End a schedule; what it has started goes on",
    replies={204: Reply("It is gone.")},
)
async def delete(call: Call) -> Response:
    """`DELETE /v1/schedules/{schedule_id}`: the runs that it has started go on."""
    call.check_query()
    schedule = await _named(call)
    try:
        await call.runtime.unschedule(schedule.name)
    except ScheduleNotFound as error:
        raise ApiProblem("schedule-not-found", str(error)) from error
    return Response(status_code=204)


@route(
    "POST",
    "/v1/schedules/{schedule_id}/pause",
    "pauseSchedule",
    scope="admin",
    summary="Pause a schedule",
    body=Body(NoFields, required=False),
    replies={202: _TURNED},
)
async def pause(call: Call) -> Response:
    """`POST /v1/schedules/{schedule_id}/pause`."""
    return await _turned(call, paused=True)


@route(
    "POST",
    "/v1/schedules/{schedule_id}/resume",
    "resumeSchedule",
    scope="admin",
    summary="Let a paused schedule go on",
    body=Body(NoFields, required=False),
    replies={202: _TURNED},
)
async def resume(call: Call) -> Response:
    """`POST /v1/schedules/{schedule_id}/resume`."""
    return await _turned(call, paused=False)


async def _turned(call: Call, *, paused: bool) -> Response:
    call.check_query()
    await call.body(NoFields)
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
    return Schedule(
        name=schedule.name,
        workflow=schedule.workflow,
        recurrence=schedule.recurrence,
        input=start.body if schedule.input is not None else None,
        parameters=start.parameters if schedule.parameters is not None else None,
        variables=start.variables if schedule.variables is not None else None,
        tags=schedule.tags,
        catch_up=schedule.catch_up,
        trigger=schedule.trigger,
        next_at=schedule.next_at,
        last_at=schedule.last_at,
        last_run_id=schedule.last_run_id,
        last_error=schedule.last_error,
        paused=schedule.paused,
        run_id=schedule.run_id,
    )


def _masked(call: Call, schedule: ScheduleInfo) -> FlowStart:
    """Return what its runs begin with, without secrets. Of a flow that this process does not know, all is hidden."""
    parameters, variables = schedule.parameters or {}, schedule.variables or {}
    start = FlowStart(schedule.input, parameters=parameters, variables=variables)
    code = call.runtime.codes.get(schedule.workflow)
    if code is None:
        return FlowStart(MASK, parameters=dict.fromkeys(parameters, MASK), variables=dict.fromkeys(variables, MASK))
    return Masking(code.workflow.program).start(start) if isinstance(code.workflow, Flow) else start
