"""Describe a run of a flow in detail for people, from the plain data that the HTTP API has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from loom.api.times import span
from loom.cli.flow_words import result_words, status_lines
from loom.cli.output import Page, ago, seconds_of
from loom.cli.status import add_traceback, failed_attempts
from loom.flows.graph import type_words
from loom.flows.progress import ActionProgress, LoopProgress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Data = Mapping[str, Any]

ProgressT = TypeVar("ProgressT", LoopProgress, ActionProgress)

_ENDS = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}
_TIMES = ("start_time", "next_iteration_at", "since", "due", "failed_at", "attempt_since")
_CHILD_RUN = "child run"


def flow_page(found: Data, now: float, *, past: bool, with_actions: bool) -> Page:
    """A flow with its state. One of the past, or one that has ended, is seen from the time that it had then."""
    page = Page()
    at = now if found["status"] == "running" and not past else seconds_of(found["at"])
    page.line(f"Workflow: {found['workflow']}")
    for line in _past_lines(found, now) if past else _lines(found):
        page.lines(line, margin="  ")
    if not past and found["error"]:
        add_traceback(page, found["error"].get("traceback"))
    loops = [_progress(loop, LoopProgress) for loop in found["loops"]]
    under_way = [_progress(action, ActionProgress) for action in found["under_way"]]
    for line in status_lines(loops, under_way, _awaited(found["active_waiters"] or [], at), at):
        page.lines(line, margin="    ")
    add_traceback(page, next((each.traceback for each in failed_attempts(found) if each.traceback), None))
    if with_actions:
        rows = [_row(action) for action in found["actions"]]
        page.table(("action", "type", "status", "duration", "outputs or error"), rows, "Actions")
    return page


def _lines(found: Data) -> list[str]:
    lines = [f"Status: {_status(found)}"]
    if found["parked"]:
        lines.append(f"Parked: {found['parked']}")
    if found["status"] != "running":
        lines.append(f"Duration: {span(_duration(found))}")
    if found["error"]:
        lines.append(f"Error: {found['error']['message']}")
    return lines + _result_lines(found["result"] or {})


def _result_lines(result: Data) -> list[str]:
    """What a flow has given, in short."""
    lines = []
    if result.get("response") is not None:
        answer = result["response"]
        lines.append(f"Response: {answer.get('statusCode', 200)} {result_words(answer.get('body'))}")
    return lines + [f"Output {name}: {result_words(value)}" for name, value in (result.get("outputs") or {}).items()]


def _past_lines(found: Data, now: float) -> list[str]:
    """What can be said of an earlier tick: nothing about how the run is now, or how it ended."""
    status = "Running" if found["is_running"] else _ENDS[found["status"]]
    return [f"As of: tick {found['tick']}, {ago(found['at'], now)}", f"Status: {status}"]


def _progress(shown: Data, kind: type[ProgressT]) -> ProgressT:
    """How far a loop or an action is, with its times as seconds again."""
    times = {name: seconds_of(shown[name]) for name in _TIMES if shown.get(name) is not None}
    return msgspec.convert({**shown, **times}, kind)


def _status(found: Data) -> str:
    if found["status"] != "running":
        return _ENDS[found["status"]]
    marks = [word for word, holds in (("paused", found["paused"]), ("parked", found["parked"] is not None)) if holds]
    return f"Running ({', '.join(marks)})" if marks else "Running"


def _duration(found: Data) -> float:
    return seconds_of(found["completed_at"] or found["updated_at"]) - seconds_of(found["created_at"])


def _awaited(waiters: Sequence[Data], now: float) -> dict[str, list[str]]:
    """The events that actions wait for, by the names of the actions."""
    awaited: dict[str, list[str]] = {}
    for waiter in waiters:
        until = waiter.get("deadline")
        words = waiter["event_type"].rpartition(".")[2]
        words += f" {waiter['waiter_id']}" if words == _CHILD_RUN else ""
        words += f", times out {ago(until, now)}" if until else ""
        awaited.setdefault(waiter["step"], []).append(words)
    return awaited


def _row(action: Data) -> tuple[str, ...]:
    begun, ended = action["started"], action["ended"]
    taken = span(seconds_of(ended) - seconds_of(begun)) if begun is not None and ended is not None else ""
    status, is_loop = action["status"], action["iterations"] is not None
    shown = f"{status} ({action['iterations']} iterations)" if is_loop else status
    error = action["error"].get("message") if isinstance(action["error"], dict) else action["error"]
    told = str(error) if error else "" if action["outputs"] is None else result_words(action["outputs"])
    return action["path"], type_words(action["type"]), shown, "" if status == "Skipped" else taken, told
