"""How far a flow is, as plain data. May import loom.flows and loom.runtime.plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from loom.flows.calls import MASK
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
from loom.flows.state import FlowPlan
from loom.runtime.plain import iso

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.flows.calls import FlowEnd
    from loom.flows.program import Program
    from loom.runtime.shapes import Action, ActionUnderWay, FlowDetails, LoopState

_TIMES = ("start_time", "next_iteration_at", "since", "due", "started", "ended", "failed_at", "attempt_since")


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
