"""Describe a run in detail for people: what it does, waits for and keeps, and which attempts have failed.

Everything comes from the plain data that the HTTP API has of a run and its state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.attempts import ExecutingAttempt, FailedAttempt
from loom.cli.output import Page, ago, clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    Run = Mapping[str, Any]


MAX_SHOWN = 20
"""How many rows a table has at most."""


def add_traceback(page: Page, text: str | None) -> None:
    """Show where something failed, below what it failed with."""
    if text:
        page.line("")
        page.line("Where it failed (most recent call first):")
        page.lines(text, "  ", "  ")


def add_attempts(page: Page, found: Mapping[str, Any], now: float) -> None:
    """Show what a run is at work on: attempts under way, and failed ones that will be made again."""
    executing = msgspec.convert(found.get("executing", []), list[ExecutingAttempt])
    rows = [(each.step, each.of, ago(_seconds(each.since), now)) for each in executing[:MAX_SHOWN]]
    if rows:
        page.table(("step", "attempt", "since"), rows, title_of("Executing", executing))
    failed = failed_attempts(found)
    told = [
        (each.step, each.of, ago(_seconds(each.failed_at), now), next_words(each, now), attempt_error(each))
        for each in failed[:MAX_SHOWN]
    ]
    if told:
        page.table(("step", "attempt", "failed", "next try", "error"), told, title_of("Failed attempts", failed))
    add_traceback(page, next((each.traceback for each in failed if each.traceback), None))


def failed_attempts(found: Mapping[str, Any]) -> list[FailedAttempt]:
    """The failed attempts in the state of a run; none of a server that does not tell them."""
    return msgspec.convert(found.get("failed_attempts", []), list[FailedAttempt])


def next_words(attempt: FailedAttempt, now: float) -> str:
    """When the next attempt is."""
    return ago(_seconds(attempt.next_at), now) if attempt.next_at is not None else "now"


def attempt_error(attempt: FailedAttempt) -> str:
    """What an attempt failed with."""
    kind = attempt.type.removeprefix("builtins.")
    return attempt.message if attempt.message.startswith(kind) else f"{kind}: {attempt.message}".removesuffix(": ")


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def title_of(title: str, rows: Sequence[Any]) -> str:
    """The title of a table that may have more rows than are shown."""
    return f"{title} ({len(rows)}, the first {MAX_SHOWN} are shown)" if len(rows) > MAX_SHOWN else title


_OF_ROW = ("idle_since", "active_waiters")


def combined(run: Run, state: Mapping[str, Any]) -> dict[str, Any]:
    """A run with its state. Where that cannot be read, what the run itself says is left."""
    if state["damaged"] is not None:
        return {**run, **{name: value for name, value in state.items() if name not in _OF_ROW}}
    return {**run, **state, "active_waiters": state["active_waiters"] if state["is_running"] else None}


def list_page(runs: Sequence[Run], now: float) -> Page:
    """Runs, one below the other."""
    page = Page()
    if not runs:
        page.line("No runs.")
        return page
    rows = [
        (
            run["run_id"],
            run["workflow"],
            state_words(run),
            ago(run["created_at"], now),
            ago(run["updated_at"], now),
            waiting_words(run),
        )
        for run in runs
    ]
    page.table(("run", "workflow", "status", "created", "updated", "waits for"), rows)
    return page


def status_page(found: Run, now: float, *, past: bool = False) -> Page:
    """Show a run of Python steps with its state, as `combined` has it; `past` if it is that of an earlier tick."""
    page = Page()
    for name, value in _past_lines(found, now) if past else _lines(found, now):
        if value:
            page.lines(value, f"{name + ':':<12} ", " " * 13)
    if not past and found["error"] is not None:
        add_traceback(page, found["error"].get("traceback"))
    busy = [step for step in found["steps"] if any(step[key] for key in ("executing", "waiting", "queued", "delayed"))]
    # One that was cancelled has them yet, for the record; nothing is under way any more.
    _table(page, "Steps under way", busy if past or found["status"] == "running" else [], now)
    add_attempts(page, found, now)
    _table(page, "Waits for", [_unrefused(waiter) for waiter in found["active_waiters"] or []], now)
    _table(page, "Refused events", found.get("refused") or [], now)
    _table(page, "Child runs", found["children"], now)
    _table(page, "Timers", found["timers"], now)
    _table(page, "Kept events", found["kept"], now)
    return page


def _unrefused(waiter: Mapping[str, Any]) -> dict[str, Any]:
    """A waiter without the answer that it was refused, which has a table of its own."""
    return {name: value for name, value in waiter.items() if name != "refused"}


def _lines(found: Run, now: float) -> list[tuple[str, str]]:
    return [
        ("run", found["run_id"]),
        ("workflow", found["workflow"]),
        ("status", state_words(found)),
        ("result", _result_words(found["result"])),
        ("error", error_words(found["error"])),
        ("parked", found["parked"] or ""),
        ("stuck", found["stuck"] or ""),
        ("damaged", found["damaged"] or ""),
        ("created", ago(found["created_at"], now)),
        ("updated", ago(found["updated_at"], now)),
        ("ended", ago(found["completed_at"], now)),
        ("idle since", ago(found["idle_since"], now)),
        ("in memory", "yes" if found["in_memory"] else "no"),
        ("history", f"{found['tick'] + 1} ticks, {found['cursor'] + 1} events"),
        ("tags", ", ".join(f"{name}={value}" for name, value in found["tags"].items())),
        ("parent", found["parent_id"] or ""),
        ("forked from", found["forked_from"] or ""),
    ]


def _past_lines(found: Run, now: float) -> list[tuple[str, str]]:
    """What can be said of an earlier tick: nothing about how the run is now, or how it ended."""
    idle = " (idle)" if found["idle_since"] is not None else ""
    return [
        ("run", found["run_id"]),
        ("workflow", found["workflow"]),
        ("as of", f"tick {found['tick']}, {ago(found['at'], now)}"),
        ("status", f"running{idle}" if found["is_running"] else f"ended ({found['status']})"),
        ("idle since", ago(found["idle_since"], now)),
        ("created", ago(found["created_at"], now)),
    ]


def _result_words(result: Mapping[str, Any] | None) -> str:
    """What a workflow in Python ended with: the result of a plain stop event, or the event."""
    if result is None or "type" not in result:
        return ""
    from loom.cli.describe import json_words, named_fields

    kind, value = result["type"], result["value"]
    is_plain = kind == "StopEvent" and isinstance(value, dict) and value.keys() == {"result"}
    return json_words(value["result"]) if is_plain else named_fields(kind, value)


def error_words(error: Mapping[str, Any] | None) -> str:
    """What a run failed with: the step, the type and the message, which may have several lines."""
    if error is None:
        return ""
    kind = str(error["type"] or "").removeprefix("builtins.")
    told = error["message"] if error["code"] == "timeout" else ": ".join(filter(None, (kind, error["message"])))
    return f"{error['step']}: {told}" if error["step"] else str(told)


def state_words(run: Run) -> str:
    """The status of a run, with what holds it."""
    if run["status"] != "running":
        return str(run["status"])
    marks = [
        word
        for word, holds in (
            ("no worker answers", run["error"] is not None),
            ("not taken up yet", run["tick"] < 0 and run["error"] is None),
            ("paused", run["paused"]),
            ("parked", run["parked"] is not None),
            ("stuck", run["stuck"] is not None),
            ("idle", run["idle_since"] is not None and run["stuck"] is None),
        )
        if holds
    ]
    return f"running ({', '.join(marks)})" if marks else "running"


def waiting_words(run: Run) -> str:
    """The types of events that a run waits for, by their short names."""
    names = dict.fromkeys(waiter["event_type"].rpartition(".")[2] for waiter in run["active_waiters"] or ())
    return ", ".join(names)


def _table(page: Page, title: str, rows: Sequence[Mapping[str, Any]], now: float) -> None:
    if not rows:
        return
    columns = [name for name in rows[0] if any(row[name] not in (None, {}, 0) for row in rows)]
    cells = [[_cell(name, row[name], now) for name in columns] for row in rows[:MAX_SHOWN]]
    page.table([name.replace("_", " ") for name in columns], cells, title_of(title, rows))


def _cell(name: str, value: Any, now: float) -> str:
    if value is None or value == {}:
        return ""
    if name in ("since", "deadline", "due", "at"):
        return ago(value, now)
    if isinstance(value, dict):
        return ", ".join(f"{key}={item!r}" for key, item in value.items())
    return clean(str(value))
