"""What a run begins with, from the options of a command. May import loom.effects and loom.runtime."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.cli.given import OF_FLOWS, given_to_flow
from loom.cli.problems import WrongUse
from loom.cli.targets import is_flow_target
from loom.effects.actions.child import child_name
from loom.effects.actions.outcomes import ActionFailed
from loom.effects.flow_convert import FlowStartEvent
from loom.flows.calls import ActionCall
from loom.runtime.flow import Flow
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.runtime.durable.working import WorkingRuntime
    from loom.steps.events import StartEvent


def start_event(flow: Flow, given: Mapping[str, Any]) -> StartEvent:
    """What a run begins with; parameters that do not fit are told."""
    try:
        return flow._start_event(None, dict(given))
    except WorkflowRuntimeError as error:
        raise WrongUse(str(error)) from error


def called_by(flow: Flow) -> set[str]:
    """The workflows that a flow calls by names which stand in its document."""
    found: set[str] = set()
    inside: list[Any] = [json.loads(flow.document)["definition"].get("actions")]
    while inside:
        part = inside.pop()
        if isinstance(part, dict) and str(part.get("type")).lower() == "workflow":
            with suppress(ActionFailed):
                found.add(child_name(ActionCall(action="", type="workflow", inputs=part.get("inputs"))))
        inside.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return {name for name in found if "@" not in name and not name.endswith("]")}


def named_target(workflow: str, targets: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of a workflow that may be the file of a flow, which is then one of the targets."""
    name, given, place = workflow.rpartition("=")
    if not is_flow_target(workflow) or Path(place).is_dir():
        return workflow, targets
    from loom.cli.flow_files import name_of

    return (name if given else name_of(Path(place))), (*targets, workflow)


def begun_by(runtime: WorkingRuntime, name: str, options: Mapping[str, Any]) -> Any:
    """The inputs of a run, or the event that it begins with if it is a flow or may be one."""
    code = runtime.codes.get(name)
    if code is None and runtime.codes:
        # Somebody wants the input to be checked, and it would not be.
        raise WrongUse(f"No --target is named {name!r}, but {', '.join(runtime.codes)}: use --target {name}=TARGET.")
    flow = code.workflow if code is not None and isinstance(code.workflow, Flow) else None
    given = given_to_flow(options, flow)
    if flow is not None:
        return start_event(flow, given)
    body = given.get("body", {})
    if code is None and (not isinstance(body, dict) or any(key in given for key in OF_FLOWS)):
        return FlowStartEvent(**given)  # only a flow can take that; whoever works for the name knows
    if any(key in given for key in OF_FLOWS):
        raise WrongUse(f"{name} is a workflow in Python: it has no parameters, variables or headers.")
    if not isinstance(body, dict):
        raise click.BadParameter("This is JSON, but no object such as '{\"name\": 1}'.")
    return body
