"""What events and failures look like inside the engine: plain records, whatever an author wrote them as.

Pure. May import msgspec and nothing of Loom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    Opaque = Any
else:

    class _Anything(type):
        def __instancecheck__(cls, _value: object) -> bool:
            return True

    class Opaque(metaclass=_Anything):
        """The type of a place that may hold a record of the engine among other things.

        It accepts whatever `Any` does. But a decoder asks its hook about a class that it does not know, and so the
        codec gets to see what stands there.
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
        """Whether this is the named type or derives from it."""
        return name == self.name or name in self.bases


SHARED, CHECKED, UNCHECKED = 1, 2, 4
"""The marks of an event record, as bits of its field `shared`."""


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """An event: its kind and an opaque body (a live object in memory, bytes where it is stored).

    Events that the engine itself makes have a `StepFailure` or a `Release` as their body; the
    edge turns them into what the author's code expects.
    """

    kind: EventKind
    body: Opaque = None
    shared: bool | int = False
    """Its marks. `SHARED`: more than one takes it, so that each must get a copy. `CHECKED`: it fitted its class when it
    was accepted or made. `UNCHECKED`: it was accepted where its class was not known. A record without marks is written
    as it was before there were any, byte for byte: sizes decide where a flush is split."""

    @property
    def is_shared(self) -> bool:
        """Say whether more than one takes it."""
        return bool(self.shared & SHARED)

    @property
    def checked(self) -> bool | None:
        """Say whether it was compared with its class; None if nothing says so: an earlier version had stored it."""
        if self.shared & UNCHECKED:
            return False
        return True if self.shared & CHECKED else None

    def for_many(self) -> EventRecord:
        """The record, marked as one that more than one takes."""
        return EventRecord(self.kind, self.body, self.shared | SHARED if self.shared else True)

    def as_checked(self) -> EventRecord:
        """The record, marked as one that fits its class."""
        return EventRecord(self.kind, self.body, CHECKED)

    def as_unchecked(self) -> EventRecord:
        """The record, marked as one that nobody has compared with its class."""
        return EventRecord(self.kind, self.body, UNCHECKED)

    def without_marks(self) -> EventRecord:
        """The record as it was written before there were marks: a repeated start must have the same bytes."""
        return EventRecord(self.kind, self.body) if self.shared else self

    def fingerprint(self) -> int:
        """Tells events of one wait from each other; 0 for one that is not stored as text."""
        return crc32(self.body.encode("utf-8", "surrogatepass")) if isinstance(self.body, str) else 0


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed, as data. `body` may hold the live exception where nothing is stored."""

    type: str
    message: str
    body: Any = None
    traceback: str = ""
    """Where it was raised, as text for people: made at the edge, never read here. Empty if nobody made one."""


class Traceback(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The newest traceback of a run: whose it is, and its text."""

    step: str
    item: int
    """The work item; of a flow, the number of the action."""
    text: str


def without_traceback(failure: Failure) -> Failure:
    """Drop the traceback of a failure that a state may hold many of: a state keeps the newest of a run only."""
    return msgspec.structs.replace(failure, traceback="") if failure.traceback else failure


class StepFailure(msgspec.Struct, frozen=True, tag=True):
    """The body of the event that a recovery step receives when another step has failed for good."""

    step: str
    input: EventRecord
    failure: Failure
    attempts: int
    elapsed_s: float
    failed_at: float


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
RELEASE_KIND = EventKind(
    "workflows.events.CollectionReleaseEvent",
    (EVENT,),
    "CollectionReleaseEvent",
    "<class 'workflows.events.CollectionReleaseEvent'>",
)
