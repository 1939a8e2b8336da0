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


class WaiterReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one waiter, or one accepting step of an idle run, is waiting for."""

    step: str
    event_type: str
    waiter_id: str | None = None
    requirements: tuple[tuple[str, Any], ...] = ()
    since: float | None = None
    deadline: float | None = None


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


class Notice(msgspec.Struct, frozen=True, tag=True):
    """Something an author should know; it goes to the log, not to the stream's readers."""

    message: str


Report = StepReport | IdleReport | UnhandledReport | TimedOutReport | CancelledReport | FailedReport
Published = EventRecord | Report
