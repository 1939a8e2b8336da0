"""What a server answers with, typed as the HTTP API lays it out. May import msgspec and loom.store.records.

Keys that a newer server adds are ignored; those that an older one leaves out have defaults.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

import msgspec

from loom.api.refusals import RefusedEvent
from loom.store.records import RunStatus

ItemT = TypeVar("ItemT")


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a run waits for."""

    event_type: str
    step: str | None = None
    waiter_id: str | None = None
    requirements: dict[str, Any] | None = None
    since: datetime | None = None
    deadline: datetime | None = None
    refused: RefusedEvent | None = None
    """The answer that was refused last, while the right one is waited for."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """What a run failed with."""

    code: str | None = None
    """`timeout` if the run has taken too long; `unanswered` if it goes on, but nobody is there to say how it is."""
    type: str | None = None
    message: str = ""
    step: str | None = None
    attempts: int | None = None
    traceback: str | None = None
    """Where the last attempt failed, with the author's frames first; None in lists."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, as the server tells it."""

    run_id: str
    workflow: str
    status: RunStatus
    kind: Literal["steps", "flow"] | None = None
    version: str | int | None = None
    idle_since: datetime | None = None
    active_waiters: list[Waiter] | None = None
    """What it waits for; None after its end."""
    next_timer_at: datetime | None = None
    tick: int | None = None
    """Its last tick."""
    cursor: int | None = None
    """The number of its last event."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    result: Any = None
    """Of steps `{type, value}`, of a flow `{status, outputs, response}`."""
    error: RunError | None = None
    forked_from: Any = None
    handler_id: str | None = None
    paused: bool = False
    parked: str | None = None
    """Why it cannot go on with the code at hand."""
    stuck: str | None = None
    """Why the run is idle although no step, timer or waiter can move it, and it is neither paused nor parked."""
    kept_events: int = 0
    """Events that came early and wait for somebody to ask for them."""
    tags: dict[str, str] = {}
    parent_id: str | None = None
    in_memory: bool = False
    """Whether some process holds it in memory."""

    @property
    def finished(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status != "running"

    @property
    def idle(self) -> bool:
        """Whether only something from outside can move it."""
        return self.idle_since is not None


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


class Page(msgspec.Struct, Generic[ItemT], frozen=True):
    """A part of a list, and where the next part begins."""

    items: list[ItemT]
    next_cursor: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event that was sent. It is stored, whatever is said here."""

    tick: int | None = None
    delivered: str | None = None
    """`waiter`, `step`, `kept`, or `inbox` if another process works on the run.

    None of a duplicate, and of an event that nobody takes and that is not kept.
    """
    duplicate: bool = False


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a run has published. Its `seq` is the cursor to go on from."""

    seq: int
    at: datetime | None = None
    type: str
    types: list[str] | None = None
    """The classes above its own."""
    value: Any = None

    @property
    def terminal(self) -> bool:
        """Whether it tells the end of the run."""
        return self.type == "StopEvent" or "StopEvent" in (self.types or ())


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """A tick of a run, and on request the commands that it led to."""

    seq: int
    at: datetime
    tick: Any
    commands: list[Any] | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of reducing the ticks of a run again."""

    run_id: str
    replay: Literal["same", "different"]
    first_tick: int = 0
    """Where it began: 0, or behind what was pruned."""
    ticks: int = 0
    events: int = 0
    snapshot: int | None = None
    """After how many ticks the snapshot was made that was compared, if there is one."""
    differences: list[str] = []


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """How far a loop is."""

    name: str
    path: str
    type: str
    status: str
    condition: str | None = None
    condition_result: bool | None = None
    iteration: int = 0
    max_iterations: int | None = None
    timeout: float | str | None = None
    start_time: datetime | None = None
    duration: float | None = None
    last_result: Any = None
    next_iteration_at: datetime | None = None
    parent: str | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an action of a flow."""

    name: str
    path: str | None = None
    type: str | None = None
    status: str
    code: str | None = None
    inputs: Any = None
    outputs: Any = None
    error: Any = None
    iterations: Any = None


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a definition, or worth knowing about it."""

    severity: str = "error"
    code: str | None = None
    path: str = ""
    message: str
    line: int | None = None
    column: int | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that the server knows."""

    name: str
    kind: str | None = None
    version: str | int | None = None
    etag: str | None = None
    updated_at: datetime | None = None


class PutDefinition(Definition, frozen=True, kw_only=True):
    """A flow that is stored now, and what is worth knowing about it."""

    warnings: list[Diagnostic] = []


class DefinitionVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One content that a flow has had."""

    version: int
    digest: str
    etag: str | None = None
    created_at: datetime | None = None
    current: bool = False
    """Whether new runs begin with it."""


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a definition can be used."""

    valid: bool
    diagnostics: list[Diagnostic] = []


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server takes work, and if not, why."""

    ready: bool
    reasons: list[str] = []


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring start."""

    name: str
    workflow: str
    recurrence: dict[str, Any] | None = None
    input: Any = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    tags: dict[str, str] = {}
    catch_up: bool = False
    trigger: str | None = None
    """The trigger of a flow that it was made for."""
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_run_id: str | None = None
    last_error: str | None = None
    """Why the last occurrence started no run."""
    paused: bool = False
    run_id: str | None = None
    """The run that it is."""
