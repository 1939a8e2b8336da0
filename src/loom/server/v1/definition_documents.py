"""Documents of definitions: how one that a caller sends is judged, and what a caller gets of one that is stored.

A document is read and compiled, never executed. It is shown as it was put only to a caller who may put one: others see
no defaults of secure parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.api.definitions import DefinitionSchemas, Diagnostic, Graph
from loom.effects.actions.events import CallbackEvent
from loom.effects.flow_events import FlowEvent
from loom.effects.off_loop import aside
from loom.flows import graph as flow_graph
from loom.flows.calls import MASK
from loom.flows.compiler import compile_flow
from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.document import read_document
from loom.flows.source_map import SourceMap, pointer_of
from loom.runtime.durable.external import awaited_by
from loom.runtime.flow import Flow, connection_problems
from loom.server.call import check_shape
from loom.server.problems import ApiProblem, invalid
from loom.steps.events import HumanResponseEvent
from loom.steps.graph import CALLBACK_EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.effects.actions.handlers import ActionHandlers
    from loom.flows.document import Document
    from loom.flows.limits import Limits
    from loom.flows.nodes.external import Awaited
    from loom.flows.program import Parameter, Program
    from loom.runtime.durable.catalog import CatalogEntry
    from loom.server.call import Call
    from loom.steps.events import Event

# -- documents that callers send --------------------------------------------------------------------------------------


_YAML = frozenset({"application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml"})
_NAMELESS = "flow"


class Judged(NamedTuple):
    """What became of a document: a flow if it can be used, and all that is to be said about it."""

    flow: Flow | None
    diagnostics: list[Diagnostic]


async def judged_body(call: Call, name: str | None = None) -> Judged:
    """Judge the document in the body of a request, in JSON or YAML: to be put under a name, or only to be judged."""
    body = await call.request.body()
    kind = call.request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if not is_json and kind not in _YAML:
        detail = f"A definition is sent as application/json or application/yaml, not as {kind[:100]}."
        raise ApiProblem("unsupported-media-type", detail)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(f"The body is no text in UTF-8: {error.reason} at byte {error.start}.") from error
    if is_json:
        await aside("judge", check_shape, text, call.settings)
    # In a thread, and one at a time: a large document takes seconds of a core, which others need too.
    async with call.server.reading if name is not None else call.server.validating:
        handlers = call.runtime.services.handlers
        return await aside(
            "judge", judged, text, name or _NAMELESS, call.settings.limits, is_json=is_json, handlers=handlers
        )


def judged(
    text: str, name: str, limits: Limits, *, is_json: bool = False, handlers: ActionHandlers | None = None
) -> Judged:
    """Judge a document by its text, and its calls of connections by the connectors of the process."""
    if is_json and text.strip()[:1] not in ("{", ""):
        return Judged(None, _diagnostics(text, [Problem("", "a definition in JSON is an object", spot=(1, 1))]))
    try:
        document = read_document(text, name=name)
    except DefinitionError as error:
        return Judged(None, _diagnostics(text, error.problems))
    program, problems = compile_flow(document, limits=limits)
    if program is None:
        return Judged(None, _diagnostics(text, problems))
    problems = [*problems, *connection_problems(program, handlers)]
    if any(problem.severity == "error" for problem in problems):
        return Judged(None, _diagnostics(text, problems))
    document, program = _unwrapped(document, limits) or (document, program)
    return Judged(Flow(program, document, limits, problems), _diagnostics(text, problems))


def _unwrapped(document: Document, limits: Limits) -> tuple[Document, Program] | None:
    """Strip the export wrapper, so that GET followed by PUT gives the same digest."""
    plain = replace(document, path="", shape="definition")
    program = compile_flow(plain, limits=limits)[0] if plain != document else None
    return (plain, program) if program is not None else None


def _diagnostics(text: str, problems: Iterable[Problem]) -> list[Diagnostic]:
    places = SourceMap(text)
    return [_diagnostic(problem, places) for problem in problems]


def _diagnostic(problem: Problem, places: SourceMap) -> Diagnostic:
    line, column = problem.spot or places.find(problem.path) or (None, None)
    return Diagnostic(
        path=pointer_of(problem.path),
        message=f"{problem.message} ({problem.hint})" if problem.hint else problem.message,
        severity=problem.severity,
        code="unreadable" if problem.spot is not None else "invalid" if problem.severity == "error" else "advice",
        line=line,
        column=column,
    )


# -- what callers get -------------------------------------------------------------------------------------------------


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


def steps_document(name: str, entry: CatalogEntry) -> dict[str, Any]:
    """A workflow in Python, which has no document: what it begins and ends with, and all events that it knows."""
    return {
        "name": name,
        "kind": "steps",
        "start": _short(entry.start),
        "stop": _short(entry.stop),
        "events": [{"type": _short(event), "schema": entry.schemas[event]} for event in entry.known],
    }


def _short(wire_name: str) -> str:
    return wire_name.rpartition(".")[2]


def graph_view(workflow: Flow | CatalogEntry) -> Graph:
    """Render the nodes and edges of either kind."""
    if isinstance(workflow, Flow):
        graph = flow_graph.to_graph(workflow.program)
        return Graph(name=workflow.workflow_name, nodes=graph["nodes"], edges=graph["edges"])
    return Graph(name=workflow.name, nodes=workflow.nodes, edges=workflow.edges)


def mermaid_view(workflow: Flow | CatalogEntry) -> str:
    """Draw a workflow as text for Mermaid."""
    return flow_graph.to_mermaid(workflow.program) if isinstance(workflow, Flow) else workflow.mermaid


def schemas_view(workflow: Flow | CatalogEntry) -> DefinitionSchemas:
    """Render JSON Schemas of what a workflow takes and gives, and of the events that callers may send."""
    if isinstance(workflow, Flow):
        return _flow_schemas(workflow.program)
    return DefinitionSchemas(
        start=workflow.schemas[workflow.start],
        stop=workflow.schemas[workflow.stop],
        events=[workflow.schemas[event] for event in workflow.events],
        parameters=None,
    )


def _flow_schemas(program: Program) -> DefinitionSchemas:
    bodies = [trigger.schema for trigger in program.triggers if isinstance(trigger.schema, dict)]
    declared = [each for each in program.parameters.values() if each.declared]
    return DefinitionSchemas(
        start=bodies[0] if bodies else {},
        stop=_RESULT,
        events=[_event_schema(awaited) for awaited in awaited_by(program)],
        parameters={
            "type": "object",
            "properties": {each.name: _parameter_schema(each) for each in declared},
            "required": [each.name for each in declared if not (each.has_default or each.is_given)],
        },
    )


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
