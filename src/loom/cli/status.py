"""Describe a run in detail for people: what it does, waits for and keeps, and which attempts have failed.

Everything comes from the types that the HTTP API has of a run and its state.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import asdict, replace

from loom.cli.output import TextPage, ago, clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.api.attempts import FailedAttempt
    from loom.api.runs import Run, RunError
    from loom.api.state import State


MAX_SHOWN = 20
"""How many rows a table has at most."""


def add_traceback(page: TextPage, text: str | None) -> None:
    """Show where something failed, below what it failed with."""
    if text:
        page.line("")
        page.line("Where it failed (most recent call first):")
        page.lines(text, "  ", "  ")


def add_attempts(page: TextPage, state: State, now: float) -> None:
    """Show what a run is at work on: attempts under way, and failed ones that will be made again."""
    executing, failed = state.executing, state.failed_attempts
    rows = [(each.step, each.of, ago(each.since, now)) for each in executing[:MAX_SHOWN]]
    if rows:
        page.table(("step", "attempt", "since"), rows, title_of("Executing", executing))
    told = [
        (each.step, each.of, ago(each.failed_at, now), next_words(each, now), attempt_error(each))
        for each in failed[:MAX_SHOWN]
    ]
    if told:
        page.table(("step", "attempt", "failed", "next try", "error"), told, title_of("Failed attempts", failed))
    add_attempt_traceback(page, state)


def add_attempt_traceback(page: TextPage, state: State) -> None:
    """Show where the newest failed attempt failed, if one has a traceback."""
    add_traceback(page, next((each.traceback for each in state.failed_attempts if each.traceback), None))


def next_words(attempt: FailedAttempt, now: float) -> str:
    """Say when the next attempt is."""
    return ago(attempt.next_at, now) if attempt.next_at is not None else "now"


def attempt_error(attempt: FailedAttempt) -> str:
    """What an attempt failed with."""
    kind = attempt.type.removeprefix("builtins.")
    return attempt.message if attempt.message.startswith(kind) else f"{kind}: {attempt.message}".removesuffix(": ")


def title_of(title: str, rows: Sequence[Any]) -> str:
    """The title of a table that may have more rows than are shown."""
    return f"{title} ({len(rows)}, the first {MAX_SHOWN} are shown)" if len(rows) > MAX_SHOWN else title


def combined(run: Run, state: State) -> Run:
    """Give a run the tick and the waits of its state. Where that cannot be read, the waits of the run are left."""
    if state.damaged is not None:
        return replace(run, tick=state.tick)
    waiters = state.active_waiters if state.is_running else None
    return replace(run, tick=state.tick, idle_since=state.idle_since, active_waiters=waiters)


def status_data(run: Run, state: State) -> dict[str, Any]:
    """Return a combined run and the rest of its state as one object for JSON."""
    shown: dict[str, Any] = to_builtins(run)
    return shown | {name: value for name, value in to_builtins(state).items() if name not in shown}


def is_flow(state: State) -> bool:
    """Tell whether a state is that of a flow, which has actions."""
    return state.under_way is not UNSET


def list_page(runs: Sequence[Run], now: float) -> TextPage:
    """Show runs, one below the other."""
    page = TextPage()
    if not runs:
        page.line("No runs.")
        return page
    rows = [
        (
            run.run_id,
            run.workflow,
            state_words(run),
            ago(run.created_at, now),
            ago(run.updated_at, now),
            waiting_words(run),
        )
        for run in runs
    ]
    page.table(("run", "workflow", "status", "created", "updated", "waits for"), rows)
    return page


def status_page(run: Run, state: State, now: float, *, past: bool = False) -> TextPage:
    """Show a `combined` run of Python steps with its state; `past` if it is that of an earlier tick."""
    page = TextPage()
    for name, value in _past_lines(run, state, now) if past else _lines(run, state, now):
        if value:
            page.lines(value, f"{name + ':':<12} ", " " * 13)
    if not past and run.error is not None:
        add_traceback(page, run.error.traceback)
    busy = [step for step in state.steps if step.executing or step.waiting or step.queued or step.delayed]
    # One that was cancelled has them yet, for the record; nothing is under way any more.
    _table(page, "Steps under way", busy if past or run.status == "running" else [], now)
    add_attempts(page, state, now)
    # An answer that was refused has a table of its own, and a schema is for programs.
    _table(page, "Waits for", run.active_waiters or [], now, without=("refused", "kind", "schema"))
    _table(page, "Refused events", state.refused, now)
    _table(page, "Child runs", state.children, now)
    _table(page, "Timers", state.timers, now, without=("skippable",))
    _table(page, "Kept events", state.kept, now)
    return page


def _lines(run: Run, state: State, now: float) -> list[tuple[str, str]]:
    return [
        ("run", run.run_id),
        ("workflow", run.workflow),
        ("status", state_words(run)),
        ("result", _result_words(run.result)),
        ("error", error_words(run.error)),
        ("parked", run.parked or ""),
        ("stuck", run.stuck or ""),
        ("damaged", state.damaged or ""),
        ("created", ago(run.created_at, now)),
        ("updated", ago(run.updated_at, now)),
        ("ended", ago(run.completed_at, now)),
        ("idle since", ago(run.idle_since, now)),
        ("in memory", "yes" if run.in_memory else "no"),
        ("history", f"{_count(run.tick)} ticks, {_count(run.cursor)} events"),
        ("tags", ", ".join(f"{name}={value}" for name, value in run.tags.items())),
        ("parent", run.parent_id or ""),
        ("forked from", run.forked_from or ""),
    ]


def _count(last: int | None) -> int:
    """Return how many there are, by the number of the last."""
    return 0 if last is None else last + 1


def _past_lines(run: Run, state: State, now: float) -> list[tuple[str, str]]:
    """Say what can be said of an earlier tick: nothing about how the run is now, or how it ended."""
    idle = " (idle)" if run.idle_since is not None else ""
    return [
        ("run", run.run_id),
        ("workflow", run.workflow),
        ("as of", f"tick {run.tick}, {ago(state.at, now)}"),
        ("status", f"running{idle}" if state.is_running else f"ended ({run.status})"),
        ("idle since", ago(run.idle_since, now)),
        ("created", ago(run.created_at, now)),
    ]


def _result_words(result: Mapping[str, Any] | None) -> str:
    """What a workflow in Python ended with: the result of a plain stop event, or the event."""
    if result is None or "type" not in result:
        return ""
    from loom.cli.describe import json_words, named_fields

    kind, value = result["type"], result["value"]
    is_plain = kind == "StopEvent" and isinstance(value, dict) and value.keys() == {"result"}
    return json_words(value["result"]) if is_plain else named_fields(kind, value)


def error_words(error: RunError | None) -> str:
    """Say what a run failed with: the step, the type and the message, which may have several lines."""
    if error is None:
        return ""
    kind = (error.type or "").removeprefix("builtins.")
    told = error.message if error.code == "timeout" else ": ".join(filter(None, (kind, error.message)))
    return f"{error.step}: {told}" if error.step else told


def state_words(run: Run) -> str:
    """Say the status of a run, with what holds it."""
    if run.status != "running":
        return run.status
    marks = [
        word
        for word, holds in (
            ("no worker answers", run.error is not None),
            ("not taken up yet", not _count(run.tick) and run.error is None),
            ("paused", run.paused),
            ("parked", run.parked is not None),
            ("stuck", run.stuck is not None),
            ("idle", run.idle_since is not None and run.stuck is None),
        )
        if holds
    ]
    return f"running ({', '.join(marks)})" if marks else "running"


def waiting_words(run: Run) -> str:
    """Name the types of events that a run waits for, by their short names."""
    names = dict.fromkeys(waiter.event_type.rpartition(".")[2] for waiter in run.active_waiters or ())
    return ", ".join(names)


def _table(page: TextPage, title: str, parts: Sequence[Struct], now: float, *, without: Sequence[str] = ()) -> None:
    """Add a table of things of one type. A column without values is left out."""
    if not parts:
        return
    rows = [asdict(part) for part in parts]
    columns = [name for name in rows[0] if name not in without and any(row[name] not in (None, {}, 0) for row in rows)]
    cells = [[_cell(row[name], now) for name in columns] for row in rows[:MAX_SHOWN]]
    page.table([name.replace("_", " ") for name in columns], cells, title_of(title, rows))


def _cell(value: Any, now: float) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, datetime):
        return ago(value, now)
    if isinstance(value, dict):
        return ", ".join(f"{key}={item!r}" for key, item in value.items())
    return clean(str(value))
