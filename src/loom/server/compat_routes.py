"""The compatible routes: the protocol of llama-agents-server, which its client speaks without a change."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from loom.api.compatible import (
    Cancelled,
    Envelope,
    EventSchemas,
    HandlerData,
    HandlerResult,
    Handlers,
    HealthStatus,
    Representation,
    RunRequest,
    SendRequest,
    Sent,
    StartAndStop,
    WorkflowNames,
)
from loom.api.requests import Seconds
from loom.effects.flow_events import FlowEvent
from loom.effects.off_loop import aside_if_large
from loom.flows.action_types import type_words
from loom.runtime.durable.names import HANDLER
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.runtime.flow import Flow
from loom.server.answers import JsonAnswer, json_bytes
from loom.server.call import is_offered, new_id, offered, read_json
from loom.server.caller_events import check_sent, event_from, event_names, start_from
from loom.server.caller_limits import check_open
from loom.server.compat_handlers import (
    Beginning,
    HandlerBusy,
    begin,
    handler_data,
    handler_of,
    latest_run,
    list_handlers,
    result_of,
    until_ended,
    unwrapped,
)
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, LAST_EVENT_ID, Cursor, Param, Reply, RouteList
from loom.server.streams import compatible_stream
from loom.server.v1.health import unready
from loom.server.waits import wait_for_end, while_connected
from loom.steps.errors import ContextSerdeError, WorkflowRuntimeError
from loom.steps.events import StopEvent
from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowStepNode,
    get_workflow_representation,
)
from loom.store.errors import RunFinished, RunNotFound, StoreError, StoreUnavailable
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.flows.program import Program
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.call import Call
    from loom.steps.workflow import Workflow
    from loom.store.records import RunRow

route = RouteList("compatible")

_FAILED = "The run has failed or was cancelled."

_CODES = {"running": 202, "completed": 200, "failed": 500, "cancelled": 500}
_CANCEL_S = 10.0
"""How long a cancelled run may take to end before its caller is told."""
_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}


# -- workflows --------------------------------------------------------------------------------------------------------


@route(
    "GET",
    "/health",
    "health",
    scope=None,
    summary="Whether the server can do its work",
    replies={200: Reply("It can.", HealthStatus), 503: Reply("It cannot.", HealthStatus)},
)
async def health(call: Call) -> Response:
    """Whether the server can do its work."""
    reasons = [reason for reason in await unready(call) if reason != "draining"]
    answer: HealthStatus = {"status": "unhealthy" if reasons else "healthy"}
    return JsonAnswer(answer, 503 if reasons else 200)


@route(
    "GET",
    "/workflows",
    "listWorkflows",
    scope="read",
    summary="The workflows that can be started",
    replies={200: Reply("What was asked for.", WorkflowNames)},
)
async def list_workflows(call: Call) -> Response:
    """The names of all workflows."""
    answer: WorkflowNames = {"workflows": [name for name in offered(call.runtime) if call.principal.sees(name)]}
    return JsonAnswer(answer)


@route(
    "GET",
    "/workflows/{name}/schema",
    "getSchemas",
    scope="read",
    summary="What runs begin and end with",
    replies={200: Reply("What was asked for.", StartAndStop)},
)
async def schema(call: Call) -> Response:
    """What runs of a workflow begin and end with."""
    return JsonAnswer(schemas_of((await _code(call)).workflow))


@route(
    "GET",
    "/workflows/{name}/events",
    "getEventSchemas",
    scope="read",
    summary="The events of a workflow",
    replies={200: Reply("What was asked for.", EventSchemas)},
)
async def events_schema(call: Call) -> Response:
    """The events of a workflow."""
    answer: EventSchemas = {"events": event_schemas((await _code(call)).workflow)}
    return JsonAnswer(answer)


@route(
    "GET",
    "/workflows/{name}/representation",
    "getRepresentation",
    scope="read",
    summary="A workflow as a graph",
    replies={200: Reply("What was asked for.", Representation)},
)
async def representation(call: Call) -> Response:
    """A workflow as a graph."""
    answer: Representation = {"graph": graph_of((await _code(call)).workflow)}
    return JsonAnswer(answer)


async def _code(call: Call) -> Registration:
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


@route(
    "POST",
    "/workflows/{name}/run",
    "runWorkflow",
    scope="start",
    summary="Start a run and wait for its end",
    body=RunRequest,
    replies={200: Reply("The run has completed.", HandlerData), 500: Reply(_FAILED, HandlerData)},
    problems=("run-exists", "result-unreadable", "draining", "memory-exceeded"),
)
async def run(call: Call) -> Response:
    """Start a run and wait for its end."""
    run_id = await _begin(call)
    row = await while_connected(call, until_ended(call.runtime, run_id))
    call.is_outcome = True
    return await _handler(call.runtime, row, 200 if row.head.status == "completed" else 500)


@route(
    "POST",
    "/workflows/{name}/run-nowait",
    "startWorkflow",
    scope="start",
    summary="Start a run",
    body=RunRequest,
    replies={200: Reply("It is stored.", HandlerData)},
    problems=("run-exists", "draining", "memory-exceeded"),
)
async def run_nowait(call: Call) -> Response:
    """Start a run."""
    row = await call.runtime.row(await _begin(call))
    answer: HandlerData = {**handler_data(row), "status": "running", "error": None, "completed_at": None}
    return JsonAnswer(answer)


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


@route(
    "GET",
    "/handlers",
    "listHandlers",
    scope="read",
    summary="List handlers, newest first",
    params=(
        Param("status", list[str], "Any of these; one that is not known matches nothing, an empty one counts not."),
        Param("workflow_name", list[str], "Of any of these workflows."),
        Param("idle", bool, "Whether only something from outside can move the run."),
        Param("idle_duration_gt", Seconds, "Idle for more than so many seconds."),
        Param("limit", Annotated[int, Meta(ge=1, le=10000)], "How many at most; 10,000 if nothing is said."),
        CURSOR,
    ),
    replies={200: Reply("Those that match, up to 8 MiB of them: go on with `next_cursor`.", Handlers)},
)
async def handlers(call: Call) -> Response:
    """The handlers that match."""
    return await list_handlers(call)


@route(
    "GET",
    "/handlers/{handler_id}",
    "getHandler",
    scope="read",
    summary="Get a handler",
    replies={
        200: Reply("The run has completed.", HandlerData),
        202: Reply("The run goes on.", HandlerData),
        500: Reply(_FAILED, HandlerData),
    },
    problems=("result-unreadable",),
)
async def handler(call: Call) -> Response:
    """One handler."""
    row = await handler_row(call)
    return await _handler(call.runtime, row, _CODES[row.head.status])


@route(
    "GET",
    "/results/{handler_id}",
    "getResult",
    scope="read",
    summary="Get a handler with its plain result",
    replies={
        200: Reply("The run has completed.", HandlerResult),
        202: Reply("The run goes on.", HandlerResult),
        500: Reply(_FAILED, HandlerResult),
    },
    problems=("result-unreadable",),
    deprecated=True,
)
async def results(call: Call) -> Response:
    """One handler, with its result instead of an envelope around it."""
    row = await handler_row(call)
    result = await result_of(call.runtime, row)
    if result.unreadable:
        raise _unreadable()
    return await _answer(unwrapped(handler_data(row), result), _CODES[row.head.status])


async def _handler(runtime: WorkerRuntime, row: RunRow, status: int) -> Response:
    result = await result_of(runtime, row)
    if result.unreadable:
        raise _unreadable()
    return await _answer(handler_data(row, result), status)


async def _answer(data: HandlerData | HandlerResult, status: int = 200) -> Response:
    return Response(await aside_if_large(json_bytes, data), status, media_type="application/json")


def _unreadable() -> ApiProblem:
    return ApiProblem("result-unreadable", "The stored result cannot be decoded.")


async def handler_row(call: Call) -> RunRow:
    """The latest run of the handler that the path names. What a key may not see is not there for it."""
    row = await latest_run(call.runtime, call.request.path_params["handler_id"])
    if row is None or not is_offered(row.workflow) or not call.principal.sees(row.workflow):
        raise ApiProblem("run-not-found", "Handler not found")
    return row


@route(
    "POST",
    "/events/{handler_id}",
    "sendHandlerEvent",
    scope="event",
    summary="Send an event to a handler's run",
    body=SendRequest,
    replies={200: Reply("The event is stored.", Sent)},
    problems=("run-finished",),
)
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
    return JsonAnswer(answer)


@route(
    "GET",
    "/events/{handler_id}",
    "streamEvents",
    scope="read",
    summary="Read the events of a handler's run as they come",
    params=(
        Param("sse", bool, "Server-sent events, as it is if nothing is said; else lines of JSON."),
        Param("include_internal", bool, "With the engine's own events too."),
        Param("after_sequence", Cursor | Literal["now"], "Begin behind this one; `now` if nothing is said."),
        Param("include_qualified_name", bool, "With the full names of classes, as it is if nothing is said."),
        LAST_EVENT_ID,
    ),
    replies={
        200: Reply("The events; the stream ends with the run.", Envelope, is_stream=True),
        204: Reply("The stream has ended before this cursor."),
    },
    problems=("draining",),
)
async def events(call: Call) -> Response:
    """The events of a handler's run, as they come."""
    return await compatible_stream(call, await handler_row(call))


@route(
    "POST",
    "/handlers/{handler_id}/cancel",
    "cancelHandler",
    scope="start",
    summary="Cancel a handler's run",
    params=(Param("purge", bool, "Delete all of the handler; needs the scope `admin`."),),
    replies={200: Reply("It is stored.", Cancelled)},
    problems=("run-active",),
)
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
    return JsonAnswer(answer)


async def _cancelled(runtime: WorkerRuntime, row: RunRow) -> RunRow:
    """Cancel a run, and wait a while for its end, so that the next question finds it cancelled."""
    with suppress(RunFinished):  # its row tells how
        await runtime.cancel(row.run_id)
    return await wait_for_end(runtime, row.run_id, _CANCEL_S)


async def _purge(runtime: WorkerRuntime, last: RunRow) -> None:
    """Delete all runs of a handler, the latest one last: until then a repetition finds what is left."""
    older: list[RunRow] | None = None
    while older is None or older:
        rows = await runtime.store.find(RunQuery(tags={HANDLER: handler_of(last)}, limit=100, oldest_first=True))
        older = [row for row in rows if row.run_id != last.run_id]
        for row in older:
            await _delete(runtime, row)
    await _delete(runtime, last)


async def _delete(runtime: WorkerRuntime, row: RunRow) -> None:
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


async def _children_ended(runtime: WorkerRuntime, run_id: str) -> None:
    """Wait for the ends of a run's own runs: they are cancelled with it, and go with it."""
    async for child in runtime.list(parent_id=run_id):
        await until_ended(runtime, child.run_id)
        await _children_ended(runtime, child.run_id)


# -- what workflows look like -----------------------------------------------------------------------------------------

_PRIVATE = ("source_file", "source_line", "config_file", "config_value")


def schemas_of(workflow: Workflow) -> StartAndStop:
    """JSON Schemas of what runs begin and end with."""
    if isinstance(workflow, Flow):
        found = [trigger.schema for trigger in workflow.program.triggers if isinstance(trigger.schema, dict)]
        return {"start": found[0] if found else {}, "stop": StopEvent.model_json_schema()}
    return {
        "start": workflow.start_event_class.model_json_schema(),
        "stop": workflow.stop_event_class.model_json_schema(),
    }


def event_schemas(workflow: Workflow) -> list[dict[str, Any]]:
    """JSON Schemas of the events that a workflow knows; a flow takes any, by name."""
    classes = [FlowEvent] if isinstance(workflow, Flow) else workflow.events
    return [cls.model_json_schema() for cls in classes]


def graph_of(workflow: Workflow) -> dict[str, Any]:
    """A workflow as nodes and edges, without the places of its files and what its resources are configured with."""
    graph = _flow_graph(workflow.program) if isinstance(workflow, Flow) else get_workflow_representation(workflow)
    shown: dict[str, Any] = graph.model_dump(mode="json")
    for node in shown["nodes"]:
        node |= {name: None for name in _PRIVATE if name in node}
    return shown


def _flow_graph(program: Program) -> WorkflowGraph:
    """A flow as a graph: its triggers are events, its actions are steps, arrows are what runs after what."""
    triggers = [
        WorkflowEventNode(
            id=f"trigger:{trigger.name}", label=trigger.name, event_type=trigger.type, event_types=[trigger.type]
        )
        for trigger in program.triggers
    ]
    actions = [
        WorkflowStepNode(id=node.name, label=node.name, description=type_words(node.type)) for node in program.nodes
    ]
    roots = [program.nodes[index].name for index in program.blocks[0].roots]
    edges = [WorkflowGraphEdge(source=trigger.id, target=root) for trigger in triggers for root in roots]
    for node in program.nodes:
        edges += [WorkflowGraphEdge(source=program.nodes[before].name, target=node.name) for before, _ in node.after]
        inside = [program.nodes[index].name for block in node.blocks for index in program.blocks[block].roots]
        edges += [WorkflowGraphEdge(source=node.name, target=first, label="contains") for first in inside]
    return WorkflowGraph(name=program.name, nodes=[*triggers, *actions], edges=edges)
