"""What the compatible routes answer with: the shapes of their JSON. May import loom.runtime.shapes."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from loom.runtime.shapes import Envelope, Moment, Waiter  # noqa: TC001 - shapes are read at run time
from loom.store.records import RunStatus  # noqa: TC001


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
