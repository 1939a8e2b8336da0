"""What requests bring: bodies, and the filters of a list of runs.

The server decodes bodies with these types, and a refusal names the place that does not fit. The client encodes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import msgspec
from msgspec import Meta

from loom.api.answers import Id, RunStatus

Name = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
"""A name. The route that looks it up refuses an empty one, with what it knows instead."""


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A body that has no other fields than these. A field that is null counts as left out."""

    __refusal__: ClassVar[str] = "The body must be an object."
    """What the server says to a value of another form."""


class StartRequest(Request):
    """A start. `input` holds the start event's fields, or the body of a flow's trigger."""

    workflow: Name
    input: Any = None
    run_id: Id | None = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    version: Annotated[int, Meta(ge=1)] | None = None
    tags: dict[str, str] | None = None


class EventRequest(Request):
    """An event for a run. One with an `event_id` that the run has had already changes nothing."""

    type: Name
    value: Any = None
    step: str | None = None
    waiter_id: str | None = None
    event_id: Id | None = None


class CancelRequest(Request):
    """Why a run is cancelled."""

    reason: str | None = None


class BetterEvent(Request):
    """An event by its type, with its fields."""

    __refusal__: ClassVar[str] = 'An event is an object {"type": "…", "value": {…}}.'

    type: Name
    value: Any = None


class RetryRequest(Request):
    """What a failed run goes on with: an event in place of the one that failed it."""

    event: BetterEvent | None = None


class NoFields(Request):
    """Nothing is asked: the body may be left out."""


class ForkRequest(Request):
    """Where the new run begins."""

    tick: Annotated[int, Meta(ge=0)]
    run_id: Id | None = None


class ScheduleRequest(Request):
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


class RunFilters(TypedDict, total=False):
    """Which runs to list. A list of values means any of them; what is left out, or None, does not filter."""

    status: RunStatus | list[RunStatus] | None
    workflow: str | list[str] | None
    idle: bool | None
    idle_longer_than: float | None
    """Seconds; implies running and idle."""
    waiting_for: str | None
    """The name of an event type."""
    created_after: datetime | None
    created_before: datetime | None
    tags: dict[str, str] | None
    """Runs that have all of these."""
    parent_id: str | None
    paused: bool | None
    parked: bool | None
    stuck: bool | None
    order: Literal["created_at", "-created_at"] | None
    """Newest first if nothing is said."""
    include: Literal["result"] | None
    """With the results of the runs, which are None otherwise."""
