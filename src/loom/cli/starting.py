"""What a run begins with, from the options of a command. May import loom.effects and loom.runtime."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import json_or_text
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

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.steps.events import StartEvent

_OF_FLOWS = ("parameters", "variables", "headers")


def given_to_flow(options: Mapping[str, Any], flow: Flow | None = None) -> dict[str, Any]:
    """What the options of a command say about the start of a flow, by the names of `FlowStartEvent`."""
    given: dict[str, Any] = {} if options["body"] is None else {"body": options["body"]}
    given |= {key: dict(options[key]) for key in _OF_FLOWS if options[key]}
    if "parameters" in given:
        given["parameters"] = {name: _parameter(flow, name, text) for name, text in given["parameters"].items()}
    if options["parameter_file"] is not None:
        read = _from_file(options["parameter_file"], flow)
        # Names count without case, and what is said beside the file wins.
        beside = {name.lower() for name in given.get("parameters", {})}
        rest = {name: value for name, value in read.items() if name.lower() not in beside}
        given["parameters"] = {**rest, **given.get("parameters", {})}
    return given


def _from_file(data: Any, flow: Flow | None) -> dict[str, Any]:
    """Parameters by name, as values or as `{"value": …}`. A file may serve many flows: each takes what it knows."""
    if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
        data = data["parameters"]  # as files of resource templates have it
    if not isinstance(data, dict):
        raise WrongUse("A file of parameters is an object: values by the names of parameters.")
    values = {name: entry["value"] if _is_entry(entry) else entry for name, entry in data.items()}
    if flow is None:
        return values
    return {name: value for name, value in values.items() if name.lower() in flow.program.parameters}


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and "value" in entry and entry.keys() <= {"value", "type", "metadata", "description"}


def _parameter(flow: Flow | None, name: str, text: str) -> Any:
    """The value of a parameter: JSON, or else a text. Where a text is wanted, 42 is one."""
    declared = flow.program.parameters.get(name.lower()) if flow is not None else None
    value = json_or_text(text)
    wants_text = declared is not None and declared.type.removeprefix("secure") == "string"
    return text if wants_text and not isinstance(value, str) else value


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


def begun_by(runtime: DurableRuntime, name: str, options: Mapping[str, Any]) -> Any:
    """The inputs of a run, or the event that it begins with if it is a flow or may be one."""
    code = runtime.codes.get(name)
    flow = code.workflow if code is not None and isinstance(code.workflow, Flow) else None
    given = given_to_flow(options, flow)
    if flow is not None:
        return start_event(flow, given)
    body = given.get("body", {})
    if code is None and (not isinstance(body, dict) or any(key in given for key in _OF_FLOWS)):
        return FlowStartEvent(**given)  # only a flow can take that; whoever works for the name knows
    if any(key in given for key in _OF_FLOWS):
        raise WrongUse(f"{name} is a workflow in Python: it has no parameters, variables or headers.")
    if not isinstance(body, dict):
        raise click.BadParameter("This is JSON, but no object such as '{\"name\": 1}'.")
    return body
