"""What ends a run's stream, and what on it is not for everybody. May import loom.core and loom.flows.calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.records import STOP_EVENT, EventRecord
from loom.core.reports import CancelledReport, FailedReport, RefusedReport, SupersededReport, TimedOutReport
from loom.flows.calls import FlowEnd, LoopIteration

if TYPE_CHECKING:
    from loom.core.reports import Published

_INTERNAL = "workflows.events.InternalDispatchEvent"


def is_internal(published: Published) -> bool:
    """Whether something on the stream is only for those who ask for internal events."""
    if isinstance(published, EventRecord):
        return _INTERNAL in published.kind.bases
    # A reader that has shown what a body wrote needs to know that it does not count any more.
    return not is_ending(published) and not isinstance(published, SupersededReport | RefusedReport)


def is_for_few(published: Published) -> bool:
    """The same on streams that leave the process, where the iterations of loops are internal too: they are many, and
    how far a loop is can be asked.
    """
    if isinstance(published, EventRecord) and isinstance(published.body, LoopIteration):
        return True
    return is_internal(published)


def is_ending(published: Published) -> bool:
    """Whether the stream ends with this."""
    if isinstance(published, EventRecord):
        return published.kind.is_a(STOP_EVENT)
    return isinstance(published, TimedOutReport | CancelledReport | FailedReport)


def is_last(published: Published) -> bool:
    """Whether nothing can come behind it on the stream. Behind a failure something can: the run may be retried."""
    if isinstance(published, EventRecord) and isinstance(published.body, FlowEnd):
        return published.body.status in ("Succeeded", "Cancelled")
    return is_ending(published) and not isinstance(published, FailedReport | TimedOutReport)
