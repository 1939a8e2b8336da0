"""Renders how far a flow is. Only callers that ask about a flow import this module, with what flows need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from loom.api.answers import Answer
from loom.api.state import Action, ActionUnderWay, Loop
from loom.api.times import maybe_moment
from loom.flows.calls import MASK
from loom.flows.progress import (
    ActionProgress,
    ActionState,
    LoopProgress,
    action_list,
    action_progress,
    ended_actions,
    ended_loops,
    loop_progress,
    preview,
)
from loom.flows.state import FlowPlan

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.flows.calls import FlowEnd
    from loom.flows.program import Program

ShownT = TypeVar("ShownT", bound=Answer)

_TIMES = frozenset({
    "start_time", "next_iteration_at", "since", "due", "started", "ended", "failed_at", "attempt_since",
})  # fmt: skip


class FlowRunStatus(msgspec.Struct, frozen=True):
    """How far a flow is, in the terms of the engine. Times are seconds since 1970."""

    at: float
    loops: list[LoopProgress]
    """Those under way."""
    ended_loops: list[LoopProgress]
    under_way: list[ActionProgress]
    actions: list[ActionState]
    variables: dict[str, Any]
    error: dict[str, Any] | None = None
    """What made it fail."""


def flow_status(program: Program, state: BrokerState, at: float, end: FlowEnd | None) -> FlowRunStatus | None:
    """Read from the state of a run, or from what it ended with, how far the flow is."""
    if end is not None:
        actions = ended_actions(program, end)
        return FlowRunStatus(at, [], ended_loops(program, actions), [], actions, end.variables, end.error)
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
    actions = action_list(program, plan)
    return FlowRunStatus(at, loops, ended_loops(program, actions), under_way, actions, variables)


def state_fields(flow: FlowRunStatus) -> dict[str, Any]:
    """Render the fields of a `State` that only flows have."""
    return {
        "loops": [_shown(Loop, loop) for loop in flow.loops],
        "under_way": [_shown(ActionUnderWay, action) for action in flow.under_way],
        "actions": rendered_actions(flow),
        "variables": flow.variables,
    }


def rendered_actions(flow: FlowRunStatus, path: str | None = None) -> list[Action]:
    """Render the actions of a flow; with a path only the one of that repetition."""
    return [_shown(Action, action) for action in flow.actions if path in (None, action.path)]


def rendered_action(action: ActionState) -> Action:
    """Render one repetition of an action."""
    return _shown(Action, action)


def rendered_loops(flow: FlowRunStatus, *, ended: bool) -> list[Loop]:
    """Render the loops that are running, and on request the ended ones."""
    under_way = {loop.name for loop in flow.loops}
    over = [loop for loop in flow.ended_loops if ended and loop.name not in under_way]
    return [_shown(Loop, loop) for loop in (*flow.loops, *over)]


def _shown(kind: type[ShownT], progress: msgspec.Struct) -> ShownT:
    """Render progress as an answer that has the same fields, with dates in place of seconds."""
    fields = msgspec.structs.asdict(progress)
    dated = {name: maybe_moment(value) if name in _TIMES else value for name, value in fields.items()}
    return kind(**dated)
