"""How a run's stream ends, and what whoever awaits a run gets.

May import loom.core, loom.effects, loom.flows and loom.steps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from loom.core.commands import CommandCompleteRun, CommandFailWorkflow
from loom.core.records import STOP_EVENT, EventRecord
from loom.core.reports import CancelledReport, FailedReport, TimedOutReport
from loom.effects.convert import LIVE, exception_of
from loom.flows.calls import FlowEnd
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError

if TYPE_CHECKING:
    from loom.core.commands import TerminalCommand
    from loom.core.reports import Published
    from loom.effects.convert import Conversion
    from loom.steps.events import StopEvent

_INTERNAL = "workflows.events.InternalDispatchEvent"


def is_internal(published: Published) -> bool:
    """Whether something on the stream is only for those who ask for internal events."""
    if isinstance(published, EventRecord):
        return _INTERNAL in published.kind.bases
    return not is_ending(published)


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


def ending_of(command: TerminalCommand, convert: Conversion = LIVE) -> StopEvent | BaseException:
    """What whoever awaits a run gets."""
    if isinstance(command, CommandCompleteRun):
        result: Any = convert.event(command.result)
        return result  # type: ignore[no-any-return]
    if isinstance(command, CommandFailWorkflow):
        body = command.failure.body
        if isinstance(body, asyncio.CancelledError):
            # Raised as it is, it would look like a cancellation of whoever awaits the run.
            error = WorkflowRuntimeError(f"Step {command.step} was cancelled from within: {body!r}")
            error.__cause__ = body
            return error
        return body if isinstance(body, BaseException) else exception_of(command.failure)
    if command.reason == "cancelled":
        return WorkflowCancelledByUser()
    if command.reason == "timed_out":
        return WorkflowTimeoutError(command.message)
    return WorkflowRuntimeError(command.message)
