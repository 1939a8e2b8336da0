"""The workflow action: another registered workflow as a child run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.effects.actions.outcomes import ActionFailed, code_of, object_inputs, plain, within_limit
from loom.effects.flow_codec import FlowStartEvent
from loom.effects.flow_result import FlowResult
from loom.flows.calls import ActionCall, ActionOutcome, ActionStatus, FlowEnd

if TYPE_CHECKING:
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution

_FAILED_FROM = 400
_MORE = ("headers", "parameters", "variables")


async def workflow_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Run the child and give back what it answered, or its outputs if it answered nothing."""
    del services
    inputs = object_inputs(call)
    name = child_name(call)
    body = inputs.get("body", inputs.get("input"))
    more = {key: inputs[key] for key in _MORE if inputs.get(key) is not None}
    # Only flows begin with more than a body; what a workflow in Python begins with are the fields of the body.
    start = FlowStartEvent(body=body, **more) if more else None
    given: Any = {} if more else body

    async def work() -> ActionOutcome:
        return outcome_of_child(name, await execution.child(name, given, start))

    return await within_limit(execution, call, work)


def child_name(call: ActionCall) -> str:
    """The registered name that the inputs mean: a plain name, or the last part of a resource's id."""
    inputs = object_inputs(call)
    host = inputs.get("host")
    named: Any = host.get("workflow") if isinstance(host, dict) else inputs.get("workflow", inputs.get("name"))
    if isinstance(named, dict):
        named = named.get("id") or named.get("name")
    if not isinstance(named, str) or not named.strip("/ "):
        raise ActionFailed(
            f"The workflow action '{call.action}' names no workflow: give inputs.host.workflow.id or inputs.workflow.",
            "InvalidInputs",
        )
    return named.strip("/ ").rpartition("/")[2]


def outcome_of_child(name: str, ended: Any) -> ActionOutcome:
    """Turn the end of a child into an outcome: a flow ends with its result, a Python workflow with any value."""
    if not isinstance(ended, FlowEnd | FlowResult):
        return ActionOutcome(outputs=plain(ended))
    outputs: Any = ended.response if ended.response is not None else ended.outputs
    if ended.status != "Succeeded":
        error = ended.error or {}
        message = str(error.get("message") or f"The workflow '{name}' ended {ended.status}.")
        status: ActionStatus = "TimedOut" if ended.status == "TimedOut" else "Failed"
        return ActionOutcome(status, outputs, str(error.get("code") or "ChildRunFailed"), message, "childrunfailed")
    answered = ended.response.get("statusCode", 200) if ended.response is not None else 200
    if isinstance(answered, int) and answered >= _FAILED_FROM:
        message = f"The workflow '{name}' answered {answered} {code_of(answered)}."
        return ActionOutcome("Failed", outputs, code_of(answered), message)
    return ActionOutcome(outputs=outputs, code=code_of(answered) if isinstance(answered, int) else "OK")
