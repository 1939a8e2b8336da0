"""A run in detail: what it does, what it waits for, what it keeps. For `loom workflow status`.

May import loom.core and loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.cli.problems import Problem
from loom.cli.shown import ago, clean, print_line, print_table
from loom.runtime.details import end_of_run, flow_status, program_of_run, shown_waiter, state_details
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from loom.runtime.details import FlowStatus
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.runtime import DurableRuntime

_MAX_SHOWN = 20


def info_dict(info: RunInfo) -> dict[str, Any]:
    """What the row of a run says, for programs."""
    found: dict[str, Any] = msgspec.to_builtins(info)
    found["active_waiters"] = [shown_waiter(waiter) for waiter in found["active_waiters"]]
    return found


async def status_of(
    runtime: DurableRuntime, info: RunInfo, tick: int | None = None
) -> tuple[FlowStatus | None, dict[str, Any]]:
    """What the state of a run says, now or as it was after a tick: how far a flow is, and all of it for programs."""
    found: dict[str, Any] = {"steps": [], "timers": [], "kept": [], "children": [], "damaged": None}
    if not info.ticks:
        return None, found  # nobody has taken it up yet
    try:
        program = await program_of_run(runtime, info.run_id)
        state = await runtime.state_at(info.run_id, tick)
    except ValueError as error:
        raise Problem(str(error)) from error
    except CorruptRecord as error:
        return None, {**found, "damaged": str(error)}
    found |= state_details(state)
    if program is None:
        return None, found
    at = runtime.now() if tick is None and info.status == "running" else state.at
    flow = flow_status(program, state, at, await end_of_run(runtime, info.run_id) if tick is None else None)
    return flow, found | (flow.as_dict() if flow is not None else {})


def print_status(info: RunInfo, found: dict[str, Any], now: float) -> None:
    """The same for people."""
    for name, value in _lines(info, found, now):
        if value:
            print_line(f"{name + ':':<12} {value}")
    busy = [step for step in found["steps"] if any(step[key] for key in ("executing", "waiting", "queued", "delayed"))]
    _table("Steps under way", busy, now)
    _table("Waits for", found["active_waiters"], now)
    _table("Child runs", found["children"], now)
    _table("Timers", found["timers"], now)
    _table("Kept events", found["kept"], now)


def _lines(info: RunInfo, found: dict[str, Any], now: float) -> list[tuple[str, str]]:
    return [
        ("run", info.run_id),
        ("workflow", info.workflow),
        ("status", state_words(info)),
        ("error", info.error or ""),
        ("parked", info.parked or ""),
        ("damaged", found["damaged"] or ""),
        ("created", ago(info.created_at, now)),
        ("updated", ago(info.updated_at, now)),
        ("ended", ago(info.ended_at, now)),
        ("idle since", ago(info.idle_since, now)),
        ("in memory", "yes" if info.in_memory else "no"),
        ("history", f"{info.ticks} ticks, {info.events} events"),
        ("tags", ", ".join(f"{name}={value}" for name, value in info.tags.items())),
        ("parent", info.parent_id or ""),
        ("forked from", info.forked_from or ""),
    ]


def state_words(info: RunInfo) -> str:
    """The status of a run, with what holds it."""
    if info.status != "running":
        return info.status
    marks = [
        word
        for word, holds in (
            ("not taken up yet", not info.ticks),
            ("paused", info.paused),
            ("parked", info.parked is not None),
            ("idle", info.idle_since is not None),
        )
        if holds
    ]
    return f"running ({', '.join(marks)})" if marks else "running"


def waiting_words(info: RunInfo) -> str:
    """The types of events that a run waits for, by their short names."""
    names = dict.fromkeys(waiter["event_type"].rpartition(".")[2] for waiter in info.active_waiters)
    return ", ".join(names)


def _table(title: str, rows: list[dict[str, Any]], now: float) -> None:
    if not rows:
        return
    columns = [name for name in rows[0] if any(row[name] not in (None, {}, 0) for row in rows)]
    cells = [[_cell(name, row[name], now) for name in columns] for row in rows[:_MAX_SHOWN]]
    if len(rows) > _MAX_SHOWN:
        title += f" ({len(rows)}, the first {_MAX_SHOWN} are shown)"
    print_table([name.replace("_", " ") for name in columns], cells, title)


def _cell(name: str, value: Any, now: float) -> str:
    if value is None or value == {}:
        return ""
    if name in ("since", "deadline", "due"):
        from datetime import datetime

        return ago(datetime.fromisoformat(value), now)
    if isinstance(value, dict):
        return ", ".join(f"{key}={item!r}" for key, item in value.items())
    return clean(str(value))
