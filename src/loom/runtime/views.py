"""A stored run as plain data: as `/v1` answers, and as commands print it with `--json`.

May import loom.core, loom.effects, loom.flows, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, overload

from loom.core.records import EventRecord
from loom.core.reports import FailedReport, TimedOutReport
from loom.effects.kept import kept_text
from loom.effects.threads import aside
from loom.flows.calls import MASK, FlowEnd
from loom.runtime.details import (
    end_of_run,
    last_published,
    program_of_row,
    shown_waiter,
    state_details,
)
from loom.runtime.durable.names import HANDLER, SCHEDULES
from loom.runtime.masking import SCHEDULE_DEFINITION, Masking, ScheduleMasking
from loom.runtime.plain import fields_of, iso, plain, plain_stop, stored_value
from loom.steps.registry import UnknownTypeError
from loom.store.errors import CorruptRecord, StoreError

if TYPE_CHECKING:
    from loom.core.reports import Published
    from loom.core.state import BrokerState
    from loom.runtime.durable.calls import StoredRuns
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.flow_details import FlowStatus
    from loom.runtime.shapes import HistoryItem, Run, RunError, RunResult, State, Waiter
    from loom.store.records import RunRow

_log = logging.getLogger("loom.run")

MAX_LISTED_TEXT = 16 * 1024
"""The bytes of an error's text in a list."""


async def run_view(runtime: StoredRuns, row: RunRow, *, whole: bool = True, with_result: bool = True) -> Run:
    """A run as callers see it, whatever its status.

    In lists (`whole=False`) only deadlines of waiters count for `next_timer_at`: other timers are not in its row. And
    errors have no traceback there and at most `MAX_LISTED_TEXT` bytes of message: a page of a hundred runs shall be
    light. Without its result, that of a completed run is not even read.
    """
    result, error = await _outcome(runtime, row, with_result)
    if error is not None and not whole:
        error["traceback"] = None
        error["message"] = cut_text(error["message"])
    version = await runtime.definitions.number_of(row.workflow, row.document)
    next_timer = await _next_timer(runtime, row, whole) if row.head.status == "running" else None
    waiters = [shown_waiter(waiter) for waiter in json.loads(row.head.waiters)]
    shown = _row_view(row, version, waiters, next_timer)
    shown["result"], shown["error"] = result, error
    if not whole:
        shown["parked"], shown["stuck"] = cut_text(shown["parked"]), cut_text(shown["stuck"])
    return shown


async def listed_view(runtime: StoredRuns, row: RunRow, *, with_result: bool) -> Run:
    """A run in a list. One that cannot be shown says so in its own place, and the list goes on."""
    try:
        return await run_view(runtime, row, whole=False, with_result=with_result)
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, CorruptRecord):
            raise  # it is the store that fails, not the row
        return unshown_view(row, error)


def unshown_view(row: RunRow, error: Exception) -> Run:
    """A run that cannot be shown, by what its row says for sure, with the reason as its error."""
    from loom.runtime.logs import about  # brings the engine with it, which those who only look do without

    _log.error("Run %s cannot be shown in a list.", row.run_id, exc_info=error, extra=about(row.run_id))
    message = cut_text(f"The run cannot be shown: {type(error).__name__}: {error}")
    return {**_row_view(row, None, [], None), "error": _error("result-unreadable", type(error).__name__, message)}


@overload
def cut_text(text: str) -> str: ...
@overload
def cut_text(text: str | None) -> str | None: ...
def cut_text(text: str | None) -> str | None:
    """A text of at most `MAX_LISTED_TEXT` bytes; one that was cut ends with an ellipsis."""
    if text is None or len(text) * 4 <= MAX_LISTED_TEXT:
        return text
    written = text.encode("utf-8", "replace")
    if len(written) <= MAX_LISTED_TEXT:
        return text
    return written[: MAX_LISTED_TEXT - 3].decode("utf-8", "ignore") + "\u2026"


def _row_view(row: RunRow, version: int | None, waiters: list[Waiter], next_timer: float | None) -> Run:
    """What the row of a run says of it."""
    head = row.head
    running = head.status == "running"
    return {
        "run_id": row.run_id,
        "workflow": row.workflow,
        "kind": "steps" if row.document is None else "flow",
        "version": version,
        "status": head.status,
        "idle_since": iso(head.idle_since) if running else None,
        "active_waiters": waiters if running else None,
        "next_timer_at": iso(next_timer),
        "tick": head.ticks - 1,
        "cursor": head.events - 1,
        "created_at": iso(row.created_at),
        "updated_at": iso(head.updated_at),
        "completed_at": iso(row.ended_at),
        "result": None,
        "error": None,
        "forked_from": row.forked_from,
        "handler_id": row.tags.get(HANDLER, row.run_id),
        "paused": head.paused,
        "parked": head.parked,
        "stuck": head.stuck,
        "kept_events": head.kept,
        "tags": row.tags,
        "parent_id": row.parent,
        "in_memory": row.owner is not None,
    }


async def state_view(runtime: StoredRuns, row: RunRow, tick: int | None = None) -> State:
    """What a run does, waits for and keeps: now, or as it was after a tick; `ValueError` if there is no such tick.

    Of a run whose journal cannot be read it says so, and nothing else.
    """
    shown = _no_state(row.run_id, row.head.ticks - 1 if tick is None else tick)
    try:
        state = await runtime.state_at(row.run_id, tick)
        flow = await flow_of(runtime, row, state, tick)
    except CorruptRecord as error:
        return {**shown, "damaged": str(error)}
    details = state_details(state, await program_of_row(runtime, row))
    shown = {**shown, **details, "at": iso(state.at), "is_running": state.is_running}
    shown["idle_since"] = iso(state.idle_since)
    if flow is not None:
        return {**shown, **flow.as_dict()}
    store = {key: stored_value(kept_text(text)) for key, text in sorted(state.store.items())}
    if row.workflow == SCHEDULES and SCHEDULE_DEFINITION in store:
        store[SCHEDULE_DEFINITION] = MASK
    return {**shown, "store": store}


def _no_state(run_id: str, tick: int) -> State:
    return {
        "run_id": run_id,
        "tick": tick,
        "at": None,
        "is_running": None,
        "idle_since": None,
        "damaged": None,
        "active_waiters": [],
        "steps": [],
        "timers": [],
        "kept": [],
        "children": [],
        "executing": [],
        "failed_attempts": [],
        "refused": [],
        "loops": [],
    }


async def flow_of(runtime: StoredRuns, row: RunRow, state: BrokerState, tick: int | None) -> FlowStatus | None:
    """How far a flow is in a state of its run, which is that of now if no tick is named; None for steps."""
    program = await program_of_row(runtime, row)
    if program is None:
        return None
    from loom.runtime.flow_details import flow_status  # brings with it what only flows need

    at = runtime.now() if tick is None and row.head.status == "running" else state.at
    end = await end_of_run(runtime, row.run_id) if tick is None else None
    # Actions may have large outputs, of which only the beginning is shown.
    return await aside("replay", flow_status, program, state, at, end)


def tick_view(entry: HistoryEntry, masking: Masking | ScheduleMasking | None) -> HistoryItem:
    """A tick of the history, without what is secure."""
    tick = masking.tick(entry.tick) if masking is not None else entry.tick
    return {"seq": entry.seq, "at": iso(entry.at), "tick": {"type": type(tick).__name__, **plain(tick)}}


async def masking_for(runtime: StoredRuns, row: RunRow) -> Masking | ScheduleMasking | None:
    """What hides the secure data of a run; None for steps, which have none."""
    if row.workflow == SCHEDULES:
        return ScheduleMasking()
    program = await program_of_row(runtime, row)
    return Masking(program) if program is not None else None


async def _next_timer(runtime: StoredRuns, row: RunRow, whole: bool) -> float | None:
    """When the run goes on by itself."""
    resident = runtime.resident(row.run_id)
    if resident is not None:
        return min((timer.due for timer in resident.state.timers.values()), default=None)
    if whole:
        with suppress(CorruptRecord):  # what its row says is still true
            stored = await runtime.store.load(row.run_id)
            return min((timer.due for timer in stored.timers), default=None) if stored is not None else None
    deadlines = [waiter["deadline"] for waiter in json.loads(row.head.waiters)]
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


async def _outcome(runtime: StoredRuns, row: RunRow, with_result: bool) -> tuple[RunResult | None, RunError | None]:
    """The result and the error of a run that has ended; of one that goes on, why nobody can say how it is."""
    if row.head.status == "running":
        silent = row.head.failed_with
        return None, _error("unanswered", "", silent) if silent else None
    if not with_result and row.head.status == "completed":
        return None, None
    try:
        last = await last_published(runtime, row)
    except CorruptRecord as error:
        return None, _error("result-unreadable", "CorruptRecord", str(error))
    if isinstance(last, EventRecord):
        result, failed = _result(runtime, row, last)
        return result if with_result else None, failed
    return None, _failure(row, last)


def _result(runtime: StoredRuns, row: RunRow, record: EventRecord) -> tuple[RunResult, RunError | None]:
    end = record.body
    if isinstance(end, FlowEnd):
        shown: RunResult = {"status": end.status, "outputs": end.outputs, "response": end.response}
        failed = end.error if row.head.status == "failed" else None
        code = "timeout" if end.status == "TimedOut" else str((failed or {}).get("code") or "failed")
        message = str((failed or {}).get("message") or "")
        return shown, _error(code, "FlowFailed", message, traceback=end.traceback) if failed else None
    return {"type": record.kind.label, "value": event_value(runtime, row, record)}, None


def event_value(runtime: StoredRuns, row: RunRow, record: EventRecord) -> Any:
    """The fields of an event: as its class has them, or as they are stored where the class is not at hand."""
    fields = plain_stop(record) if row.workflow not in runtime.codes else None
    if fields is not None:
        return fields
    try:
        return runtime.convert_of(row).event(record).model_dump(mode="json")
    except (UnknownTypeError, ValueError):
        return fields_of(record)


def _failure(row: RunRow, last: Published | None) -> RunError | None:
    match last:
        case FailedReport():
            failure = last.failure
            return _error("failed", failure.type, failure.message, last.step, last.attempts, failure.traceback)
        case TimedOutReport():
            return _error("timeout", "WorkflowTimeoutError", row.head.error or "The run's time was over.")
        case _:
            pass
    if row.head.status == "failed":
        return _error("failed", "", row.head.error or "")
    return None


def _error(
    code: str, kind: str, message: str, step: str | None = None, attempts: int | None = None, traceback: str = ""
) -> RunError:
    return {
        "code": code,
        "type": kind,
        "message": message,
        "step": step,
        "attempts": attempts,
        "traceback": traceback or None,
    }
