"""A run of a flow in detail, for `loom workflow status`. May import loom.flows and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.cli.flow_words import result_words, status_lines, type_words
from loom.cli.shown import ago, print_line, print_table, span
from loom.core.state import CHILD_RUN

if TYPE_CHECKING:
    from loom.flows.progress import ActionState
    from loom.runtime.details import FlowStatus
    from loom.runtime.durable.info import RunInfo

_ENDS = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}


def print_flow_status(info: RunInfo, found: FlowStatus, waiters: list[dict[str, Any]], with_actions: bool) -> None:
    """The same for people."""
    print_line(f"Workflow: {info.workflow}")
    print_line(f"Status: {_status(info)}")
    if info.parked:
        print_line(f"Parked: {info.parked}")
    if info.status != "running":
        print_line(f"Duration: {span(_duration(info))}")
    if info.error:
        print_line(f"Error: {found.error.get('message') if found.error else info.error}")
    for line in status_lines(found.loops, found.under_way, _awaited(waiters, found.at), found.at):
        print_line(line)
    if with_actions:
        rows = [_row(action) for action in found.actions]
        print_table(("action", "type", "status", "duration", "outputs or error"), rows, "Actions")


def _status(info: RunInfo) -> str:
    if info.status != "running":
        return _ENDS[info.status]
    marks = [word for word, holds in (("paused", info.paused), ("parked", info.parked is not None)) if holds]
    return f"Running ({', '.join(marks)})" if marks else "Running"


def _duration(info: RunInfo) -> float:
    return ((info.ended_at or info.updated_at) - info.created_at).total_seconds()


def _awaited(waiters: list[dict[str, Any]], now: float) -> dict[str, list[str]]:
    """The events that actions wait for, by the names of the actions."""
    from datetime import datetime

    awaited: dict[str, list[str]] = {}
    for waiter in waiters:
        until = waiter.get("deadline")
        words = waiter["event_type"].rpartition(".")[2]
        words += f" {waiter['waiter_id']}" if words == CHILD_RUN else ""
        words += f", times out {ago(datetime.fromisoformat(until), now)}" if until else ""
        awaited.setdefault(waiter["step"], []).append(words)
    return awaited


def _row(action: ActionState) -> tuple[str, ...]:
    taken = span(action.ended - action.started) if action.ended is not None and action.started is not None else ""
    is_loop = action.iterations is not None
    status = f"{action.status} ({action.iterations} iterations)" if is_loop else action.status
    error = action.error.get("message") if isinstance(action.error, dict) else action.error
    told = str(error) if error else "" if action.outputs is None else result_words(action.outputs)
    return action.path, type_words(action.type), status, "" if action.status == "Skipped" else taken, told
