"""What callers may send into runs: answers with the scope `event`, the rest as administrators, the engine's own never.

Without keys a caller on this machine is an administrator. What only an administrator may send is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.records import START_EVENT
from loom.runtime.durable.external import takes, way_in
from loom.server.problems import ApiProblem
from loom.steps.graph import is_bound, is_own
from loom.store.errors import RunFinished

if TYPE_CHECKING:
    from loom.core.records import EventKind
    from loom.core.state import BrokerState
    from loom.server.call import Call
    from loom.steps.events import Event
    from loom.store.records import RunRow

_OVER = ("completed", "cancelled")
"""Runs that take nothing any more, from any caller: they say so, or know the event again."""


async def check_sent(
    call: Call,
    row: RunRow,
    event: Event,
    *,
    step: str | None = None,
    waiter_id: str | None = None,
    event_id: str | None = None,
) -> str | None:
    """Refuse an event that the caller may not send into this run now. One that the run has had is let through.

    Returns the waiter that it is to be sent to; None: any step or waiter that takes it.
    """
    record = call.runtime.codec_of(row).record(event)
    kind = record.kind
    _refuse_own(call, kind)
    way = await way_in(call.runtime, row, record, step, waiter_id)
    if call.principal.has("admin"):
        call.forced = kind.name if way is None or way.waiter_id != waiter_id else None
        return waiter_id
    if way is not None:
        return way.waiter_id
    if row.head.status in _OVER or (event_id is not None and await call.runtime.has_event(row.run_id, event_id)):
        return waiter_id
    if row.head.status != "running":  # it may be retried before the event is there
        raise RunFinished(row.run_id, row.head.status)
    call.forced = kind.name
    raise ApiProblem("forbidden", _refusal(row, kind, step))


def check_better(call: Call, row: RunRow, event: Event, state: BrokerState) -> None:
    """Refuse an event in place of the one that failed a run, unless it is an answer or what the run began with."""
    kind = call.runtime.codec_of(row).record(event).kind
    _refuse_own(call, kind)
    code, item, outcome = call.runtime.codes.get(row.workflow), state.failed_item(), state.outcome
    abandoned = outcome.abandoned if outcome is not None else None
    answers = abandoned.answers_of(item.id).values() if abandoned is not None and item is not None else ()
    was_awaited = not is_bound(kind) and any(answer.kind.name == kind.name for answer in answers)
    if kind.is_a(START_EVENT) or was_awaited or (code is not None and takes(code, kind)):
        return
    call.forced = kind.name
    if not call.principal.has("admin"):
        raise ApiProblem("forbidden", _refusal(row, kind, item.step if item is not None else None))


def _refuse_own(call: Call, kind: EventKind) -> None:
    if is_own(kind):
        call.forced = kind.name
        raise ApiProblem("forbidden", f"{_label(kind)} is an event of the engine: nobody sends it from outside.")


def _refusal(row: RunRow, kind: EventKind, step: str | None) -> str:
    label = _label(kind)
    if is_bound(kind):
        return f"{label} begins or ends a run: the key lacks the scope 'admin'."
    where = f" at its step {step[:100]!r}" if step is not None else ""
    if row.document is not None:
        how = f"A key with the scope 'event' may send what a waitForEvent of the flow names: add one for {label}"
    else:
        how = f"Declare it in the code of {row.workflow!r} with @step(external_events=[{label}])"
    return (
        f"Run {row.run_id!r} does not wait for {label}{where}, and the type is not declared as one from outside. "
        f"{how}, or use a key with the scope 'admin'."
    )


def _label(kind: EventKind) -> str:
    return (kind.label or kind.name.rpartition(".")[2])[:100]
