"""Runs: start, get, list and delete them, and what can be asked of one."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pydantic import ValidationError
from starlette.responses import Response

from loom.api.answers import Page
from loom.api.refusals import Place
from loom.api.requests import (
    CancelRequest,
    NoFields,
    ResumeRequest,
    Seconds,
    SkipRequest,
    StartRequest,
    TagsRequest,
    filter_parameters,
)
from loom.api.runs import Run
from loom.runtime.durable.names import OWN, can_be_kept, check_tags
from loom.runtime.flow import Flow
from loom.runtime.render import rendered_run
from loom.server.answers import JsonAnswer, etag, is_known, json_answer
from loom.server.call import check_id, new_id, pointer, served_code
from loom.server.caller_limits import check_open
from loom.server.pages import PAGE_BYTES, read_cursor, run_items, write_cursor
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, IF_NONE_MATCH, LIMIT, Body, Param, Reply, RouteList
from loom.server.waits import wait_for_end, while_serving
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import NothingToSkip, RunNotFound, StoreError, StoreUnavailable
from loom.store.records import RunQuery, place_of
from loom.store.run_filters import running_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.api.problems import RunStatus
    from loom.server.call import Call
    from loom.store.records import RunRow

route = RouteList("runs")

WAIT = Param("wait", Seconds, "Wait for the run's end, at most so many seconds, and at most 60.")
TOLD = Reply("It is stored; the run as it is now.", Run, headers=("ETag",))
SAME = Reply("Nothing has changed.", headers=("ETag",))
NEW_RUN = Reply("The run was started.", Run, headers=("ETag", "Location"))


async def run_answer(call: Call, row: RunRow, status: int = 200) -> Response:
    """A run as an answer."""
    headers = {"ETag": etag(row)}
    if status == 201:  # noqa: PLR2004 - created
        headers["Location"] = call.address_of(row.run_id)
    return await json_answer(await call.seen(await rendered_run(call.runtime, row)), status, headers)


@route(
    "POST",
    "/v1/runs",
    "startRun",
    scope="start",
    summary="Start a run",
    description="Answered once the start is stored. The same `run_id`, workflow and input start one run only.",
    params=(WAIT,),
    body=StartRequest,
    replies={201: NEW_RUN, 200: Reply("This very run had been started before.", Run, headers=("ETag",))},
    problems=("definition-not-found", "run-exists", "version-mismatch", "draining", "memory-exceeded"),
)
async def start(call: Call) -> Response:
    """`POST /v1/runs`."""
    call.check_query()
    wait = call.seconds("wait", call.settings.max_wait) or 0.0
    check_open(call)
    body = await call.body(StartRequest)
    workflow = body.workflow
    call.check_workflow(workflow)
    if workflow.startswith(OWN) or workflow not in call.runtime.codes:
        await served_code(call, workflow)
    run_id = new_id("run_id", body.run_id) if body.run_id is not None else call.nonce
    await call.server.starts.reserve(call)
    run_id, is_new = await _started(call, run_id, body)
    call.has_begun(run_id)
    row = await (_at_its_end(call, run_id, wait) if wait else call.runtime.row(run_id))
    return await run_answer(call, row, 201 if is_new else 200)


async def _at_its_end(call: Call, run_id: str, wait: float) -> RunRow:
    """A run at its end, or as it is after so long, or when the server stops."""
    row = await while_serving(call, wait_for_end(call.runtime, run_id, wait))
    return row if row is not None else await call.runtime.row(run_id)


async def _started(call: Call, run_id: str | None, body: StartRequest) -> tuple[str, bool]:
    """Start a run; return its id, and whether it is new."""
    _check_start(call, body)
    try:
        return await call.runtime.starter.begin(
            body.workflow,
            body.input,
            run_id=run_id,
            tags=body.tags,
            parameters=body.parameters,
            variables=body.variables,
            version=body.version,
        )
    except (ValueError, TypeError, WorkflowRuntimeError) as error:
        # The workflow may have put its own words around what the class of its start event says.
        found = error if isinstance(error, ValidationError) else error.__cause__
        if isinstance(found, ValidationError):
            raise refused("The input is not what the workflow takes.", found) from error
        raise invalid(str(error), "/input") from error


def _check_start(call: Call, body: StartRequest) -> None:
    """Refuse parameters and variables of a workflow that has none, and tags that cannot be."""
    code = call.runtime.codes.get(body.workflow)
    for name in ("parameters", "variables"):
        if getattr(body, name) is not None and code is not None and not isinstance(code.workflow, Flow):
            raise invalid(f"{body.workflow!r} is no flow: it has no {name}.", pointer(name))
    try:
        check_tags(body.tags or {})
    except (TypeError, ValueError) as error:
        raise invalid(str(error), "/tags") from error


def refused(detail: str, error: ValidationError, *at: str) -> ApiProblem:
    """A value that its class refuses, with all places; the values themselves are not repeated."""
    places = [
        Place(path=pointer(*(at or ("input",)), *(str(part) for part in found["loc"])), message=found["msg"])
        for found in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return ApiProblem("invalid-request", detail, errors=places)


@route(
    "GET",
    "/v1/runs/{run_id}",
    "getRun",
    scope="read",
    summary="Get a run",
    params=(WAIT, IF_NONE_MATCH),
    replies={200: Reply("The run as it is now.", Run, headers=("ETag",)), 304: SAME},
)
async def get(call: Call) -> Response:
    """`GET /v1/runs/{run_id}`."""
    call.check_query()
    wait = call.seconds("wait", call.settings.max_wait) or 0.0
    row = await call.row()
    if wait and row.head.status == "running":
        row = await _at_its_end(call, row.run_id, wait)
    if is_known(call.request.headers, etag(row)):
        return Response(status_code=304, headers={"ETag": etag(row)})
    return await run_answer(call, row)


@route(
    "DELETE",
    "/v1/runs/{run_id}",
    "deleteRun",
    scope="admin",
    summary="Delete a run that has ended, with its history, state and events",
    replies={204: Reply("It is gone.")},
    problems=("run-active",),
)
async def delete(call: Call) -> Response:
    """`DELETE /v1/runs/{run_id}`."""
    call.check_query()
    row = await call.row()
    if row.head.status == "running":
        raise active(row.run_id, "cancel it before you delete it")
    try:
        await call.runtime.purge(row.run_id)
    except (RunNotFound, StoreUnavailable):
        raise
    except StoreError as error:
        raise active(row.run_id, "cancel it before you delete it") from error
    return Response(status_code=204)


@route(
    "POST",
    "/v1/runs/{run_id}/cancel",
    "cancelRun",
    scope="start",
    summary="Cancel a run",
    body=Body(CancelRequest, required=False),
    replies={202: TOLD, 200: Reply("It was cancelled before.", Run, headers=("ETag",))},
    problems=("run-finished",),
)
async def cancel(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/cancel`."""
    call.check_query()
    body = await call.body(CancelRequest)
    row = await call.row()
    if row.head.status == "cancelled":
        return await run_answer(call, row)
    await call.runtime.cancel(row.run_id, reason=body.reason or "", force=body.force)
    return await run_answer(call, await call.row(), 202)


@route(
    "POST",
    "/v1/runs/{run_id}/pause",
    "pauseRun",
    scope="start",
    summary="Pause a run: it keeps events and starts nothing",
    body=Body(NoFields, required=False),
    replies={202: TOLD},
    problems=("run-finished",),
)
async def pause(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/pause`."""
    return await _told(call, call.runtime.pause)


@route(
    "POST",
    "/v1/runs/{run_id}/resume",
    "resumeRun",
    scope="start",
    summary="Let a paused run go on, or try a parked one again",
    body=Body(ResumeRequest, required=False),
    replies={202: TOLD},
    problems=("run-finished",),
)
async def resume(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/resume`."""
    call.check_query()
    body = await call.body(ResumeRequest)
    row = await call.row()
    await call.runtime.resume(row.run_id, max_depth=body.max_depth)
    return await run_answer(call, await call.row(), 202)


async def _told(call: Call, tell: Callable[[str], Awaitable[None]]) -> Response:
    call.check_query()
    await call.body(NoFields)
    row = await call.row()
    await tell(row.run_id)
    return await run_answer(call, await call.row(), 202)


@route(
    "POST",
    "/v1/runs/{run_id}/skip",
    "skipDelay",
    scope="start",
    summary="End delays and back-offs of a run now",
    description="A retry is attempted, a sleep or a `wait` action is over, the next iteration of a loop begins. "
    "Timeouts of waits, steps and runs stay. A paused run goes on with it when it is resumed.",
    body=Body(SkipRequest, required=False),
    replies={202: TOLD},
    problems=("run-finished", "nothing-to-skip"),
)
async def skip(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/skip`."""
    call.check_query()
    body = await call.body(SkipRequest)
    row = await call.row()
    try:
        await call.runtime.skip(row.run_id, body.timer)
    except NothingToSkip:
        if not call.is_repeated:  # the first request may have come so far
            raise
    return await run_answer(call, await call.row(), 202)


@route(
    "PUT",
    "/v1/runs/{run_id}/tags",
    "setTags",
    scope="start",
    summary="Replace the tags of a run, whatever its status",
    body=TagsRequest,
    replies={200: Reply("The run with its new tags.", Run, headers=("ETag",))},
    problems=("not-supported",),
)
async def set_tags(call: Call) -> Response:
    """`PUT /v1/runs/{run_id}/tags`."""
    call.check_query()
    body = await call.body(TagsRequest)
    row = await call.row()
    try:
        await call.runtime.set_tags(row.run_id, body.tags)
    except (TypeError, ValueError) as error:
        raise invalid(str(error), "/tags") from error
    return await run_answer(call, await call.row())


def active(run_id: str, advice: str) -> ApiProblem:
    """The problem of a run that has not ended, with what to do about it."""
    return ApiProblem("run-active", f"Run {run_id!r} is running: {advice}.")


# -- lists ------------------------------------------------------------------------------------------------------------


_STATUSES = ("running", "completed", "failed", "cancelled")
_ORDERS = ("-created_at", "created_at", "updated_at", "-updated_at")


_LISTED = (
    *(Param(name, told.type, told.about) for name, told in filter_parameters()),
    LIMIT,
    CURSOR,
)


@route(
    "GET",
    "/v1/runs",
    "listRuns",
    scope="read",
    summary="List runs",
    description="`result` is null unless it is asked for, texts of errors are cut at 16 KiB, and a page ends early "
    "where it would have more than 8 MiB: go on with `next_cursor`.",
    params=_LISTED,
    replies={200: Reply("A page of runs.", Page[Run])},
)
async def list_runs(call: Call) -> Response:
    """`GET /v1/runs`."""
    call.check_query()
    limit, with_result = call.page_size(), _wants_result(call)
    query = query_of_call(call)
    mark = _mark(call, query)
    query = msgspec.structs.replace(query, after=_position(call.query("cursor"), mark))
    items: list[msgspec.Raw] = []
    size, cursor, last = 0, None, None
    if query.status == () or query.workflow == ():
        return _page(items, cursor)
    async with aclosing(run_items(call, query, limit + 1, with_result=with_result)) as found:
        async for row, item in found:
            size += len(bytes(item))
            if len(items) == limit or (items and size > PAGE_BYTES):
                cursor = write_cursor(mark, *place_of(last, query)) if last is not None else None
                break
            items.append(item)
            last = row
    return _page(items, cursor)


def _page(items: list[msgspec.Raw], cursor: str | None) -> Response:
    return JsonAnswer(Page[Any](items=items, next_cursor=cursor))


def _wants_result(call: Call) -> bool:
    wanted = [part for each in call.request.query_params.getlist("include") for part in each.split(",")]
    for part in wanted:
        if part != "result":
            raise invalid(f"The parameter 'include' has no {part[:100]!r}: use result.")
    return bool(wanted)


def query_of_call(call: Call) -> RunQuery:
    """Read the filters of a list from the query, as far as the key may see what they find."""
    given = call.request.query_params
    statuses = given.getlist("status")
    for status in statuses:
        if status not in _STATUSES:
            raise invalid(f"The status {status[:100]!r} is not known: use {', '.join(_STATUSES)}.")
    longer, idle = call.seconds("idle_longer_than"), call.flag("idle")
    if longer is not None and idle is False:
        raise invalid("idle_longer_than means runs that are idle, and idle=false those that are not.")
    wanted = cast("tuple[RunStatus, ...]", tuple(statuses)) or None
    if longer is not None or idle:
        idle, wanted = True, running_of(wanted)
    given_order = call.query("order")
    order = given_order if given_order is not None else _ORDERS[0]
    if order not in _ORDERS:
        raise invalid(f"The order {order[:100]!r} is not known: use {', '.join(_ORDERS)}.")
    parent, prefix = call.query("parent_id"), call.query("id_prefix")
    return RunQuery(
        status=wanted,
        workflow=workflows_asked(call),
        idle=idle,
        # More than so long: what became idle at that very moment is not meant.
        idle_before=call.runtime.now() - longer if longer is not None else None,
        waiting_for=_name(call.query("waiting_for"), "waiting_for"),
        tags=_tags(given.getlist("tag")),
        parent=check_id("parent_id", parent) if parent is not None else None,
        paused=call.flag("paused"),
        parked=call.flag("parked"),
        stuck=call.flag("stuck"),
        asleep=call.flag("asleep"),
        waiting=call.flag("waiting"),
        id_prefix=check_id("id_prefix", prefix) if prefix is not None else None,
        created_after=call.time("created_after"),
        created_before=call.time("created_before"),
        updated_after=call.time("updated_after"),
        oldest_first=not order.startswith("-"),
        by_update=order.endswith("updated_at"),
    )


def workflows_asked(call: Call) -> tuple[str, ...] | None:
    """Return the workflows that are asked for, as far as the key may see them."""
    asked = [
        name for name in (_name(each, "workflow") for each in call.request.query_params.getlist("workflow")) if name
    ]
    allowed = call.principal.workflows
    if allowed is None:
        return tuple(asked) or None
    return tuple(name for name in asked if name in allowed) if asked else tuple(sorted(allowed))


def _name(value: str | None, what: str) -> str | None:
    if value is not None and not can_be_kept(value):
        raise invalid(f"The parameter {what!r} must be a name.")
    return value


def _tags(given: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given:
        name, found, value = each.partition("=")
        if not found or not can_be_kept(name) or (value and not can_be_kept(value)):
            raise invalid("The parameter 'tag' has the form name=value.")
        tags[name] = value
    return tags


def _mark(call: Call, query: RunQuery) -> str:
    """What a cursor is bound to: filters, order, and what the key may see. That time goes by changes nothing."""
    bound: list[Any] = [
        msgspec.to_builtins(msgspec.structs.replace(query, idle_before=None)),
        call.query("idle_longer_than"),
    ]
    return hashlib.sha256(msgspec.json.encode(bound, order="deterministic")).hexdigest()[:16]


def _position(cursor: str | None, mark: str) -> tuple[float, str] | None:
    if cursor is None:
        return None
    found, at, run_id = read_cursor(cursor, tuple[str, float, str])
    if found != mark or not can_be_kept(run_id):
        raise invalid("The cursor belongs to a list with other filters or another order.")
    return at, run_id
