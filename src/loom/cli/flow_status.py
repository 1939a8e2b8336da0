"""A run of a flow in detail, for `loom workflow status`. May import loom.flows, loom.runtime and loom.store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.cli.flow_words import result_words, status_lines, type_words
from loom.cli.shown import ago, iso, print_line, print_table, span
from loom.core.records import EventRecord
from loom.core.state import CHILD_RUN
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
from loom.runtime.code import planner_for
from loom.store import codec

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.flows.program import Program
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.runtime import DurableRuntime

_TIMES = ("start_time", "next_iteration_at", "since", "due", "started", "ended")
_ENDS = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}


class FlowStatus(msgspec.Struct, frozen=True):
    """How far a flow is."""

    at: float
    loops: list[LoopProgress]
    under_way: list[ActionProgress]
    actions: list[ActionState]
    variables: dict[str, Any]
    error: dict[str, Any] | None = None
    """What made it fail."""

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "loops": [_plain(loop) for loop in self.loops],
            "under_way": [_plain(action) for action in self.under_way],
            "actions": [_plain(action) for action in self.actions],
            "variables": self.variables,
        }


async def program_of_run(runtime: DurableRuntime, run_id: str) -> Program | None:
    """The program that a run follows: that of the document it was started with. None for a workflow in Python."""
    digest = (await runtime.row(run_id)).document
    text = await runtime.store.document(digest) if digest is not None else None
    planner = planner_for(text)
    return planner.program if isinstance(planner, FlowPlanner) else None


async def end_of_run(runtime: DurableRuntime, run_id: str) -> FlowEnd | None:
    """What a flow ended with, which is the last thing on its stream; None while it runs."""
    head = (await runtime.row(run_id)).head
    if head.status == "running" or not head.events:
        return None
    chunks = await runtime.store.stream(run_id, head.events - 1, 1)
    last = codec.decode_published(run_id, chunks[-1])[-1] if chunks else None
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


def _plain(shown: msgspec.Struct) -> dict[str, Any]:
    found = msgspec.structs.asdict(shown)
    return {name: iso(value) if name in _TIMES else value for name, value in found.items()}


def print_flow_status(info: RunInfo, found: FlowStatus, waiters: list[dict[str, Any]], with_actions: bool) -> None:
    """The same for people."""
    print_line(f"Workflow: {info.workflow}")
    print_line(f"Status: {_status(info)}")
    if info.parked:
        print_line(f"Parked: {info.parked}")
    if info.status != "running":
        print_line(f"Duration: {span(_duration(info))}")
    if info.error:
        print_line(f"Error: {found.error.get('message') if found.error else info.error}")
    for line in status_lines(found.loops, found.under_way, _awaited(waiters, found.at), found.at):
        print_line(line)
    if with_actions:
        rows = [_row(action) for action in found.actions]
        print_table(("action", "type", "status", "duration", "outputs or error"), rows, "Actions")


def _status(info: RunInfo) -> str:
    if info.status != "running":
        return _ENDS[info.status]
    marks = [word for word, holds in (("paused", info.paused), ("parked", info.parked is not None)) if holds]
    return f"Running ({', '.join(marks)})" if marks else "Running"


def _duration(info: RunInfo) -> float:
    return ((info.ended_at or info.updated_at) - info.created_at).total_seconds()


def _awaited(waiters: list[dict[str, Any]], now: float) -> dict[str, list[str]]:
    """The events that actions wait for, by the names of the actions."""
    from datetime import datetime

    awaited: dict[str, list[str]] = {}
    for waiter in waiters:
        until = waiter.get("deadline")
        words = waiter["event_type"].rpartition(".")[2]
        words += f" {waiter['waiter_id']}" if words == CHILD_RUN else ""
        words += f", times out {ago(datetime.fromisoformat(until), now)}" if until else ""
        awaited.setdefault(waiter["step"], []).append(words)
    return awaited


def _row(action: ActionState) -> tuple[str, ...]:
    taken = span(action.ended - action.started) if action.ended is not None and action.started is not None else ""
    is_loop = action.iterations is not None
    status = f"{action.status} ({action.iterations} iterations)" if is_loop else action.status
    error = action.error.get("message") if isinstance(action.error, dict) else action.error
    told = str(error) if error else "" if action.outputs is None else result_words(action.outputs)
    return action.path, type_words(action.type), status, "" if action.status == "Skipped" else taken, told
