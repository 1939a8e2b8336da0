"""A run in detail as plain data: what it does, what it waits for, what it keeps. `flow_details` says how far a flow is.

Whoever asks about a workflow in Python does without what flows need. May import loom.core, loom.effects,
loom.flows.calls, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from loom.api.refusals import RefusedEvent
from loom.core.records import EventRecord
from loom.core.state import EMPTY_WORKER
from loom.effects.kept import waiter_dict
from loom.flows.calls import FlowEnd
from loom.runtime import masking
from loom.runtime.attempts import attempts_of
from loom.runtime.plain import iso
from loom.runtime.planners import planner_for, program_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.reports import Published, WaiterReport
    from loom.core.state import BrokerState, InternalStepWorkerState
    from loom.flows.program import Program
    from loom.runtime.durable.calls import StoredRuns
    from loom.runtime.shapes import StateDetails, StepState, Waiter
    from loom.store.records import RunRow


async def program_of_row(runtime: StoredRuns, row: RunRow) -> Program | None:
    """The program that a run follows: that of the document it was started with. None for a workflow in Python."""
    text = await runtime.store.document(row.document) if row.document is not None else None
    return program_in(planner_for(text))


async def last_published(runtime: StoredRuns, row: RunRow) -> Published | None:
    """What a run ended with, which is the last thing on its stream; None while it runs."""
    head = row.head
    if head.status == "running" or not head.events:
        return None
    recent = runtime.recent.find(row)
    if recent is not None:
        return recent
    chunks = await runtime.store.stream(row.run_id, head.events - 1, 1)
    return (await runtime.decoded.decode(row.run_id, chunks[-1])).published[-1] if chunks else None


async def end_of_run(runtime: StoredRuns, run_id: str) -> FlowEnd | None:
    """What a flow ended with; None while it runs."""
    last = await last_published(runtime, await runtime.row(run_id))
    return last.body if isinstance(last, EventRecord) and isinstance(last.body, FlowEnd) else None


def state_details(state: BrokerState, program: Program | None = None) -> StateDetails:
    """What the state of a run says, of either kind; of a flow, without what is secure by its program."""
    has_ended = state.outcome is not None and state.outcome.status != "parked"
    # A cancelled run keeps its timers in its state, for a saved context; none of them will fire.
    armed = {} if has_ended else state.timers
    timers = sorted(armed.items(), key=lambda pair: (pair[1].due, pair[0]))
    attempts = attempts_of(state, program)
    return {
        "active_waiters": [
            shown_waiter(waiter_dict(masking.shown_waiter(program, report))) for report in open_waiters(state)
        ],
        "steps": [
            _step(spec.name, worker)
            for spec in state.config.steps
            if (worker := state.workers.get(spec.name, EMPTY_WORKER)) is not EMPTY_WORKER
        ],
        "timers": [
            {"timer": number, "due": iso(timer.due), "purpose": timer.purpose, "step": timer.step or None}
            for number, timer in timers
        ],
        "kept": [{"event_type": name, "count": len(state.waiting.kept[name])} for name in sorted(state.waiting.kept)],
        "children": [
            {"run_id": child.run_id, "workflow": child.workflow, "step": child.step, "since": iso(child.since)}
            for _, child in sorted(state.children.items())
        ],
        "executing": msgspec.to_builtins(attempts.executing),
        "failed_attempts": msgspec.to_builtins(attempts.failed),
        "refused": [_refused(step, waiter_id, structs.asdict(one)) for step, waiter_id, one in state.refusals()],
    }


def shown_waiter(waiter: dict[str, Any]) -> Waiter:
    """A waiter with its times as dates."""
    return {
        "step": waiter["step"],
        "waiter_id": waiter["waiter_id"],
        "event_type": waiter["event_type"],
        "requirements": waiter["requirements"],
        "since": iso(waiter["since"]),
        "deadline": iso(waiter["deadline"]),
        "refused": _refused(waiter["step"], waiter["waiter_id"], waiter["refused"]) if "refused" in waiter else None,
    }


def _refused(step: str, waiter_id: str | None, refusal: Mapping[str, Any]) -> RefusedEvent:
    """A refused event as JSON has it."""
    at = datetime.fromtimestamp(refusal["at"], tz=UTC)
    shown: Any = msgspec.to_builtins(RefusedEvent(step=step, waiter_id=waiter_id, **{**refusal, "at": at}))
    return shown  # type: ignore[no-any-return]  # its plain form, as all that is shown


def open_waiters(state: BrokerState) -> tuple[WaiterReport, ...]:
    """As the row of the run has them, but all: steps that take answers count when the run is idle."""
    if not state.is_running or not (state.idle_since is not None or state.waiting.index or state.children):
        return ()
    return state.waiter_reports()


def _step(name: str, worker: InternalStepWorkerState) -> StepState:
    return {
        "step": name,
        "executing": len(worker.in_progress),
        "waiting": len(worker.suspended),
        "queued": len(worker.queue),
        "delayed": len(worker.delayed),
    }
