"""What requests bring in their bodies, for the OpenAPI document: fields, which of them are needed, and their limits.

The routes read bodies themselves, since they name the place of whatever is wrong. May import msgspec and
loom.runtime.shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from loom.runtime.shapes import Id

Name = Annotated[str, Meta(min_length=1)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body that has no other fields than these."""


class StartRequest(Strict):
    """A start. `input` holds the start event's fields, or the body of a flow's trigger."""

    workflow: Name
    input: Any = None
    run_id: Id | None = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    version: Annotated[int, Meta(ge=1)] | None = None
    tags: dict[str, str] | None = None


class EventRequest(Strict):
    """An event for a run. One with an `event_id` that the run has had already changes nothing."""

    type: Name
    value: Any = None
    step: str | None = None
    waiter_id: str | None = None
    event_id: Id | None = None


class CancelRequest(Strict):
    """Why a run is cancelled."""

    reason: str | None = None


class BetterEvent(Strict):
    """An event by its type, with its fields."""

    type: Name
    value: Any = None


class RetryRequest(Strict):
    """What a failed run goes on with: an event in place of the one that failed it."""

    event: BetterEvent | None = None


class NoFields(Strict):
    """Nothing is asked: the body may be left out."""


class ForkRequest(Strict):
    """Where the new run begins."""

    tick: Annotated[int, Meta(ge=0)]
    run_id: Id | None = None


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


class ScheduleRequest(Strict):
    """A start that recurs: by one of `cron`, `every` (seconds) and `recurrence`."""

    name: Id
    workflow: Name
    cron: str | None = None
    every: float | None = None
    recurrence: dict[str, Any] | None = None
    time_zone: str | None = None
    input: Any = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    tags: dict[str, str] | None = None
    catch_up: bool | None = None
    paused: bool | None = None
