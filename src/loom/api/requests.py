"""What requests bring: bodies, and the filters of a list of runs.

The server decodes bodies with these types, and a refusal names the place that does not fit. The client encodes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from loom.api.answers import Id, RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

Name = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
"""A name. The route that looks it up refuses an empty one, with what it knows instead."""


Seconds = Annotated[float, Meta(ge=0, le=9_999_999_999)]


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
    """Why a run is cancelled, and whether it ends at once, without its clean-up."""

    reason: str | None = None
    force: bool = False


class BetterEvent(Request):
    """An event by its type, with its fields."""

    __refusal__: ClassVar[str] = 'An event is an object {"type": "…", "value": {…}}.'

    type: Name
    value: Any = None


class RetryRequest(Request):
    """What a failed run goes on with: an event in place of the one that failed it."""

    event: BetterEvent | None = None


class TagsRequest(Request):
    """The tags that a run has from now on: others go."""

    tags: dict[str, str]


class NoFields(Request):
    """Nothing is asked: the body may be left out."""


class AddressRequest(Request):
    """Which signed address of a flow's trigger is wanted."""

    expires_in: Annotated[float, Meta(gt=0, le=9_999_999_999)] | None = None
    """Seconds until it expires; without, it is good until the key is rotated."""
    rotate: bool = False
    """Whether all addresses that were given out before end now."""


class SkipRequest(Request):
    """Which delay ends now: the one of this timer of the run's state; without it, all that can be skipped."""

    timer: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class ResumeRequest(Request):
    """What a run may do when it goes on: `max_depth` raises the limit of its chains of executions, if it has one."""

    max_depth: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class ForkRequest(Request):
    """Where the new run begins, and what is otherwise in it.

    `input` replaces what the run began with and needs tick 0, `store` has new values by dotted path, and `event` comes
    first.
    """

    tick: Annotated[int, Meta(ge=0)]
    run_id: Id | None = None
    input: Any = None
    event: BetterEvent | None = None
    store: dict[str, Any] | None = None


class SessionRequest(Request):
    """A login: the key that the session is made from."""

    key: Name


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


class InQuery(NamedTuple):
    """How the query of `GET /v1/runs` writes a filter; a list is a parameter that may be repeated."""

    type: Any
    about: str
    name: str | None = None
    """The name of the parameter; None: that of the filter."""


_Moment = Annotated[datetime, Meta(tz=True)]
_Tag = Annotated[str, Meta(pattern="^[^=]+=")]
_Order = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class RunFilters(TypedDict, total=False):
    """Which runs to list. A list of values means any of them; what is left out, or None, does not filter."""

    status: Annotated[RunStatus | list[RunStatus] | None, InQuery(list[RunStatus], "Any of these.")]
    workflow: Annotated[str | list[str] | None, InQuery(list[str], "Runs of any of these workflows.")]
    idle: Annotated[bool | None, InQuery(bool, "Whether only something from outside can move the run.")]
    idle_longer_than: Annotated[
        float | None, InQuery(Seconds, "Idle for more than so many seconds; implies running and idle.")
    ]
    waiting_for: Annotated[str | None, InQuery(str, "The name of an event type that the run waits for.")]
    id_prefix: Annotated[str | None, InQuery(Id, "What the id of the run begins with.")]
    created_after: Annotated[datetime | None, InQuery(_Moment, "Started after this moment.")]
    created_before: Annotated[datetime | None, InQuery(_Moment, "Started before this moment.")]
    updated_after: Annotated[datetime | None, InQuery(_Moment, "Changed after this moment.")]
    tags: Annotated[
        dict[str, str] | None,
        InQuery(list[_Tag], "A tag of the run in the form `name=value`; all of them, if several.", "tag"),
    ]
    parent_id: Annotated[str | None, InQuery(Id, "Children of this run.")]
    paused: Annotated[bool | None, InQuery(bool, "Whether the run is paused.")]
    parked: Annotated[bool | None, InQuery(bool, "Whether the run cannot go on with the code at hand.")]
    stuck: Annotated[
        bool | None, InQuery(bool, "Whether the run is idle, waits for nothing, and is neither paused nor parked.")
    ]
    asleep: Annotated[
        bool | None, InQuery(bool, "Whether only a timer will move the run: a sleep, a back-off, the delay of a loop.")
    ]
    waiting: Annotated[
        bool | None, InQuery(bool, "Whether the run waits for an event that a person or a program can send.")
    ]
    order: Annotated[
        _Order | None,
        InQuery(_Order, "By the start or by the last change, oldest or newest first; by default the newest start."),
    ]
    include: Annotated[
        Literal["result"] | None,
        InQuery(Literal["result"], "With the results of the runs, which are null otherwise."),
    ]


def filter_parameters() -> Iterator[tuple[str, InQuery]]:
    """Iterate over the filters as the query has them, each with the name of its parameter."""
    for name, hint in get_type_hints(RunFilters, include_extras=True).items():
        told: InQuery = hint.__metadata__[0]
        yield told.name or name, told


def query_of(filters: RunFilters) -> dict[str, Any]:
    """Write filters as parameters of a query; one that is None, or has no tags, is left out by the client."""
    tags = filters.get("tags") or {}
    plain = {name: value for name, value in filters.items() if name != "tags"}
    return {**plain, "tag": [f"{name}={value}" for name, value in tags.items()] or None}
