"""Describe a run of a flow in detail for people, from the types that the HTTP API has of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict

from loom.api.times import span
from loom.cli.flow_words import result_words, status_lines
from loom.cli.output import TextPage, ago
from loom.cli.status import add_attempt_traceback, add_traceback
from loom.flows.action_types import type_words
from loom.flows.progress import ActionProgress, LoopProgress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.api.runs import Run, Waiter
    from loom.api.state import Action, ActionUnderWay, Loop, State

ProgressT = TypeVar("ProgressT", LoopProgress, ActionProgress)

_ENDS = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}
_CHILD_RUN = "child run"


def flow_page(run: Run, state: State, now: float, *, past: bool, with_actions: bool) -> TextPage:
    """Show a flow with its state. One of the past, or one that has ended, is seen from the time that it had then."""
    page = TextPage()
    at = now if (run.status == "running" and not past) or state.at is None else state.at.timestamp()
    page.line(f"Workflow: {run.workflow}")
    for line in _past_lines(run, state, now) if past else _lines(run):
        page.lines(line, margin="  ")
    if not past and run.error is not None:
        add_traceback(page, run.error.traceback)
    loops = [_progress(loop, LoopProgress) for loop in state.loops]
    under_way = [_progress(action, ActionProgress) for action in state.under_way or ()]
    for line in status_lines(loops, under_way, _awaited(run.active_waiters or [], at), at):
        page.lines(line, margin="    ")
    add_attempt_traceback(page, state)
    if with_actions:
        rows = [_row(action) for action in state.actions or ()]
        page.table(("action", "type", "status", "duration", "outputs or error"), rows, "Actions")
    return page


def _lines(run: Run) -> list[str]:
    lines = [f"Status: {_status(run)}"]
    if run.parked:
        lines.append(f"Parked: {run.parked}")
    if run.status != "running":
        lines.append(f"Duration: {span(_duration(run.created_at, run.completed_at or run.updated_at))}")
    if run.error is not None:
        lines.append(f"Error: {run.error.message}")
    return lines + _result_lines(run.result or {})


def _result_lines(result: Mapping[str, Any]) -> list[str]:
    """Say what a flow has given, in short."""
    lines = []
    if result.get("response") is not None:
        answer = result["response"]
        lines.append(f"Response: {answer.get('statusCode', 200)} {result_words(answer.get('body'))}")
    return lines + [f"Output {name}: {result_words(value)}" for name, value in (result.get("outputs") or {}).items()]


def _past_lines(run: Run, state: State, now: float) -> list[str]:
    """Say what can be said of an earlier tick: nothing about how the run is now, or how it ended."""
    status = "Running" if state.is_running else _ENDS[run.status]
    return [f"As of: tick {run.tick}, {ago(state.at, now)}", f"Status: {status}"]


def _progress(shown: Loop | ActionUnderWay, kind: type[ProgressT]) -> ProgressT:
    """Convert how far a loop or an action is: its times are seconds again."""
    fields: dict[str, Any] = asdict(shown)
    times = {name: each.timestamp() for name, each in fields.items() if isinstance(each, datetime)}
    return kind(**{**fields, **times})


def _status(run: Run) -> str:
    if run.status != "running":
        return _ENDS[run.status]
    marks = [word for word, holds in (("paused", run.paused), ("parked", run.parked is not None)) if holds]
    return f"Running ({', '.join(marks)})" if marks else "Running"


def _duration(begun: datetime | None, ended: datetime | None) -> float:
    return (ended - begun).total_seconds() if begun is not None and ended is not None else 0.0


def _awaited(waiters: Sequence[Waiter], now: float) -> dict[str, list[str]]:
    """Name the events that actions wait for, by the names of the actions."""
    awaited: dict[str, list[str]] = {}
    for waiter in waiters:
        words = waiter.event_type.rpartition(".")[2]
        words += f" {waiter.waiter_id}" if words == _CHILD_RUN else ""
        words += f", times out {ago(waiter.deadline, now)}" if waiter.deadline is not None else ""
        awaited.setdefault(waiter.step or "", []).append(words)
    return awaited


def _row(action: Action) -> tuple[str, ...]:
    status, is_over = action.status, action.started is not None and action.ended is not None
    taken = span(_duration(action.started, action.ended)) if is_over and status != "Skipped" else ""
    shown = f"{status} ({action.iterations} iterations)" if action.iterations is not None else status
    error = action.error.get("message") if isinstance(action.error, dict) else action.error
    told = str(error) if error else "" if action.outputs is None else result_words(action.outputs)
    return action.path or action.name, type_words(action.type or ""), shown, taken, told
