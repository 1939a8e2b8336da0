"""The compatible routes: the protocol of llama-agents-server, which its client speaks without a change.

May import starlette, loom.runtime, loom.store and the rest of the server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from starlette.responses import JSONResponse, Response

from loom.effects.threads import aside_if_large
from loom.runtime.durable.definitions_stored import DefinitionNotFound
from loom.server.compat_events import event_from, start_from
from loom.server.compat_handlers import (
    handler_data,
    handler_json,
    handler_of,
    latest_run,
    result_of,
    until_ended,
    unwrapped,
)
from loom.server.compat_listing import list_handlers
from loom.server.compat_starting import Beginning, HandlerBusy, begin
from loom.server.compat_workflows import event_schemas, graph_of, is_offered, offered, schemas_of
from loom.server.event_rights import check_sent
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route, new_id, read_json
from loom.server.starts import check_open
from loom.server.streams import compatible_stream
from loom.server.v1.health import unready
from loom.server.views import HANDLER, wait_for_end
from loom.server.waiting import while_connected
from loom.server.wire import event_names
from loom.steps.errors import ContextSerdeError, WorkflowRuntimeError
from loom.store.errors import RunFinished, RunNotFound, StoreError, StoreUnavailable
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.working import WorkingRuntime
    from loom.server.routing import Call
    from loom.server.shapes_compat import (
        Cancelled,
        EventSchemas,
        HandlerData,
        HandlerResult,
        HealthStatus,
        Representation,
        Sent,
        WorkflowNames,
    )
    from loom.store.records import RunRow

_CODES = {"running": 202, "completed": 200, "failed": 500, "cancelled": 500}
_CANCEL_S = 10.0
"""How long a cancelled run may take to end before its caller is told."""
_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}


# -- workflows --------------------------------------------------------------------------------------------------------


async def health(call: Call) -> Response:
    """Whether the server can do its work."""
    reasons = [reason for reason in await unready(call) if reason != "draining"]
    answer: HealthStatus = {"status": "unhealthy" if reasons else "healthy"}
    return JSONResponse(answer, 503 if reasons else 200)


async def list_workflows(call: Call) -> Response:
    """The names of all workflows."""
    answer: WorkflowNames = {"workflows": [name for name in offered(call.runtime) if call.principal.sees(name)]}
    return JSONResponse(answer)


async def schema(call: Call) -> Response:
    """What runs of a workflow begin and end with."""
    return JSONResponse(schemas_of((await _code(call)).workflow))


async def events_schema(call: Call) -> Response:
    """The events of a workflow."""
    answer: EventSchemas = {"events": event_schemas((await _code(call)).workflow)}
    return JSONResponse(answer)


async def representation(call: Call) -> Response:
    """A workflow as a graph."""
    answer: Representation = {"graph": graph_of((await _code(call)).workflow)}
    return JSONResponse(answer)


async def _code(call: Call) -> Registered:
    """The workflow that the path names, in the version that new runs have."""
    name = call.request.path_params["name"]
    is_there = is_offered(name) and call.principal.sees(name)
    try:
        code = await call.runtime.definitions.code_for(name) if is_there else None
    except DefinitionNotFound:
        code = None
    if code is None:
        raise ApiProblem("definition-not-found", "Workflow not found")
    return code


# -- starting ---------------------------------------------------------------------------------------------------------


async def run(call: Call) -> Response:
    """Start a run and wait for its end."""
    run_id = await _begin(call)
    row = await while_connected(call, until_ended(call.runtime, run_id))
    call.is_outcome = True
    return await _handler(call.runtime, row, 200 if row.head.status == "completed" else 500)


async def run_nowait(call: Call) -> Response:
    """Start a run."""
    row = await call.runtime.row(await _begin(call))
    answer: HandlerData = {**handler_data(row), "status": "running", "error": None, "completed_at": None}
    return JSONResponse(answer)


async def _begin(call: Call) -> str:
    check_open(call)
    code = await _code(call)
    body = await _object(call)
    handler_id = body.get("handler_id")
    if handler_id is not None:
        handler_id = new_id("handler_id", handler_id)
    start = _parsed(call, body.get("start_event"))
    try:
        inputs = start_from(start if start is not None else body.get("kwargs"), code.workflow)
        beginning = Beginning(code, inputs, _context(call, body))
        await call.server.starts.reserve(call)
        run_id = await begin(call.runtime, beginning, handler_id, call.nonce)
    except HandlerBusy as error:
        raise ApiProblem("run-exists", str(error)) from error
    except (WorkflowRuntimeError, ContextSerdeError, TypeError, ValueError) as error:
        raise invalid(f"The start event is not valid: {error}", "/start_event") from error
    call.has_begun(run_id)
    return run_id


def _context(call: Call, body: dict[str, Any]) -> dict[str, Any] | None:
    """The context that a client wants to go on with. An empty one means none; the client always sends one."""
    context = body.get("context")
    if not context:
        return None
    if not call.settings.accept_context:
        raise invalid("This server takes no context: go on with a handler_id.", "/context")
    if not isinstance(context, dict):
        raise invalid("The context must be an object.", "/context")
    return context


async def _object(call: Call) -> dict[str, Any]:
    body = await call.json()
    if not isinstance(body, dict):
        raise invalid("The body must be a JSON object.")
    return body


def _parsed(call: Call, data: Any) -> Any:
    """An event, which may come as JSON in a string: it is held to the same as the JSON around it."""
    if not isinstance(data, str):
        return data
    try:
        return read_json(data.encode(), call.settings)
    except ApiProblem as error:
        raise invalid(f"The event is a string that holds no event. {error.detail}") from error


# -- handlers ---------------------------------------------------------------------------------------------------------


async def handlers(call: Call) -> Response:
    """The handlers that match."""
    return await list_handlers(call)


async def handler(call: Call) -> Response:
    """One handler."""
    row = await handler_row(call)
    return await _handler(call.runtime, row, _CODES[row.head.status])


async def results(call: Call) -> Response:
    """One handler, with its result instead of an envelope around it."""
    row = await handler_row(call)
    result = await result_of(call.runtime, row)
    if result.unreadable:
        raise _unreadable()
    return await _answer(unwrapped(handler_data(row), result), _CODES[row.head.status])


async def _handler(runtime: WorkingRuntime, row: RunRow, status: int) -> Response:
    result = await result_of(runtime, row)
    if result.unreadable:
        raise _unreadable()
    return await _answer(handler_data(row, result), status)


async def _answer(data: HandlerData | HandlerResult, status: int = 200) -> Response:
    return Response(await aside_if_large(handler_json, data), status, media_type="application/json")


def _unreadable() -> ApiProblem:
    return ApiProblem("result-unreadable", "The stored result cannot be decoded.")


async def handler_row(call: Call) -> RunRow:
    """The latest run of the handler that the path names. What a key may not see is not there for it."""
    row = await latest_run(call.runtime, call.request.path_params["handler_id"])
    if row is None or not is_offered(row.workflow) or not call.principal.sees(row.workflow):
        raise ApiProblem("run-not-found", "Handler not found")
    return row


async def send_event(call: Call) -> Response:
    """Let an event reach a handler's run; answered once it is stored."""
    await call.check_event_size()
    row = await handler_row(call)
    body = await _object(call)
    if body.get("event") is None:
        raise invalid("The field 'event' is missing.", "/event")
    step = body.get("step")
    if step is not None and not isinstance(step, str):
        raise invalid("The step is the name of one.", "/step")
    if row.head.status != "running":
        raise RunFinished(row.run_id, row.head.status)
    code, is_flow = call.runtime.codes.get(row.workflow), row.document is not None
    workflow = code.workflow if code is not None else None
    try:
        event = event_from(
            _parsed(call, body["event"]), workflow, lambda name: event_names(workflow, row, name), flow=is_flow
        )
        to = await check_sent(call, row, event, step=step or None, event_id=call.nonce)
        # A nonce is there for a repeated request only, and an event that is repeated must not come twice.
        await call.runtime.send_event(row.run_id, event, step=step or None, waiter_id=to, event_id=call.nonce)
    except (WorkflowRuntimeError, ValueError) as error:
        raise invalid(f"The event is not valid: {error}", "/event") from error
    answer: Sent = {"status": "sent"}
    return JSONResponse(answer)


async def events(call: Call) -> Response:
    """The events of a handler's run, as they come."""
    return await compatible_stream(call, await handler_row(call))


async def cancel(call: Call) -> Response:
    """Cancel a handler's run; with `purge` nothing of the handler stays."""
    value = (call.query("purge") or "").lower()
    if value not in _FLAGS:
        raise invalid("The parameter 'purge' is true or false.")
    purge = _FLAGS[value]
    if purge and not call.principal.has("admin"):
        raise ApiProblem("forbidden", "The key lacks the scope 'admin'.")
    row = await handler_row(call)
    if purge:
        await _purge(call.runtime, row)
        return _ended("deleted")
    too_late = ApiProblem("run-not-found", "The handler has no run that could be cancelled.")
    if row.head.status == "cancelled" and call.is_repeated:
        return _ended("cancelled")
    if row.head.status != "running":
        raise too_late
    row = await _cancelled(call.runtime, row)
    if row.head.status in ("completed", "failed"):
        raise too_late
    return _ended("cancelled")


def _ended(how: Literal["cancelled", "deleted"]) -> Response:
    answer: Cancelled = {"status": how}
    return JSONResponse(answer)


async def _cancelled(runtime: WorkingRuntime, row: RunRow) -> RunRow:
    """Cancel a run, and wait a while for its end, so that whoever asks next finds it cancelled."""
    with suppress(RunFinished):  # its row tells how
        await runtime.cancel(row.run_id)
    return await wait_for_end(runtime, row.run_id, _CANCEL_S)


async def _purge(runtime: WorkingRuntime, last: RunRow) -> None:
    """Delete all runs of a handler, the latest one last: until then a repetition finds what is left."""
    older: list[RunRow] | None = None
    while older is None or older:
        rows = await runtime.store.find(RunQuery(tags={HANDLER: handler_of(last)}, limit=100, oldest_first=True))
        older = [row for row in rows if row.run_id != last.run_id]
        for row in older:
            await _delete(runtime, row)
    await _delete(runtime, last)


async def _delete(runtime: WorkingRuntime, row: RunRow) -> None:
    if row.head.status == "running":
        await _cancelled(runtime, row)
    try:
        async with asyncio.timeout(_CANCEL_S):
            await _children_ended(runtime, row.run_id)
        await runtime.purge(row.run_id)
    except (RunNotFound, StoreUnavailable):
        raise
    except (TimeoutError, StoreError) as error:
        detail = "The run is being cancelled, and goes on for now: ask again."
        raise ApiProblem("run-active", detail, headers={"Retry-After": "1"}) from error


async def _children_ended(runtime: WorkingRuntime, run_id: str) -> None:
    """Wait for the ends of a run's own runs: they are cancelled with it, and go with it."""
    async for child in runtime.list(parent_id=run_id):
        await until_ended(runtime, child.run_id)
        await _children_ended(runtime, child.run_id)


ROUTES = (
    Route("GET", "/health", health, None),
    Route("GET", "/workflows", list_workflows, "read"),
    Route("GET", "/workflows/{name}/schema", schema, "read"),
    Route("GET", "/workflows/{name}/events", events_schema, "read"),
    Route("GET", "/workflows/{name}/representation", representation, "read"),
    Route("POST", "/workflows/{name}/run", run, "start"),
    Route("POST", "/workflows/{name}/run-nowait", run_nowait, "start"),
    Route("GET", "/handlers", handlers, "read"),
    Route("GET", "/handlers/{handler_id}", handler, "read"),
    Route("GET", "/results/{handler_id}", results, "read"),
    Route("GET", "/events/{handler_id}", events, "read"),
    Route("POST", "/events/{handler_id}", send_event, "event"),
    Route("POST", "/handlers/{handler_id}/cancel", cancel, "start"),
)
