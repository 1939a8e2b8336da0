"""Renders stored runs as the API's types: what `/v1` answers with, and what commands print."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, overload

from msgspec.structs import asdict, replace

from loom.api.runs import HistoryItem, RefusedEvent, Run, RunError, Waiter
from loom.api.state import ChildState, KeptState, State, StepState, TimerState
from loom.api.times import maybe_moment, moment
from loom.core.records import EventRecord, FailedReport, TimedOutReport
from loom.core.state import EMPTY_WORKER, is_skippable
from loom.effects.off_loop import aside
from loom.effects.stored_text import kept_text
from loom.flows.calls import MASK, FlowEnd
from loom.runtime.masking import SCHEDULE_DEFINITION, ListenerMasking, Masking, ScheduleMasking
from loom.runtime.own_names import HANDLER, OWN, SCHEDULES, TRIGGERS
from loom.runtime.plain import fields_of, plain, plain_stop, stored_value
from loom.runtime.run_head import stored_waiter, waiter_kind
from loom.runtime.stored_run import end_of_run, last_published, open_waiters, program_of_row
from loom.runtime.why import attempts_of
from loom.steps.registry import UnknownTypeError
from loom.store.errors import CorruptRecord, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.api.runs import RunResult
    from loom.core.records import Published
    from loom.core.state import BrokerState, InternalStepWorkerState
    from loom.flows.program import Program
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.masking import AnyMasking
    from loom.runtime.render_flow import FlowRunStatus
    from loom.store.records import RunRow

_log = logging.getLogger("loom.run")

MAX_LISTED_TEXT = 16 * 1024
"""How many bytes of an error's text a list shows."""
NO_TIMERS: Final[Mapping[str, float]] = MappingProxyType({})


# -- a run ------------------------------------------------------------------------------------------------------------


async def rendered_run(
    runtime: RunClient,
    row: RunRow,
    *,
    whole: bool = True,
    with_result: bool = True,
    timers: Mapping[str, float] = NO_TIMERS,
) -> Run:
    """Render a run, whatever its status.

    In lists (`whole=False`) `next_timer_at` comes from `timers`, which `next_timers` reads for many rows at once, and
    from deadlines of waiters, which rows have. Errors have no traceback there and at most `MAX_LISTED_TEXT` bytes of
    message, so that a page of a hundred runs is light. Without its result, that of a completed run is not even read.
    """
    result, error = await _outcome(runtime, row, with_result)
    head = row.head
    parked, stuck = head.parked, head.stuck
    if not whole:
        error = replace(error, traceback=None, message=cut_text(error.message)) if error is not None else None
        parked, stuck = cut_text(parked), cut_text(stuck)
    running = head.status == "running"
    return _of_row(
        row,
        version=await runtime.definitions.number_of(row.workflow, row.document),
        active_waiters=await _waiters(runtime, row.workflow, json.loads(head.waiters)) if running else None,
        next_timer_at=maybe_moment(await _next_timer(runtime, row, whole, timers)) if running else None,
        result=result,
        error=error,
        parked=parked,
        stuck=stuck,
    )


async def next_timers(runtime: RunClient, rows: Iterable[RunRow]) -> Mapping[str, float]:
    """Read when runs that are asleep go on, by their ids; runs in this process are left out, for they tell it."""
    asleep = [row.run_id for row in rows if row.head.asleep and runtime.active_run(row.run_id) is None]
    return await runtime.store.next_timers(asleep) if asleep else NO_TIMERS


async def listed_run(
    runtime: RunClient, row: RunRow, *, with_result: bool, timers: Mapping[str, float] = NO_TIMERS
) -> Run:
    """Render a run for a list. One that cannot be shown says so in its own place, and the list goes on."""
    try:
        return await rendered_run(runtime, row, whole=False, with_result=with_result, timers=timers)
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, CorruptRecord):
            raise  # it is the store that fails, not the row
        return unshown_run(row, error)


def unshown_run(row: RunRow, error: Exception) -> Run:
    """Render a run that cannot be shown by what its row says for sure, with the reason as its error."""
    from loom.runtime.logs import about  # imports the engine, which a reader of a store does without

    _log.error("Run %s cannot be shown in a list.", row.run_id, exc_info=error, extra=about(row.run_id))
    message = cut_text(f"The run cannot be shown: {type(error).__name__}: {error}")
    head = row.head
    return _of_row(
        row,
        active_waiters=[] if head.status == "running" else None,
        error=RunError(code="result-unreadable", type=type(error).__name__, message=message),
        parked=head.parked,
        stuck=head.stuck,
    )


@overload
def cut_text(text: str) -> str: ...
@overload
def cut_text(text: str | None) -> str | None: ...
def cut_text(text: str | None) -> str | None:
    """Cut a text to at most `MAX_LISTED_TEXT` bytes; one that was cut ends with an ellipsis."""
    if text is None or len(text) * 4 <= MAX_LISTED_TEXT:
        return text
    written = text.encode("utf-8", "replace")
    if len(written) <= MAX_LISTED_TEXT:
        return text
    return written[: MAX_LISTED_TEXT - 3].decode("utf-8", "ignore") + "\u2026"


def _of_row(row: RunRow, **fields: Any) -> Run:
    """Render what the row of a run says, with the fields that it does not."""
    head = row.head
    return Run(
        run_id=row.run_id,
        workflow=row.workflow,
        kind="steps" if row.document is None else "flow",
        status=head.status,
        idle_since=maybe_moment(head.idle_since) if head.status == "running" else None,
        tick=head.ticks - 1,
        cursor=head.events - 1,
        created_at=moment(row.created_at),
        updated_at=moment(head.updated_at),
        completed_at=maybe_moment(row.ended_at),
        forked_from=row.forked_from,
        handler_id=row.tags.get(HANDLER, row.run_id),
        paused=head.paused,
        asleep=head.asleep,
        kept_events=head.kept,
        tags=row.tags,
        parent_id=row.parent,
        in_memory=row.owner is not None,
        **fields,
    )


async def _waiters(runtime: RunClient, workflow: str, waiters: list[dict[str, Any]]) -> list[Waiter]:
    """Render the waiters of a run with the schemas of their answers."""
    return [rendered_waiter(waiter) for waiter in await runtime.catalog.shown(workflow, waiters)]


def rendered_waiter(waiter: Mapping[str, Any]) -> Waiter:
    """Render a waiter as a row has it. A row of steps has no schema: see `Catalog.shown`."""
    refused = _refused(waiter["step"], waiter["waiter_id"], waiter["refused"]) if "refused" in waiter else None
    return Waiter(
        step=waiter["step"],
        waiter_id=waiter["waiter_id"],
        event_type=waiter["event_type"],
        requirements=waiter["requirements"],
        since=maybe_moment(waiter["since"]),
        deadline=maybe_moment(waiter["deadline"]),
        refused=refused,
        kind=waiter_kind(waiter),
        schema=waiter.get("schema"),
        prompt=waiter.get("prompt"),
    )


def _refused(step: str, waiter_id: str | None, refusal: Mapping[str, Any]) -> RefusedEvent:
    return RefusedEvent(step=step, waiter_id=waiter_id, **{**refusal, "at": moment(refusal["at"])})


async def _next_timer(runtime: RunClient, row: RunRow, whole: bool, timers: Mapping[str, float]) -> float | None:
    """Return when the run goes on by itself; None if it does not."""
    active = runtime.active_run(row.run_id)
    if active is not None and not active.is_ahead:
        return min((timer.due for timer in active.state.timers.values()), default=None)
    if whole:
        with suppress(CorruptRecord):  # what its row says is still true
            stored = await runtime.store.load(row.run_id)
            return min((timer.due for timer in stored.timers), default=None) if stored is not None else None
    dues = [timers.get(row.run_id), *(waiter["deadline"] for waiter in json.loads(row.head.waiters))]
    return min((due for due in dues if due is not None), default=None)


async def _outcome(runtime: RunClient, row: RunRow, with_result: bool) -> tuple[RunResult | None, RunError | None]:
    """Return the result and the error of a run that has ended.

    Of one that goes on, the error says why no worker can tell how it is.
    """
    if row.head.status == "running":
        silent = row.head.failed_with
        return None, RunError(code="unanswered", type="", message=silent) if silent else None
    if not with_result and row.head.status == "completed":
        return None, None
    try:
        last = await last_published(runtime, row)
    except CorruptRecord as error:
        return None, RunError(code="result-unreadable", type="CorruptRecord", message=str(error))
    if isinstance(last, EventRecord):
        result, failed = _result(runtime, row, last)
        return result if with_result else None, failed
    return None, _failure(row, last)


def _result(runtime: RunClient, row: RunRow, record: EventRecord) -> tuple[RunResult, RunError | None]:
    end = record.body
    if isinstance(end, FlowEnd):
        shown: RunResult = {"status": end.status, "outputs": end.outputs, "response": end.response}
        failed = end.error if row.head.status == "failed" else None
        code = "timeout" if end.status == "TimedOut" else str((failed or {}).get("code") or "failed")
        message = str((failed or {}).get("message") or "")
        if not failed:
            return shown, None
        return shown, RunError(code=code, type="FlowFailed", message=message, traceback=end.traceback or None)
    return {"type": record.kind.label, "value": event_value(runtime, row, record)}, None


def event_value(runtime: RunClient, row: RunRow, record: EventRecord) -> Any:
    """Return the fields of an event: as its class has them, or as they are stored where the class is not loaded."""
    fields = plain_stop(record) if row.workflow not in runtime.codes else None
    if fields is not None:
        return fields
    try:
        return runtime.codec_of(row).event(record).model_dump(mode="json")
    except (UnknownTypeError, ValueError):
        return fields_of(record)


def _failure(row: RunRow, last: Published | None) -> RunError | None:
    match last:
        case FailedReport():
            failure = last.failure
            return RunError(
                code="failed",
                type=failure.type,
                message=failure.message,
                step=last.step,
                attempts=last.attempts,
                traceback=failure.traceback or None,
            )
        case TimedOutReport():
            message = row.head.error or "The run's time was over."
            return RunError(code="timeout", type="WorkflowTimeoutError", message=message)
        case _:
            pass
    if row.head.status == "failed":
        return RunError(code="failed", type="", message=row.head.error or "")
    return None


# -- its state --------------------------------------------------------------------------------------------------------


async def rendered_state(runtime: RunClient, row: RunRow, tick: int | None = None) -> State:
    """Render what a run does, waits for and keeps: now, or as it was after a tick.

    Raises `ValueError` if there is no such tick. Of a run whose journal cannot be read it says so, and nothing else.
    """
    number = row.head.ticks - 1 if tick is None else tick
    try:
        state = await runtime.state_at(row.run_id, tick)
        flow = await flow_of(runtime, row, state, tick)
    except CorruptRecord as error:
        return State(run_id=row.run_id, tick=number, damaged=str(error), **_UNKNOWN)
    known = {
        "run_id": row.run_id,
        "tick": number,
        "at": moment(state.at),
        "is_running": state.is_running,
        "idle_since": maybe_moment(state.idle_since),
        "damaged": None,
        **_details(state, program := await program_of_row(runtime, row), is_own=row.workflow.startswith(OWN)),
        "active_waiters": await _waiters(
            runtime, row.workflow, [stored_waiter(program, report) for report in open_waiters(state)]
        ),
    }
    if flow is not None:
        from loom.runtime.render_flow import state_fields  # imports what only flows need

        return State(**known, **state_fields(flow))
    store = {key: stored_value(kept_text(text)) for key, text in sorted(state.store.items())}
    if row.workflow == SCHEDULES and SCHEDULE_DEFINITION in store:
        store[SCHEDULE_DEFINITION] = MASK
    return State(**known, loops=[], store=store)


_UNKNOWN: dict[str, Any] = {
    "at": None,
    "is_running": None,
    "idle_since": None,
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


def _details(state: BrokerState, program: Program | None, *, is_own: bool) -> dict[str, Any]:
    """Render what the state of a run of either kind says; of a flow without what its program calls secure.

    `is_own`: the run belongs to the engine, and nobody skips its delays.
    """
    has_ended = state.outcome is not None and state.outcome.status != "parked"
    # A cancelled run keeps its timers in its state, for a saved context; none of them will fire.
    armed = {} if has_ended else state.timers
    timers = sorted(armed.items(), key=lambda pair: (pair[1].due, pair[0]))
    attempts = attempts_of(state, program)
    early = state.waiting.kept
    return {
        "steps": [
            _step(spec.name, worker)
            for spec in state.config.steps
            if (worker := state.workers.get(spec.name, EMPTY_WORKER)) is not EMPTY_WORKER
        ],
        "timers": [
            TimerState(
                timer=number,
                due=moment(timer.due),
                purpose=timer.purpose,
                step=timer.step or None,
                skippable=is_skippable(timer, state.at) and state.is_running and not is_own,
            )
            for number, timer in timers
        ],
        "kept": [KeptState(event_type=name, count=len(early[name])) for name in sorted(early)],
        "children": [
            ChildState(run_id=each.run_id, workflow=each.workflow, step=each.step, since=maybe_moment(each.since))
            for _, each in sorted(state.children.items())
        ],
        "executing": attempts.executing,
        "failed_attempts": attempts.failed,
        "refused": [_refused(step, waiter_id, asdict(one)) for step, waiter_id, one in state.refusals()],
    }


def _step(name: str, worker: InternalStepWorkerState) -> StepState:
    return StepState(
        step=name,
        executing=len(worker.in_progress),
        waiting=len(worker.suspended),
        queued=len(worker.queue),
        delayed=len(worker.delayed),
    )


async def flow_of(runtime: RunClient, row: RunRow, state: BrokerState, tick: int | None) -> FlowRunStatus | None:
    """Read how far a flow is in a state of its run; `tick` is None if that is the present state. None for steps."""
    program = await program_of_row(runtime, row)
    if program is None:
        return None
    from loom.runtime.render_flow import flow_status  # imports what only flows need

    at = runtime.now() if tick is None and row.head.status == "running" else state.at
    end = await end_of_run(runtime, row.run_id) if tick is None else None
    # Actions may have large outputs, of which only the beginning is shown.
    return await aside("replay", flow_status, program, state, at, end)


# -- its history ------------------------------------------------------------------------------------------------------


def rendered_tick(
    entry: HistoryEntry,
    mask: AnyMasking | None,
    commands: list[dict[str, Any]] | None = None,
) -> HistoryItem:
    """Render a tick without what is secure; with the commands that it led to, if they are given."""
    tick = mask.tick(entry.tick) if mask is not None else entry.tick
    shown = {"type": type(tick).__name__, **plain(tick)}
    return HistoryItem(seq=entry.seq, at=moment(entry.at), tick=shown, commands=commands)


async def masking_for(runtime: RunClient, row: RunRow) -> AnyMasking | None:
    """Return what hides the secure data of a run; None for steps, which have none."""
    if row.workflow == SCHEDULES:
        return ScheduleMasking()
    if row.workflow.startswith(TRIGGERS):
        return ListenerMasking()
    program = await program_of_row(runtime, row)
    return Masking(program) if program is not None else None
