"""Reads from the state of a run which attempts are under way, and which have failed and will be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.attempts import Attempts, ExecutingAttempt, FailedAttempt
from loom.api.moments import moment
from loom.effects.redaction import without_secrets
from loom.flows.state import FlowPlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from loom.core.state import BrokerState, WorkItem
    from loom.flows.program import Program


def attempts_of(state: BrokerState, program: Program | None = None) -> Attempts:
    """Tell what a run is at work on. One that has ended is at work on nothing, whatever its state still holds."""
    if state.outcome is not None and state.outcome.status != "parked":
        return Attempts()
    if program is not None:
        return _of_flow(state, program)
    executing = [
        ExecutingAttempt(
            step=execution.item.step,
            attempt=execution.item.attempts + 1,
            max_attempts=execution.item.max_attempts or None,
            since=_moment(execution.item.attempt_since),
        )
        for _, worker in sorted(state.workers.items())
        for _, execution in sorted(worker.in_progress.items())
        if state.outcome is None  # what a parked run had begun does not execute
    ]
    return Attempts(executing=executing, failed=[_failed(state, item, due) for item, due in _tried(state)])


def _tried(state: BrokerState) -> Iterator[tuple[WorkItem, float | None]]:
    """The work that has failed before and is not done, with the time of its next attempt if it has to wait for it."""
    for _, worker in sorted(state.workers.items()):
        for timer, item in sorted(worker.delayed.items()):
            yield item, state.timers[timer].due if timer in state.timers else None
        under_way = [*worker.in_progress.items(), *worker.suspended.items()]
        for item in (*worker.queue, *(execution.item for _, execution in sorted(under_way, key=lambda pair: pair[0]))):
            if item.attempts and item.last_failure is not None:
                yield item, None


def _failed(state: BrokerState, item: WorkItem, due: float | None) -> FailedAttempt:
    failure, newest = item.last_failure, state.last_traceback
    return FailedAttempt(
        step=item.step,
        attempt=item.attempts,
        max_attempts=item.max_attempts or None,
        failed_at=_moment(item.last_failed_at),
        type=failure.type if failure is not None else "",
        message=without_secrets(failure.message) if failure is not None else "",
        next_at=_moment(due),
        traceback=newest.text if newest is not None and newest.item == item.id else None,
    )


def _of_flow(state: BrokerState, program: Program) -> Attempts:
    """Tell the same of a flow, whose planner keeps count of attempts by itself."""
    from loom.flows.progress import action_progress

    plan = state.plan
    if not isinstance(plan, FlowPlan):
        return Attempts()
    newest = plan.last_traceback
    executing, failed = [], []
    for action in action_progress(program, plan):
        if action.status == "running" and state.outcome is None:
            executing.append(
                ExecutingAttempt(
                    step=action.name,
                    attempt=action.attempt,
                    max_attempts=action.max_attempts,
                    since=_moment(action.attempt_since),
                )
            )
        if action.attempt > 1:
            failed.append(
                FailedAttempt(
                    step=action.name,
                    attempt=action.attempt - 1,
                    max_attempts=action.max_attempts,
                    failed_at=_moment(action.failed_at),
                    type=action.code or "",
                    message=without_secrets(action.error or ""),
                    next_at=_moment(action.due) if action.status == "retrying" else None,
                    traceback=newest.text if newest is not None and newest.step == action.name else None,
                )
            )
    return Attempts(executing=executing, failed=failed)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)
