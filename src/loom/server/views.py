"""A stored run as `/v1` shows it. May import loom.core, loom.effects, loom.flows, loom.runtime and loom.store."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loom.core.records import EventRecord
from loom.core.reports import FailedReport, TimedOutReport
from loom.flows.calls import FlowEnd
from loom.runtime.details import last_published, shown_waiter
from loom.runtime.plain import fields_of, iso
from loom.steps.registry import UnknownTypeError
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from loom.core.reports import Published
    from loom.runtime.durable.runtime import DurableRuntime
    from loom.store.records import RunRow

HANDLER = "handler"
"""The tag of a run that was started as a handler of the compatible routes."""


async def run_view(runtime: DurableRuntime, row: RunRow, *, whole: bool = True) -> dict[str, Any]:
    """A run as callers see it, whatever its status.

    In lists (`whole=False`) only deadlines of waiters count for `next_timer_at`: other timers are not in its row.
    """
    head = row.head
    running = head.status == "running"
    result, error = await _outcome(runtime, row)
    waiters = [shown_waiter(waiter) for waiter in json.loads(head.waiters)] if running else None
    return {
        "run_id": row.run_id,
        "workflow": row.workflow,
        "kind": "steps" if row.document is None else "flow",
        "version": row.document,
        "status": head.status,
        "idle_since": iso(head.idle_since) if running else None,
        "active_waiters": waiters,
        "next_timer_at": iso(await _next_timer(runtime, row, whole)) if running else None,
        "tick": head.ticks - 1,
        "cursor": head.events - 1,
        "created_at": iso(row.created_at),
        "updated_at": iso(head.updated_at),
        "completed_at": iso(row.ended_at),
        "result": result,
        "error": error,
        "forked_from": row.forked_from,
        "handler_id": row.tags.get(HANDLER, row.run_id),
        "paused": head.paused,
        "parked": head.parked,
        "kept_events": head.kept,
        "tags": row.tags,
        "parent_id": row.parent,
    }


def etag(row: RunRow) -> str:
    """What changes whenever the view of a run does: its last tick, and its status, which a retry changes first."""
    return f'"{row.head.ticks - 1}-{row.head.status}"'


async def wait_for_end(runtime: DurableRuntime, run_id: str, seconds: float) -> RunRow:
    """The row of a run at its end, or as it is after so many seconds."""
    waits = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while seconds:
                news = runtime.endings.subscribe(run_id)
                try:
                    if not _goes_on_here(runtime, run_id):
                        row = await runtime.row(run_id)
                        if row.head.status != "running":
                            return row
                    await runtime.news(news, waits)
                    waits += 1
                finally:
                    runtime.endings.forget(run_id, news)
    return await runtime.row(run_id)


def _goes_on_here(runtime: DurableRuntime, run_id: str) -> bool:
    """Whether the run is in memory and has not ended there, so that no end of it can be stored yet."""
    resident = runtime.resident(run_id)
    return resident is not None and resident.state.is_running


async def _next_timer(runtime: DurableRuntime, row: RunRow, whole: bool) -> float | None:
    """When the run goes on by itself."""
    resident = runtime.resident(row.run_id)
    if resident is not None:
        return min((timer.due for timer in resident.state.timers.values()), default=None)
    if whole:
        stored = await runtime.store.load(row.run_id)
        return min((timer.due for timer in stored.timers), default=None) if stored is not None else None
    deadlines = [waiter["deadline"] for waiter in json.loads(row.head.waiters)]
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


async def _outcome(runtime: DurableRuntime, row: RunRow) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The result and the error of a run that has ended."""
    if row.head.status == "running":
        return None, None
    try:
        last = await last_published(runtime, row)
    except CorruptRecord as error:
        return None, _error("result-unreadable", "CorruptRecord", str(error))
    if isinstance(last, EventRecord):
        return _result(runtime, row, last)
    return None, _failure(row, last)


def _result(runtime: DurableRuntime, row: RunRow, record: EventRecord) -> tuple[dict[str, Any], dict[str, Any] | None]:
    end = record.body
    if isinstance(end, FlowEnd):
        shown = {"status": end.status, "outputs": end.outputs, "response": end.response}
        failed = end.error if row.head.status == "failed" else None
        code = "timeout" if end.status == "TimedOut" else str((failed or {}).get("code") or "failed")
        return shown, failed and _error(code, "FlowFailed", str(failed.get("message") or ""))
    return {"type": record.kind.label, "value": event_value(runtime, row, record)}, None


def event_value(runtime: DurableRuntime, row: RunRow, record: EventRecord) -> Any:
    """The fields of an event: as its class has them, or as they are stored where the class is not at hand."""
    try:
        return runtime.convert_of(row).event(record).model_dump(mode="json")
    except (UnknownTypeError, ValueError):
        return fields_of(record)


def _failure(row: RunRow, last: Published | None) -> dict[str, Any] | None:
    match last:
        case FailedReport():
            failure = last.failure
            return _error("failed", failure.type, failure.message, last.step, last.attempts)
        case TimedOutReport():
            return _error("timeout", "WorkflowTimeoutError", row.head.error or "The run's time was over.")
        case _:
            pass
    if row.head.status == "failed":
        return _error("failed", "", row.head.error or "")
    return None


def _error(code: str, kind: str, message: str, step: str | None = None, attempts: int | None = None) -> dict[str, Any]:
    return {"code": code, "type": kind, "message": message, "step": step, "attempts": attempts}
