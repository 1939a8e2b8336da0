"""The operations of the compatible routes. May import the shapes and the words for operations."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from loom.runtime.shapes import Envelope
from loom.server.openapi_model import (
    CURSOR,
    LAST_EVENT_ID,
    Answer,
    Body,
    Cursor,
    Operation,
    Operations,
    Param,
    Seconds,
)
from loom.server.shapes_compat import (
    Cancelled,
    EventSchemas,
    HandlerData,
    HandlerResult,
    Handlers,
    HealthStatus,
    Representation,
    Sent,
    StartAndStop,
    WorkflowNames,
)
from loom.server.shapes_requests import RunRequest, SendRequest

_FAILED = "The run has failed or was cancelled."


def _handler(operation_id: str, summary: str, shape: type, *, deprecated: bool = False) -> Operation:
    return Operation(
        operation_id,
        "compatible",
        summary,
        {
            200: Answer("The run has completed.", shape),
            202: Answer("The run goes on.", shape),
            500: Answer(_FAILED, shape),
        },
        ("result-unreadable",),
        deprecated=deprecated,
    )


def _about(operation_id: str, summary: str, shape: type) -> Operation:
    return Operation(operation_id, "compatible", summary, {200: Answer("What was asked for.", shape)})


COMPATIBLE: Operations = {
    ("GET", "/health"): Operation(
        "health",
        "compatible",
        "Whether the server can do its work",
        {200: Answer("It can.", HealthStatus), 503: Answer("It cannot.", HealthStatus)},
    ),
    ("GET", "/workflows"): _about("listWorkflows", "The workflows that can be started", WorkflowNames),
    ("GET", "/workflows/{name}/schema"): _about("getSchemas", "What runs begin and end with", StartAndStop),
    ("GET", "/workflows/{name}/events"): _about("getEventSchemas", "The events of a workflow", EventSchemas),
    ("GET", "/workflows/{name}/representation"): _about("getRepresentation", "A workflow as a graph", Representation),
    ("POST", "/workflows/{name}/run"): Operation(
        "runWorkflow",
        "compatible",
        "Start a run and wait for its end",
        {200: Answer("The run has completed.", HandlerData), 500: Answer(_FAILED, HandlerData)},
        ("run-exists", "result-unreadable", "draining", "memory-exceeded"),
        body=Body(RunRequest),
    ),
    ("POST", "/workflows/{name}/run-nowait"): Operation(
        "startWorkflow",
        "compatible",
        "Start a run",
        {200: Answer("It is stored.", HandlerData)},
        ("run-exists", "draining", "memory-exceeded"),
        body=Body(RunRequest),
    ),
    ("GET", "/handlers"): Operation(
        "listHandlers",
        "compatible",
        "List handlers, newest first",
        {200: Answer("Those that match, up to 8 MiB of them: go on with `next_cursor`.", Handlers)},
        params=(
            Param("status", list[str], "Any of these; one that is not known matches nothing, an empty one counts not."),
            Param("workflow_name", list[str], "Of any of these workflows."),
            Param("idle", bool, "Whether only something from outside can move the run."),
            Param("idle_duration_gt", Seconds, "Idle for more than so many seconds."),
            Param("limit", Annotated[int, Meta(ge=1, le=10_000)], "How many at most; 10,000 if nothing is said."),
            CURSOR,
        ),
    ),
    ("GET", "/handlers/{handler_id}"): _handler("getHandler", "Get a handler", HandlerData),
    ("GET", "/results/{handler_id}"): _handler(
        "getResult", "Get a handler with its plain result", HandlerResult, deprecated=True
    ),
    ("GET", "/events/{handler_id}"): Operation(
        "streamEvents",
        "compatible",
        "Read the events of a handler's run as they come",
        {
            200: Answer("The events; the stream ends with the run.", Envelope, is_stream=True),
            204: Answer("The stream has ended before this cursor."),
        },
        ("draining",),
        params=(
            Param("sse", bool, "Server-sent events, as it is if nothing is said; else lines of JSON."),
            Param("include_internal", bool, "With the engine's own events too."),
            Param("after_sequence", Cursor | Literal["now"], "Begin behind this one; `now` if nothing is said."),
            Param("include_qualified_name", bool, "With the full names of classes, as it is if nothing is said."),
            LAST_EVENT_ID,
        ),
    ),
    ("POST", "/events/{handler_id}"): Operation(
        "sendHandlerEvent",
        "compatible",
        "Send an event to a handler's run",
        {200: Answer("The event is stored.", Sent)},
        ("run-finished",),
        body=Body(SendRequest),
    ),
    ("POST", "/handlers/{handler_id}/cancel"): Operation(
        "cancelHandler",
        "compatible",
        "Cancel a handler's run",
        {200: Answer("It is stored.", Cancelled)},
        ("run-active",),
        params=(Param("purge", bool, "Delete all of the handler; needs the scope `admin`."),),
    ),
}
