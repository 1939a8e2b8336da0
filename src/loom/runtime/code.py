"""What a run needs of its workflow's code, whichever way it was written.

May import loom.core, loom.effects, loom.flows and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.actions.binding import ActionBinding
from loom.effects.binding import StepBinding
from loom.effects.convert import LIVE
from loom.effects.flow_convert import FLOW
from loom.flows.planner import FlowPlanner
from loom.runtime.flow import Flow
from loom.steps.planner import StepsPlanner

if TYPE_CHECKING:
    from loom.core.planner import Planner
    from loom.effects.actions.outcomes import Services
    from loom.effects.body import Body
    from loom.effects.convert import Conversion
    from loom.steps.workflow import Workflow


class Code(NamedTuple):
    """A workflow, ready to run: its bodies by step, its planner, and how its events are kept."""

    bindings: dict[str, Body]
    planner: Planner
    convert: Conversion


class ActionBodies(dict[str, Any]):
    """The bodies of a flow's actions: one for whatever step they are asked for by."""

    def __init__(self, services: Services | None = None) -> None:
        super().__init__()
        self._services = services

    def __missing__(self, step: str) -> ActionBinding:
        body = self[step] = ActionBinding(step, self._services)
        return body


def code_of(workflow: Workflow) -> Code:
    """What runs in memory need, worked out once per instance and version of its steps."""
    version = type(workflow)._steps_version
    if workflow._bound is None or workflow._bound[0] != version:
        workflow._bound = (version, _flow_code(workflow) if isinstance(workflow, Flow) else _steps_code(workflow))
    code: Code = workflow._bound[1]
    return code


def _flow_code(flow: Flow) -> Code:
    return Code(ActionBodies(), FlowPlanner(flow.program), FLOW)


def _steps_code(workflow: Workflow) -> Code:
    manager = workflow._resources()
    bindings: dict[str, Body] = {
        name: StepBinding(name, function, function._step_config, manager)
        for name, function in workflow._get_steps().items()
    }
    return Code(bindings, StepsPlanner(), LIVE)
