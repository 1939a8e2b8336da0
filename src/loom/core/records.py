"""The records that ticks, commands and state are made of: events, failures, reports.

All of it is plain data, whatever an author wrote it as. The engine never sees a class of the author's, so it can route,
store and replay a run in a process that has none of its code.

- **Events and failures** have an opaque body, which only the edge opens.
- **Reports** are what the engine itself puts on a run's stream. The edge turns them into events.

Most records are stored as arrays: a new field goes to the end and has a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    Opaque = Any
else:

    class _Anything(type):
        def __instancecheck__(cls, _value: object) -> bool:
            return True

    class Opaque(metaclass=_Anything):
        """The type of a place that may hold a record of the engine among other things.

        It accepts whatever `Any` does. But a decoder asks its hook about a class that it does not know, and so the
        codec sees what the place holds.
        """


class EventKind(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The type of an event as the engine knows it: names only, never a class.

    One instance per type is shared by all its events, so a kind costs nothing per event.
    """

    name: str
    """The wire name, `module.Class`."""
    bases: tuple[str, ...] = ()
    """Wire names of its event superclasses, nearest first."""
    label: str = ""
    """The short class name that people see."""
    shown: str = ""
    """What `str(type)` says, for the stream's step reports."""

    def is_a(self, name: str) -> bool:
        """Return whether this is the named type or derives from it."""
        return name == self.name or name in self.bases


SHARED, CHECKED, UNCHECKED = 1, 2, 4
"""The marks of an event record, as bits of its field `shared`."""
MARKS, _DEPTH = 7, 3
"""The bits of all marks, and how many there are: the depth is above them."""


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """An event: its kind and an opaque body (a live object in memory, bytes where it is stored).

    Events that the engine itself makes have a `StepFailure` or a `Release` as their body; the
    edge turns them into what the author's code expects.
    """

    kind: EventKind
    body: Opaque = None
    shared: bool | int = False
    """Its marks. `SHARED`: more than one takes it, so that each must get a copy. `CHECKED`: it fitted its class when it
    was accepted or made. `UNCHECKED`: it was accepted where its class was not known. Above them is its depth, in runs
    that count it. A record without marks and depth is written as it was before there were any, byte for byte: sizes
    decide where a flush is split."""

    @property
    def is_shared(self) -> bool:
        """Tell whether more than one step or waiter takes it."""
        return bool(self.shared & SHARED)

    @property
    def checked(self) -> bool | None:
        """Tell whether it was compared with its class; None if it was stored by a version that did not record that."""
        if self.shared & UNCHECKED:
            return False
        return True if self.shared & CHECKED else None

    @property
    def depth(self) -> int:
        """Tell how many executions have led to it, each caused by the one before, since input from outside or a timer.

        0 for an event from outside, and in runs without a limit (see `loom.core.kernel.depth`).
        """
        return self.shared >> _DEPTH

    def at_depth(self, depth: int) -> EventRecord:
        """Return the record at another depth."""
        return EventRecord(self.kind, self.body, self.shared & MARKS | depth << _DEPTH)

    def for_many(self) -> EventRecord:
        """Return the record, marked as one that more than one takes."""
        return EventRecord(self.kind, self.body, self.shared | SHARED if self.shared else True)

    def as_checked(self) -> EventRecord:
        """Return the record, marked as one that fits its class."""
        return EventRecord(self.kind, self.body, CHECKED)

    def as_unchecked(self) -> EventRecord:
        """Return the record, marked as one that was not compared with its class."""
        return EventRecord(self.kind, self.body, UNCHECKED)

    def without_marks(self) -> EventRecord:
        """Return the record as it was written before there were marks: a repeated start must have the same bytes."""
        return EventRecord(self.kind, self.body) if self.shared else self

    def fingerprint(self) -> int:
        """Return a number that tells events of one wait from each other; 0 for an event that is not stored as text."""
        return crc32(self.body.encode("utf-8", "surrogatepass")) if isinstance(self.body, str) else 0


def deepest_of(events: Iterable[EventRecord]) -> int:
    """Return the depth of the deepest of these events; 0 if there are none."""
    return max((event.shared for event in events), default=0) >> _DEPTH


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed, as data. `body` may hold the live exception where nothing is stored."""

    type: str
    message: str
    body: Any = None
    traceback: str = ""
    """Where it was raised, as text for people: made at the edge, never read here. Empty if none was made."""


class Traceback(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The newest traceback of a run: whose it is, and its text."""

    step: str
    item: int
    """The work item; of a flow, the number of the action."""
    text: str


def without_traceback(failure: Failure) -> Failure:
    """Drop the traceback of a failure that a state may hold many of: a state keeps the newest of a run only."""
    return replace(failure, traceback="") if failure.traceback else failure


class StepFailure(msgspec.Struct, frozen=True, tag=True):
    """The body of the event that a recovery step receives when another step has failed for good."""

    step: str
    input: EventRecord
    failure: Failure
    attempts: int
    elapsed_s: float
    failed_at: float


class Cancellation(msgspec.Struct, frozen=True, tag=True):
    """The body of the event that a clean-up step receives when its run is cancelled."""

    reason: str
    steps: tuple[str, ...]
    """The steps that had work under way: queued, executing, waiting or to be tried again."""
    at: float


class Release(msgspec.Struct, frozen=True, tag=True):
    """The body of the event that fires a join: the collected members of one stream."""

    stream: int
    step: str
    members: tuple[EventRecord, ...]


START_EVENT = "workflows.events.StartEvent"
STOP_EVENT = "workflows.events.StopEvent"
INPUT_REQUIRED_EVENT = "workflows.events.InputRequiredEvent"
EVENT = "workflows.events.Event"

STEP_FAILED_KIND = EventKind(
    "workflows.events.StepFailedEvent", (EVENT,), "StepFailedEvent", "<class 'workflows.events.StepFailedEvent'>"
)
RUN_CANCELLED_KIND = EventKind(
    "loom.RunCancelledEvent", (EVENT,), "RunCancelledEvent", "<class 'loom.steps.events.RunCancelledEvent'>"
)
RELEASE_KIND = EventKind(
    "workflows.events.CollectionReleaseEvent",
    (EVENT,),
    "CollectionReleaseEvent",
    "<class 'workflows.events.CollectionReleaseEvent'>",
)


# Reports: what the engine itself puts on the stream.

StepPhase = Literal["preparing", "running", "not_running"]


class StepReport(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A step's execution was queued, has begun or is over."""

    step: str
    phase: StepPhase
    worker_id: int | None
    input: EventKind
    output: EventKind | None = None
    returned: bool = False
    """Whether the execution returned, so that `output=None` means that it returned nothing."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last event that was refused, because it does not fit its class."""

    event_type: str
    """The short name of its class."""
    reason: str
    """Which fields do not fit and why, without their values."""
    at: float


class WaiterReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one waiter, or one accepting step of an idle run, is waiting for."""

    step: str
    event_type: str
    waiter_id: str | None = None
    requirements: tuple[tuple[str, Any], ...] = ()
    since: float | None = None
    deadline: float | None = None
    refused: Refusal | None = None
    """The answer that was refused last, while the right one is waited for."""
    question: EventRecord | None = None
    """The event that was published with the wait; None if none was, or nobody asked for it."""


class IdleReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From here on only input from outside can move the run."""

    waiters: tuple[WaiterReport, ...]
    idle_since: float


class UnhandledReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An event arrived that nothing took."""

    event: EventKind
    step: str | None
    idle: bool
    kept: bool = False


class TimedOutReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The run's time is over."""

    timeout_s: float
    active_steps: tuple[str, ...]


class CancelledReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The run was cancelled."""


class FailedReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A failure that nothing recovered ended the run."""

    step: str
    failure: Failure
    attempts: int | None = None
    elapsed_s: float | None = None


class SupersededReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A body ran again and wrote something else to the stream: what the execution had written here does not count."""

    step: str
    execution: int
    cursors: tuple[tuple[int, int], ...]
    """The first and the last cursor of each unbroken row of superseded writes, in order."""


class RefusedReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An event was refused, because it does not fit its class. What waited for it waits on."""

    event_type: str
    step: str
    reason: str
    waiter_id: str | None = None


class Notice(msgspec.Struct, frozen=True, tag=True):
    """A message to authors; it goes to the log, not to the readers of the stream."""

    message: str


Report = (
    StepReport
    | IdleReport
    | UnhandledReport
    | TimedOutReport
    | CancelledReport
    | FailedReport
    | SupersededReport
    | RefusedReport
)
Published = EventRecord | Report
