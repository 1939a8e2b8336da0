"""Commands: what to do. They are the only output of the reducer.

`CommandQueueEvent` never leaves the engine: it is reduced within the same transition. All others go out in order,
after the tick that caused them has been committed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.core.body_effects import CollectBuffer
from loom.core.persistent import EMPTY_MAP, Map
from loom.core.records import EventRecord, Failure, Notice, Published
from loom.core.state import ChildEnd, WorkItem
from loom.core.ticks import TickAddEvent


class CommandQueueEvent(msgspec.Struct, frozen=True, tag=True):
    """Add a tick to the buffer, at once."""

    tick: TickAddEvent


class CommandRunWorker(msgspec.Struct, frozen=True, tag=True):
    """Run a step's body.

    `seq` comes back with the result. `execution` is the same when the same attempt runs again after a crash: the
    effects that its item lists are applied already and must not be applied twice.
    """

    seq: int
    step: str
    item: WorkItem
    """What to work on, and what its earlier attempts have left."""
    worker_id: int
    execution: int
    started_at: float
    snapshot: Map[str, CollectBuffer] = EMPTY_MAP
    """The step's collect buffers at this moment, by buffer id."""
    records: Map[str, Any] = EMPTY_MAP
    """Results that were recorded with the item, by name: they are not worked out again."""


class CommandResumeWorker(msgspec.Struct, frozen=True, tag=True):
    """Let a suspended body go on: its wait is over."""

    seq: int
    step: str
    key: str
    event: EventRecord | None = None
    """The answer; None after a timeout or a sleep."""
    timed_out: bool = False
    worker_id: int | None = None
    value: Any = None
    """The result that is recorded now."""
    child: ChildEnd | None = None
    """How the child run ended that the body waited for."""


class CommandStartTimer(msgspec.Struct, frozen=True, tag=True):
    """Send `TickTimerFired` (for the run's timeout `TickTimeout`) when `due` is reached, not earlier."""

    seq: int
    due: float
    purpose: Literal["retry", "waiter", "sleep", "timeout", "plan"]


class CommandCancelTimer(msgspec.Struct, frozen=True, tag=True):
    """Cancel the timer of this number."""

    seq: int


class CommandStopWork(msgspec.Struct, frozen=True, tag=True):
    """Stop all bodies that began before this command. What they still tell is stale. The run goes on."""


class CommandStartChild(msgspec.Struct, frozen=True, tag=True):
    """Begin another run, and send `TickChildEnded` with this number when it is over."""

    seq: int
    run_id: str
    workflow: str
    start: Any = None


class CommandCancelChild(msgspec.Struct, frozen=True, tag=True):
    """Cancel the child run of this number."""

    seq: int
    run_id: str


class CommandPublishEvent(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Put an event on the run's stream. `cursor` counts all of a run's stream from 0."""

    cursor: int
    event: Published


class CommandWarn(msgspec.Struct, frozen=True, tag=True):
    """Write a warning to the operator's log."""

    notice: Notice


class CommandCompleteRun(msgspec.Struct, frozen=True, tag=True):
    """End the run with this event, which may tell of a failure."""

    result: EventRecord


class CommandFailWorkflow(msgspec.Struct, frozen=True, tag=True):
    """End the run with a failure in this step that nothing recovered."""

    step: str
    failure: Failure


class CommandHalt(msgspec.Struct, frozen=True, tag=True):
    """Stop the run without a result: it was cancelled, timed out, or cannot go on with this code."""

    reason: Literal["cancelled", "timed_out", "parked"]
    message: str = ""


TerminalCommand = CommandCompleteRun | CommandFailWorkflow | CommandHalt
WorkflowCommand = (
    CommandQueueEvent
    | CommandRunWorker
    | CommandResumeWorker
    | CommandStartTimer
    | CommandCancelTimer
    | CommandStopWork
    | CommandStartChild
    | CommandCancelChild
    | CommandPublishEvent
    | CommandWarn
    | TerminalCommand
)
