"""Definitions as callers see them: in lists, as graphs, as JSON Schemas.

A document is shown as it was put to whoever may put one. Others see no defaults of secure parameters.

May import loom.flows, loom.runtime and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.effects.actions.events import CallbackEvent
from loom.effects.flow_events import FlowEvent
from loom.flows import drawing
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import read_document
from loom.flows.graph import to_graph
from loom.flows.records import MASK
from loom.runtime.durable.external import awaited_by
from loom.runtime.flow import Flow
from loom.runtime.plain import iso
from loom.steps.events import HumanResponseEvent
from loom.steps.external import CALLBACK_EVENT, external_types
from loom.steps.representation import get_workflow_representation, to_mermaid

if TYPE_CHECKING:
    from loom.flows.nodes.calling import Awaited
    from loom.flows.program import Parameter, Program
    from loom.runtime.durable import definitions_stored as stored
    from loom.server.shapes_definitions import Definition, DefinitionSchemas, DefinitionVersion, Graph
    from loom.steps.events import Event
    from loom.steps.workflow import Workflow

_PRIVATE = {"nodes": {"__all__": {"source_file", "source_line", "config_file", "config_value"}}}
"""What a graph of steps tells of the machine that it was made on, and of what files hold there."""

_TYPES = {
    "string": "string",
    "securestring": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "array": "array",
    "object": "object",
    "secureobject": "object",
}
_RESULT = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "outputs": {"type": "object"}, "response": {}},
    "required": ["status", "outputs", "response"],
}
"""What a run of a flow ends with."""
_SECURE = ("securestring", "secureobject")
_EVENTS: dict[str, type[Event]] = {HumanResponseEvent.__name__: HumanResponseEvent, CALLBACK_EVENT: CallbackEvent}
"""What flows wait for that has a class."""


def etag_of(version: stored.Version) -> str:
    """Names a version's content: it changes whenever another version becomes current."""
    return f'"{version.digest[:32]}"'


def steps_view(name: str) -> Definition:
    """A workflow in Python, in a list."""
    return {"name": name, "kind": "steps", "version": None, "etag": None, "updated_at": None}


def flow_view(name: str, definition: stored.Definition | None) -> Definition:
    """A flow, in a list; one that the store has no definition of has no version."""
    if definition is None:
        return {"name": name, "kind": "flow", "version": None, "etag": None, "updated_at": None}
    return {
        "name": name,
        "kind": "flow",
        "version": definition.current,
        "etag": etag_of(definition.latest),
        "updated_at": iso(definition.updated_at),
    }


def version_view(version: stored.Version, current: int) -> DefinitionVersion:
    """One version of a flow, whose current one has this number."""
    return {
        "version": version.number,
        "digest": version.digest,
        "etag": etag_of(version),
        "created_at": iso(version.created_at),
        "current": version.number == current,
    }


def document_view(text: str, *, whole: bool) -> dict[str, Any]:
    """The document in a stored text, which is the same definition if it is put again: with its kind around it.

    Only the `whole` one has the defaults of secure parameters.
    """
    facts = msgspec.json.decode(text)
    definition: dict[str, Any] = facts["definition"]
    if not whole:
        _mask_defaults(definition.get("parameters"))
    if facts.get("kind"):
        return {"definition": definition, "kind": facts["kind"]}
    return definition if _speaks_for_itself(definition) else {"definition": definition}


def _mask_defaults(parameters: Any) -> None:
    for parameter in parameters.values() if isinstance(parameters, dict) else ():
        if (
            isinstance(parameter, dict)
            and str(parameter.get("type")).lower() in _SECURE
            and "defaultValue" in parameter
        ):
            parameter["defaultValue"] = MASK


def _speaks_for_itself(definition: dict[str, Any]) -> bool:
    """Whether a definition is taken for one without a wrapper; one without actions, for instance, is not."""
    try:
        found = read_document(definition)
    except DefinitionError:
        return False
    return (found.path, found.shape) == ("", "definition")


def steps_document(name: str, workflow: Workflow) -> dict[str, Any]:
    """A workflow in Python, which has no document: what it begins and ends with, and all events that it knows."""
    return {
        "name": name,
        "kind": "steps",
        "start": workflow.start_event_class.__name__,
        "stop": workflow.stop_event_class.__name__,
        "events": [{"type": cls.__name__, "schema": cls.model_json_schema()} for cls in workflow.events],
    }


def graph_view(workflow: Workflow) -> Graph:
    """Nodes and edges of either kind."""
    if isinstance(workflow, Flow):
        graph = to_graph(workflow.program)
    else:
        graph = get_workflow_representation(workflow).model_dump(mode="json", exclude=_PRIVATE)
    return {"name": workflow.workflow_name, "nodes": graph["nodes"], "edges": graph["edges"]}


def mermaid_view(workflow: Workflow) -> str:
    """The same as text that Mermaid draws."""
    if isinstance(workflow, Flow):
        return drawing.to_mermaid(workflow.program)
    return to_mermaid(get_workflow_representation(workflow))


def schemas_view(workflow: Workflow) -> DefinitionSchemas:
    """JSON Schemas of what a workflow takes and gives. Its events are those that may come from outside at any time."""
    if isinstance(workflow, Flow):
        return _flow_schemas(workflow.program)
    return {
        "start": workflow.start_event_class.model_json_schema(),
        "stop": workflow.stop_event_class.model_json_schema(),
        "events": [cls.model_json_schema() for cls in external_types(workflow._step_configs())],
        "parameters": None,
    }


def _flow_schemas(program: Program) -> DefinitionSchemas:
    bodies = [trigger.schema for trigger in program.triggers if isinstance(trigger.schema, dict)]
    declared = [each for each in program.parameters.values() if each.declared]
    return {
        "start": bodies[0] if bodies else {},
        "stop": _RESULT,
        "events": [_event_schema(awaited) for awaited in awaited_by(program)],
        "parameters": {
            "type": "object",
            "properties": {each.name: _parameter_schema(each) for each in declared},
            "required": [each.name for each in declared if not each.has_default],
        },
    }


def _event_schema(awaited: Awaited) -> dict[str, Any]:
    """What a flow waits for: by the name that the document has, else by any."""
    cls = FlowEvent if awaited.event is None else _EVENTS.get(awaited.event)
    if cls is not None:
        return cls.model_json_schema()
    return {"title": awaited.event, **(awaited.schema if isinstance(awaited.schema, dict) else {})}


def _parameter_schema(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _TYPES[parameter.type]} if parameter.type in _TYPES else {}
    if parameter.allowed is not None:
        found["enum"] = list(parameter.allowed)
    if parameter.is_secure:
        found["writeOnly"] = True
    elif parameter.has_default:
        found["default"] = parameter.default
    return found
