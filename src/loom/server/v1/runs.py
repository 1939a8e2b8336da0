"""Runs: start, get, list, delete, and what can be asked of one. May import the server's frame and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import Response

from loom.runtime.durable.names import OWN, check_tags
from loom.runtime.flow import Flow
from loom.server.answers import json_answer
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route, new_id, pointer
from loom.server.served import served_code
from loom.server.starts import check_open
from loom.server.views import etag, is_known, run_view, wait_for_end
from loom.server.waiting import while_serving
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunExists, RunNotFound, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.server.routing import Call
    from loom.server.shapes import Place
    from loom.store.records import RunRow


async def run_answer(call: Call, row: RunRow, status: int = 200) -> Response:
    """A run as an answer."""
    headers = {"ETag": etag(row)}
    if status == 201:  # noqa: PLR2004 - created
        headers["Location"] = call.address_of(row.run_id)
    return await json_answer(await call.seen(await run_view(call.runtime, row)), status, headers)


async def start(call: Call) -> Response:
    """`POST /v1/runs`."""
    call.check_query("wait")
    wait = call.seconds("wait", call.settings.max_wait) or 0.0
    check_open(call)
    body = await call.fields(
        "workflow", "input", "run_id", "parameters", "variables", "version", "tags", required=("workflow",)
    )
    workflow = body["workflow"]
    if not isinstance(workflow, str):
        raise invalid("The field 'workflow' must be a string.", "/workflow")
    call.check_workflow(workflow)
    if workflow.startswith(OWN) or workflow not in call.runtime.codes:
        await served_code(call, workflow)
    version = body.get("version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        raise invalid("The field 'version' must be a number from 1 on.", "/version")
    run_id = new_id("run_id", body["run_id"]) if body.get("run_id") is not None else call.nonce
    await call.server.starts.reserve(call)
    run_id, is_new = await _started(call, workflow, run_id, body)
    call.has_begun(run_id)
    row = await (_at_its_end(call, run_id, wait) if wait else call.runtime.row(run_id))
    return await run_answer(call, row, 201 if is_new else 200)


async def _at_its_end(call: Call, run_id: str, wait: float) -> RunRow:
    """A run at its end, or as it is after so long, or when the server stops."""
    row = await while_serving(call, wait_for_end(call.runtime, run_id, wait))
    return row if row is not None else await call.runtime.row(run_id)


async def _started(call: Call, workflow: str, run_id: str | None, body: dict[str, Any]) -> tuple[str, bool]:
    """The id of a run, and whether it is new."""
    _check_objects(call, workflow, body)
    try:
        return await call.runtime.begin(
            workflow,
            body.get("input"),
            run_id=run_id,
            tags=body.get("tags"),
            parameters=body.get("parameters"),
            variables=body.get("variables"),
            version=body.get("version"),
        )
    except (ValueError, TypeError, WorkflowRuntimeError) as error:
        # The workflow may have put its own words around what the class of its start event says.
        found = error if isinstance(error, ValidationError) else error.__cause__
        if isinstance(found, ValidationError):
            raise refused("The input is not what the workflow takes.", found) from error
        raise invalid(str(error), "/input") from error


def _check_objects(call: Call, workflow: str, body: dict[str, Any]) -> None:
    """Refuse tags, parameters and variables that cannot be, where they stand."""
    code = call.runtime.codes.get(workflow)
    for name in ("parameters", "variables", "tags"):
        if body.get(name) is None:
            continue
        if not isinstance(body[name], dict):
            raise invalid(f"The field {name!r} must be an object.", pointer(name))
        if name != "tags" and code is not None and not isinstance(code.workflow, Flow):
            raise invalid(f"{workflow!r} is no flow: it has no {name}.", pointer(name))
    try:
        check_tags(body.get("tags") or {})
    except (TypeError, ValueError) as error:
        raise invalid(str(error), "/tags") from error


def refused(detail: str, error: ValidationError, *at: str) -> ApiProblem:
    """A value that its class refuses, with all places; the values themselves are not repeated."""
    places: list[Place] = [
        {"path": pointer(*(at or ("input",)), *(str(part) for part in found["loc"])), "message": found["msg"]}
        for found in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return ApiProblem("invalid-request", detail, errors=places)


async def get(call: Call) -> Response:
    """`GET /v1/runs/{run_id}`."""
    call.check_query("wait")
    wait = call.seconds("wait", call.settings.max_wait) or 0.0
    row = await call.row()
    if wait and row.head.status == "running":
        row = await _at_its_end(call, row.run_id, wait)
    if is_known(call.request.headers, etag(row)):
        return Response(status_code=304, headers={"ETag": etag(row)})
    return await run_answer(call, row)


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


async def cancel(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/cancel`."""
    call.check_query()
    body = await call.fields("reason")
    if not isinstance(body.get("reason"), str | None):
        raise invalid("The field 'reason' must be a string.", "/reason")
    row = await call.row()
    if row.head.status == "cancelled":
        return await run_answer(call, row)
    await call.runtime.cancel(row.run_id, reason=body.get("reason") or "")
    return await run_answer(call, await call.row(), 202)


async def pause(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/pause`."""
    return await _told(call, call.runtime.pause)


async def resume(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/resume`."""
    return await _told(call, call.runtime.resume)


async def _told(call: Call, tell: Callable[[str], Awaitable[None]]) -> Response:
    call.check_query()
    await call.fields()
    row = await call.row()
    await tell(row.run_id)
    return await run_answer(call, await call.row(), 202)


async def fork(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/fork`."""
    call.check_query()
    body = await call.fields("tick", "run_id", required=("tick",))
    tick = body["tick"]
    if not isinstance(tick, int) or isinstance(tick, bool) or tick < 0:
        raise invalid("The field 'tick' must be a number from 0 on.", "/tick")
    check_open(call)
    row = await call.row()
    run_id = new_id("run_id", body["run_id"]) if body.get("run_id") is not None else call.nonce
    await call.server.starts.reserve(call)
    made = await _forked(call, row, tick, run_id)
    call.has_begun(made)
    return await run_answer(call, await call.row(made), 201)


async def _forked(call: Call, row: RunRow, tick: int, run_id: str | None) -> str:
    try:
        return await call.runtime.store_fork(row.run_id, tick=tick, run_id=run_id)
    except ValueError as error:
        raise invalid(str(error), "/tick") from error
    except RunExists as error:
        # Whoever was at work on this request before may have come so far.
        if not call.is_repeated or (await call.row(error.run_id)).forked_from != row.run_id:
            raise
        return error.run_id


def active(run_id: str, advice: str) -> ApiProblem:
    """The problem of a run that has not ended, with what to do about it."""
    return ApiProblem("run-active", f"Run {run_id!r} is running: {advice}.")


ROUTES = (
    Route("POST", "/v1/runs", start, "start"),
    Route("GET", "/v1/runs/{run_id}", get, "read"),
    Route("DELETE", "/v1/runs/{run_id}", delete, "admin"),
    Route("POST", "/v1/runs/{run_id}/cancel", cancel, "start"),
    Route("POST", "/v1/runs/{run_id}/pause", pause, "start"),
    Route("POST", "/v1/runs/{run_id}/resume", resume, "start"),
    Route("POST", "/v1/runs/{run_id}/fork", fork, "start"),
)
