"""A run in detail as plain data: what it does, what it waits for, what it keeps; of a flow, how far it is.

May import loom.core, loom.effects, loom.flows, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from loom.core.records import EventRecord
from loom.core.state import EMPTY_WORKER
from loom.effects.convert import waiter_dict
from loom.flows.calls import FlowEnd
from loom.flows.planner import FlowPlanner
from loom.flows.progress import (
    ActionProgress,
    ActionState,
    LoopProgress,
    action_list,
    action_progress,
    ended_actions,
    loop_progress,
    preview,
)
from loom.flows.records import MASK
from loom.flows.state import FlowPlan
from loom.runtime import masking
from loom.runtime.code import planner_for
from loom.runtime.plain import iso
from loom.store import codec

if TYPE_CHECKING:
    from loom.core.reports import Published, WaiterReport
    from loom.core.state import BrokerState, InternalStepWorkerState
    from loom.flows.program import Program
    from loom.runtime.durable.calls import StoredRuns
    from loom.runtime.shapes import Action, ActionUnderWay, FlowDetails, LoopState, StateDetails, StepState, Waiter
    from loom.store.records import RunRow

_TIMES = ("start_time", "next_iteration_at", "since", "due", "started", "ended")


class FlowStatus(msgspec.Struct, frozen=True):
    """How far a flow is."""

    at: float
    loops: list[LoopProgress]
    under_way: list[ActionProgress]
    actions: list[ActionState]
    variables: dict[str, Any]
    error: dict[str, Any] | None = None
    """What made it fail."""

    def as_dict(self) -> FlowDetails:
        """The same for programs."""
        return {
            "loops": [cast("LoopState", shown_dict(loop)) for loop in self.loops],
            "under_way": [cast("ActionUnderWay", shown_dict(action)) for action in self.under_way],
            "actions": [cast("Action", shown_dict(action)) for action in self.actions],
            "variables": self.variables,
        }


def shown_dict(shown: msgspec.Struct) -> dict[str, Any]:
    """The progress of a loop or an action for programs: the fields of its class are the keys of its shape."""
    found = msgspec.structs.asdict(shown)
    return {name: iso(value) if name in _TIMES else value for name, value in found.items()}


async def program_of_row(runtime: StoredRuns, row: RunRow) -> Program | None:
    """The program that a run follows: that of the document it was started with. None for a workflow in Python."""
    text = await runtime.store.document(row.document) if row.document is not None else None
    planner = planner_for(text)
    return planner.program if isinstance(planner, FlowPlanner) else None


async def last_published(runtime: StoredRuns, row: RunRow) -> Published | None:
    """What a run ended with, which is the last thing on its stream; None while it runs."""
    head = row.head
    if head.status == "running" or not head.events:
        return None
    chunks = await runtime.store.stream(row.run_id, head.events - 1, 1)
    return codec.decode_published(row.run_id, chunks[-1])[-1] if chunks else None


async def end_of_run(runtime: StoredRuns, run_id: str) -> FlowEnd | None:
    """What a flow ended with; None while it runs."""
    last = await last_published(runtime, await runtime.row(run_id))
    return last.body if isinstance(last, EventRecord) and isinstance(last.body, FlowEnd) else None


def flow_status(program: Program, state: BrokerState, at: float, end: FlowEnd | None) -> FlowStatus | None:
    """What the state of a run says, or what it has ended with."""
    if end is not None:
        return FlowStatus(at, [], [], ended_actions(program, end), end.variables, end.error)
    plan = state.plan
    if not isinstance(plan, FlowPlan):
        return None
    variables = {
        variable.name: MASK if key in program.secure_variables else preview(variable.whole())
        for key, variable in sorted(plan.variables.items())
    }
    is_over = state.outcome is not None
    loops = [] if is_over else loop_progress(program, plan, at)
    under_way = [] if is_over else action_progress(program, plan)
    return FlowStatus(at, loops, under_way, action_list(program, plan), variables)


def state_details(state: BrokerState, program: Program | None = None) -> StateDetails:
    """What the state of a run says, of either kind; of a flow, without what is secure by its program."""
    timers = sorted(state.timers.items(), key=lambda pair: (pair[1].due, pair[0]))
    return {
        "active_waiters": [
            shown_waiter(waiter_dict(masking.shown_waiter(program, report))) for report in _waiters(state)
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
    }


def _waiters(state: BrokerState) -> tuple[WaiterReport, ...]:
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
