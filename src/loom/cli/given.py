"""What the options of a command say about the start of a run, as plain data. May import options and problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.cli.options import json_or_text
from loom.cli.problems import WrongUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.runtime.flow import Flow

OF_FLOWS = ("parameters", "variables", "headers")
"""What only flows begin with."""


def given_to_flow(options: Mapping[str, Any], flow: Flow | None = None) -> dict[str, Any]:
    """What a flow begins with, by the names of `FlowStartEvent`. With the flow, values fit what it declares."""
    given: dict[str, Any] = {} if options["body"] is None else {"body": options["body"]}
    given |= {key: dict(options[key]) for key in OF_FLOWS if options[key]}
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
