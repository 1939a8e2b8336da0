"""What the engine itself puts on a run's event stream: plain reports that the edge turns into events.

Reports are stored as arrays: a new field goes to the end and has a default.

Pure. May import records.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.core.records import EventKind, EventRecord, Failure

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
    """Something an author should know; it goes to the log, not to the stream's readers."""

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
