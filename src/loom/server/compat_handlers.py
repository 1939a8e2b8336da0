"""Handlers: names for the latest of their runs, and what clients of the compatible routes learn about them.

May import loom.runtime, loom.steps and loom.store.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, overload

from pydantic_core import to_json

from loom.api.moments import moment
from loom.core.records import EventRecord
from loom.effects.threads import aside_if_large
from loom.runtime.details import last_published, shown_waiter
from loom.runtime.durable.names import HANDLER_AGAIN, can_be_kept
from loom.server.answers import json_bytes
from loom.server.compat_events import envelope, result_value
from loom.server.views import HANDLER, wait_for_end
from loom.steps.events import StopEvent
from loom.store.errors import CorruptRecord
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.effects.convert import Conversion
    from loom.runtime.durable.working import WorkingRuntime
    from loom.runtime.shapes import Envelope
    from loom.server.shapes_compat import HandlerData, HandlerResult
    from loom.store.records import RunRow

_LONG_S = 3600.0
_MAX_STEM = 180
"""The id of a run is no longer than 200 characters, whatever its number."""


class Result(NamedTuple):
    """What a completed run ended with, if that can be read."""

    event: StopEvent | None = None
    envelope: Envelope | None = None
    unreadable: bool = False


_NONE = Result()


def handler_of(row: RunRow) -> str:
    """The handler that a run belongs to. One that was started by other means is its own."""
    return row.tags.get(HANDLER, row.run_id)


def number_of(row: RunRow) -> int:
    """Which of its handler's runs it is, from 1."""
    number = row.tags.get(HANDLER_AGAIN, "")
    return int(number) if number.isdecimal() else 1


async def latest_run(runtime: WorkingRuntime, handler_id: str) -> RunRow | None:
    """The latest run of a handler; a run that belongs to none goes by its own id."""
    await runtime.ready()
    if not can_be_kept(handler_id):
        return None
    rows = await runtime.store.find(RunQuery(tags={HANDLER: handler_id}, limit=1))
    last = rows[0] if rows else await runtime.store.get(handler_id)
    # Not every store lists at once what another process has stored just now; by its id it is there.
    while last is not None and last.head.status != "running" and handler_of(last) == handler_id:
        later = (await run_after(runtime, last)).row
        if later is None:
            break
        last = later
    return last


class RunAfter(NamedTuple):
    """The run of a handler after another one."""

    number: int
    run_id: str
    row: RunRow | None
    """None: there is none yet."""


async def run_after(runtime: WorkingRuntime, last: RunRow) -> RunAfter:
    """The run of a handler after this one. Ids that look like it but belong to others are passed over."""
    handler_id, number = handler_of(last), number_of(last) + 1
    stem = handler_id if len(handler_id) <= _MAX_STEM else hashlib.sha256(handler_id.encode()).hexdigest()
    while (row := await runtime.store.get(f"{stem}~{number}")) is not None and handler_of(row) != handler_id:
        number += 1
    return RunAfter(number, f"{stem}~{number}", row)


async def until_ended(runtime: WorkingRuntime, run_id: str) -> RunRow:
    """The run, once it has ended, however long that takes."""
    while True:
        row = await wait_for_end(runtime, run_id, _LONG_S)
        if row.head.status != "running":
            return row


async def result_of(runtime: WorkingRuntime, row: RunRow) -> Result:
    """The result of a run, which is the last event of its stream."""
    if row.head.status != "completed":
        return _NONE
    try:
        published = await last_published(runtime, row)
        if not isinstance(published, EventRecord):
            return Result(unreadable=True)
        read = partial(_result, runtime.convert_of(row))
        # Classes of authors have code of theirs, which belongs on the event loop.
        return read(published) if row.document is None else await aside_if_large(read, published)
    except (CorruptRecord, ValueError):
        # Its class is not known here, it is damaged, or a value of it has no JSON form: the run is over all the same.
        return Result(unreadable=True)


def _result(convert: Conversion, published: EventRecord) -> Result:
    event = convert.event(published)
    return Result(event, envelope(event)) if isinstance(event, StopEvent) else Result(unreadable=True)


def handler_data(row: RunRow, result: Result = _NONE) -> HandlerData:
    """A handler as the client's models have it, with all their keys, and what it waits for."""
    head = row.head
    running = head.status == "running"
    return {
        "handler_id": handler_of(row),
        "workflow_name": row.workflow,
        "run_id": row.run_id,
        "status": head.status,
        "error": head.failed_with,
        "result": result.envelope,
        "result_unreadable": result.unreadable,
        "started_at": _iso(row.created_at),
        "updated_at": _iso(head.updated_at),
        "completed_at": _iso(row.ended_at),
        "idle_since": _iso(head.idle_since) if running else None,
        "active_waiters": [shown_waiter(waiter) for waiter in json.loads(head.waiters)] if running else None,
    }


def handler_json(data: HandlerData | HandlerResult) -> bytes:
    """JSON with results of runs in it, which may hold what JSON has no words for: infinite numbers, half characters."""
    try:
        return to_json(data, inf_nan_mode="null")
    except ValueError:
        return json_bytes(data)


def unwrapped(data: HandlerData, result: Result) -> HandlerResult:
    """The same with the result itself instead of an envelope."""
    return {**data, "result": result_value(result.event) if result.event is not None else None}


@overload
def _iso(seconds: float) -> str: ...
@overload
def _iso(seconds: float | None) -> str | None: ...
def _iso(seconds: float | None) -> str | None:
    """A time with its offset in digits, as the original writes it: not every `fromisoformat` reads a Z."""
    return moment(seconds).isoformat() if seconds is not None else None
