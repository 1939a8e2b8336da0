"""What the compatible routes take and give: the JSON of llama-agents-server, whose client reads it.

Loom writes these answers and never reads them back, so they are dicts with known keys.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from loom.api.answers import Id, RunStatus
from loom.api.runs import Waiter

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time by ISO 8601 with its offset in digits, as the original writes it."""


class Envelope(TypedDict):
    """An event: its fields, its class, and the event classes above that one without `Event`."""

    value: dict[str, Any]
    type: str
    types: list[str] | None
    qualified_name: str | None


class _Handler(TypedDict):
    handler_id: str
    workflow_name: str
    run_id: str
    status: RunStatus
    error: str | None
    result_unreadable: bool
    started_at: Moment
    updated_at: Moment
    completed_at: Moment | None
    idle_since: Moment | None
    active_waiters: list[Waiter] | None


class HandlerData(_Handler):
    """A handler: the latest run under its name. Each key is always there."""

    result: Envelope | None


class HandlerResult(_Handler):
    """A handler with its result out of the envelope: the value of a plain `StopEvent`, else the event's fields."""

    result: Any


class Handlers(TypedDict):
    """Handlers, newest first; with a cursor if there are more."""

    handlers: list[HandlerData]
    next_cursor: str | None


class Detail(TypedDict):
    """Why a request was refused."""

    detail: str


class HealthStatus(TypedDict):
    """Whether the server can do its work."""

    status: Literal["healthy", "unhealthy"]


class WorkflowNames(TypedDict):
    """The workflows that can be started."""

    workflows: list[str]


class StartAndStop(TypedDict):
    """JSON Schemas of what runs begin and end with."""

    start: dict[str, Any]
    stop: dict[str, Any]


class EventSchemas(TypedDict):
    """JSON Schemas of the events that a workflow knows."""

    events: list[dict[str, Any]]


class Representation(TypedDict):
    """A workflow as nodes and edges."""

    graph: dict[str, Any]


class Sent(TypedDict):
    """The event is stored."""

    status: Literal["sent"]


class Cancelled(TypedDict):
    """The run was cancelled; with `purge` nothing of the handler is left."""

    status: Literal["cancelled", "deleted"]


class RunRequest(TypedDict):
    """A start: an event in its envelope or plain; `kwargs` serve as one if there is none. An empty context is none."""

    start_event: NotRequired[Any]
    kwargs: NotRequired[dict[str, Any] | None]
    handler_id: NotRequired[Id | None]
    context: NotRequired[dict[str, Any] | None]


class ClientEvent(TypedDict):
    """An event by its type and fields, `{type, value}`, or as older clients write it, `{qualified_name, data}`."""

    type: NotRequired[str]
    value: NotRequired[Any]
    qualified_name: NotRequired[str]
    data: NotRequired[Any]


class SendRequest(TypedDict):
    """An event for a handler, as an object or as its text in JSON."""

    event: ClientEvent | str
    step: NotRequired[str | None]
