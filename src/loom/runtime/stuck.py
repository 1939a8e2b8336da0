"""Why a run is stuck, in words: from the ticks and reports that led to it. See `loom.api.problems.is_stuck`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.problems import NOBODYS_TURN
from loom.core.records import INPUT_REQUIRED_EVENT, RefusedReport, UnhandledReport
from loom.core.ticks import TickAddEvent, TickStartRun, TickStepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.records import EventKind, Published
    from loom.core.ticks import WorkflowTick

_MAX_REASON = 500


class StuckReason:
    """Follows what happens to a run, and words the reason in case the run gets stuck.

    It is no part of the state: no decision depends on it. The row keeps it for readers, and for the next owner.
    """

    __slots__ = ("_result", "_said", "_untaken")

    def __init__(self, earlier: str | None = None) -> None:
        self._said = earlier
        """What an earlier owner had to say, until something happens."""
        self._result: TickStepResult | None = None
        """The last result of a step."""
        self._untaken: str | None = None
        """The last event that no step took or could read, in words."""

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Take note of what one batch brought. Most batches bring a result or nothing."""
        result: TickStepResult | None = None
        for tick in ticks:
            if type(tick) is TickStepResult:
                result = tick
        if result is not None:
            self._result, self._said = result, None
        for report in published:
            if type(report) is UnhandledReport or type(report) is RefusedReport:
                # An event that comes by itself is the newest thing to say. Not every owner knows the result before it.
                self._untaken, self._result, self._said = _untaken(report, ticks), result, None

    @property
    def text(self) -> str:
        """The reason in a sentence or two."""
        if self._said is None:
            result = _of_result(self._result) if self._result is not None else None
            self._said = " ".join(filter(None, (result, self._untaken)))[:_MAX_REASON] or NOBODYS_TURN
        return self._said


def _untaken(report: UnhandledReport | RefusedReport, ticks: Sequence[WorkflowTick]) -> str:
    if isinstance(report, RefusedReport):
        return f"Step {report.step!r} was sent {report.event_type!r}, which does not fit its class: {report.reason}."
    name = report.event.label or report.event.name
    if report.kept:
        return f"No step takes {name!r} and none waits for it: it came from outside, and is kept."
    return f"No step takes {name!r}{_origin(report.event, ticks)}."


def _origin(kind: EventKind, ticks: Sequence[WorkflowTick]) -> str:
    """Who made an event, as far as the ticks of its batch tell."""
    for tick in reversed(ticks):
        if isinstance(tick, TickStepResult) and any(event.kind == kind for event in tick.returned):
            return f", which step {tick.step!r} returned"
        if isinstance(tick, TickAddEvent) and tick.event.kind == kind:
            return f", which step {tick.source.step!r} sent" if tick.source is not None else ", which came from outside"
        if isinstance(tick, TickStartRun) and tick.event is not None and tick.event.kind == kind:
            return ", which the run began with"
    return ""


def _of_result(tick: TickStepResult) -> str | None:
    """Why nothing follows from the last result of a step, if the result tells."""
    missing = [call for call in tick.collects if not call.took]
    if missing:
        wanted = ", ".join(f"{count} of {name.rpartition('.')[2]!r}" for name, count in missing[-1].needed)
        return f"Step {tick.step!r} still collects events ({wanted}), and nothing is left that could make one."
    if not tick.returned and tick.failure is None:
        return f"Step {tick.step!r} returned None, and nothing else was left to do."
    if tick.returned and tick.returned[-1].kind.is_a(INPUT_REQUIRED_EVENT):
        return f"Step {tick.step!r} asked by {tick.returned[-1].kind.label!r}, but no step takes an answer."
    return None
