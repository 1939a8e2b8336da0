"""Runs as plain data for programs: the shapes of the JSON that `/v1` answers with, and that commands print.

The functions of `loom.runtime.views` have these types, and the server's OpenAPI document is made of them. Keys may be
added to a shape later; those that are there stay. May import msgspec and loom.store.records.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from loom.api.attempts import ExecutingAttempt, FailedAttempt  # noqa: TC001 - shapes are read at run time
from loom.api.refusals import RefusedEvent  # noqa: TC001 - shapes are read at run time
from loom.store.records import RunStatus  # noqa: TC001 - shapes are read at run time

ID_PATTERN = r"^[A-Za-z0-9._:~-]{1,200}$"
"""Ids of runs and of events."""

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in UTC, by ISO 8601."""
Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Kind = Literal["steps", "flow"]
"""A workflow in Python, or a declarative one."""


class Waiter(TypedDict):
    """Something that a run waits for."""

    step: str
    waiter_id: str | None
    event_type: str
    requirements: dict[str, Any]
    since: Moment | None
    deadline: Moment | None
    refused: RefusedEvent | None


class RunError(TypedDict):
    """What a run failed with; the code of one that took too long is `timeout`.

    `traceback` is where the last attempt failed, with the author's frames first; null in lists.

    On a Temporal cluster a run that goes on has one with the code `unanswered`, if no worker is there to say how it is.
    """

    code: str
    type: str
    message: str
    step: str | None
    attempts: int | None
    traceback: str | None


class RunResult(TypedDict):
    """What a run ended with: `{type, value}` of a workflow in Python, `{status, outputs, response}` of a flow."""

    type: NotRequired[str]
    value: NotRequired[Any]
    status: NotRequired[str]
    outputs: NotRequired[Any]
    response: NotRequired[Any]


class Run(TypedDict):
    """A run at one moment, whatever its status."""

    run_id: Id
    workflow: str
    kind: Kind
    version: int | None
    status: RunStatus
    idle_since: Moment | None
    active_waiters: list[Waiter] | None
    next_timer_at: Moment | None
    tick: int
    cursor: int
    created_at: Moment
    updated_at: Moment
    completed_at: Moment | None
    result: RunResult | None
    error: RunError | None
    forked_from: str | None
    handler_id: str
    paused: bool
    parked: str | None
    stuck: str | None
    kept_events: int
    tags: dict[str, str]
    parent_id: str | None
    in_memory: bool


class StreamEntry(TypedDict):
    """An event on the stream of a run; `seq` is the cursor to go on from."""

    seq: int
    at: Moment
    type: str
    types: list[str]
    value: dict[str, Any]


class Envelope(TypedDict):
    """An event: its fields, its class, and the event classes above that one without `Event`."""

    value: dict[str, Any]
    type: str
    types: list[str] | None
    qualified_name: str | None


class HistoryItem(TypedDict):
    """A tick of a run, its fields beside its `type`; on request also the commands that it led to."""

    seq: int
    at: Moment
    tick: dict[str, Any]
    commands: NotRequired[list[dict[str, Any]]]


class StepState(TypedDict):
    """How many pieces of work a step has."""

    step: str
    executing: int
    waiting: int
    queued: int
    delayed: int


class TimerState(TypedDict):
    """A timer that is armed."""

    timer: int
    due: Moment
    purpose: str
    step: str | None


class KeptState(TypedDict):
    """Events that came early and wait for somebody to ask for them."""

    event_type: str
    count: int


class ChildState(TypedDict):
    """A child run under way."""

    run_id: Id
    workflow: str
    step: str | None
    since: Moment | None


class Loop(TypedDict):
    """How far a loop is. Lengths of time are seconds; a loop that is over no longer knows its limits."""

    name: str
    path: str
    type: str
    status: Literal["running", "complete", "failed", "timeout"]
    condition: str | None
    condition_result: bool | None
    iteration: int
    max_iterations: int | None
    timeout: float | None
    start_time: Moment | None
    duration: float | None
    last_result: Any
    next_iteration_at: Moment | None
    parent: str | None


class LoopState(TypedDict):
    """A loop in the state of a run: as `Loop`, and it tells whether it waits for its next iteration."""

    name: str
    path: str
    type: str
    status: Literal["running", "waiting"]
    condition: str | None
    condition_result: bool | None
    iteration: int
    max_iterations: int
    timeout: float | None
    start_time: Moment
    duration: float
    last_result: Any
    next_iteration_at: Moment | None
    parent: str | None


class ActionUnderWay(TypedDict):
    """An action that something outside does, or that waits."""

    name: str
    path: str
    type: str
    status: Literal["running", "waiting", "retrying"]
    since: Moment
    due: Moment | None
    attempt: int
    error: str | None
    parent: str | None
    max_attempts: int
    code: str | None
    failed_at: Moment | None
    attempt_since: Moment | None


class Action(TypedDict):
    """What became of an action of a flow so far; of its last repetition, if there are several."""

    name: str
    path: str
    type: str
    status: str
    code: str | None
    inputs: Any
    outputs: Any
    error: Any
    iterations: int | None
    started: Moment | None
    ended: Moment | None


class StateDetails(TypedDict):
    """What a run of either kind does, waits for and keeps."""

    active_waiters: list[Waiter]
    steps: list[StepState]
    timers: list[TimerState]
    kept: list[KeptState]
    children: list[ChildState]
    executing: list[ExecutingAttempt]
    failed_attempts: list[FailedAttempt]
    refused: list[RefusedEvent]


class FlowDetails(TypedDict):
    """How far a flow is."""

    loops: list[LoopState]
    under_way: list[ActionUnderWay]
    actions: list[Action]
    variables: dict[str, Any]


class Replay(TypedDict):
    """Whether the journal of a run, reduced again, gives what is stored."""

    run_id: Id
    replay: Literal["same", "different"]
    first_tick: int
    ticks: int
    events: int
    snapshot: int | None
    differences: list[str]


class State(StateDetails):
    """A run as it is, or as it was after a tick. One whose journal cannot be read says so, and nothing else."""

    run_id: Id
    tick: int
    at: Moment | None
    is_running: bool | None
    idle_since: Moment | None
    damaged: str | None
    loops: list[LoopState]
    store: NotRequired[dict[str, Any]]
    under_way: NotRequired[list[ActionUnderWay]]
    actions: NotRequired[list[Action]]
    variables: NotRequired[dict[str, Any]]
