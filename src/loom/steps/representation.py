"""A workflow as a graph of nodes and edges, to be drawn, sent or examined.

Nothing in Loom's engine imports this module.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.errors import PydanticUserError

from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StopEvent
from loom.steps.graph import accepts, is_kind, produced_types
from loom.steps.resources import ConfigResource, FactoryResource, identity_of
from loom.steps.signature import get_steps_from_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loom.steps.resources import ResourceDescriptor
    from loom.steps.step_config import StepConfig, StepFunction


class _GraphModel(BaseModel):
    model_config = ConfigDict(defer_build=True)


class WorkflowNodeBase(_GraphModel):
    """What every node has."""

    id: str = Field(description="Identifies the node in its graph")
    label: str = Field(description="The text to show")

    def truncated_label(self, max_length: int) -> str:
        """Return the label in at most `max_length` characters; a star marks what was cut."""
        return self.label if len(self.label) <= max_length else f"{self.label[: max_length - 1]}*"


class WorkflowStepNode(WorkflowNodeBase):
    """A step."""

    node_type: Literal["step"] = "step"
    description: str | None = Field(default=None, description="The step function's docstring")


class WorkflowEventNode(WorkflowNodeBase):
    """A type of event that flows between steps."""

    node_type: Literal["event"] = "event"
    event_type: str = Field(description="The name of the event class")
    event_types: list[str] = Field(description="The class and its event superclasses below Event, nearest first")
    event_schema: dict[str, Any] | None = Field(default=None, description="The JSON Schema of the event")
    produced_by: list[str] = Field(default_factory=list, description="The steps that declare to return it")

    def is_subclass_of(self, *type_names: str) -> bool:
        """Return whether the event class is, or derives from, one of these."""
        return any(name in self.event_types for name in type_names)


class WorkflowExternalNode(WorkflowNodeBase):
    """Somebody outside: a human or another system that answers."""

    node_type: Literal["external"] = "external"


class WorkflowResourceNode(WorkflowNodeBase):
    """A resource that a factory makes."""

    node_type: Literal["resource"] = "resource"
    type_name: str | None = Field(default=None, description="The annotated type")
    getter_name: str | None = Field(default=None, description="The name of the factory")
    source_file: str | None = Field(default=None, description="The file that defines the factory")
    source_line: int | None = Field(default=None, description="The line where the factory begins")
    description: str | None = Field(default=None, description="The factory's docstring")


class WorkflowResourceConfigNode(WorkflowNodeBase):
    """A resource that is read from a JSON file."""

    node_type: Literal["resource_config"] = "resource_config"
    type_name: str | None = Field(default=None, description="The model that the file is validated against")
    config_file: str | None = Field(default=None, description="The path of the file")
    path_selector: str | None = Field(default=None, description="The dotted path inside the file")
    config_schema: dict[str, Any] | None = Field(default=None, description="The JSON Schema of the model")
    config_value: dict[str, Any] | None = Field(default=None, description="What the file holds, if it can be read")
    description: str | None = Field(default=None, description="What the configuration is for")


class WorkflowGenericNode(WorkflowNodeBase):
    """A node of any other type, for tools that draw more than workflows (agents, tools)."""

    node_type: str = Field(description="The type that the tool gave it")
    event_type: str | None = Field(default=None, description="A type name, if the node stands for a class")
    event_types: list[str] | None = Field(default=None, description="That class and its superclasses, nearest first")

    def is_subclass_of(self, *type_names: str) -> bool:
        """Return whether the node's class is, or derives from, one of these."""
        return any(name in (self.event_types or ()) for name in type_names)


WorkflowGraphNode = (
    WorkflowStepNode
    | WorkflowEventNode
    | WorkflowExternalNode
    | WorkflowResourceNode
    | WorkflowResourceConfigNode
    | WorkflowGenericNode  # last: it takes every node_type
)


class WorkflowGraphEdge(_GraphModel):
    """An arrow between two nodes."""

    source: str = Field(description="The id of the node it leaves")
    target: str = Field(description="The id of the node it points to")
    label: str | None = Field(default=None, description="For resources the name of the parameter")


class WorkflowGraph(_GraphModel):
    """A whole workflow: its nodes and edges in a stable order."""

    name: str = Field(description="The name of the workflow class")
    nodes: list[WorkflowGraphNode]
    edges: list[WorkflowGraphEdge]
    description: str | None = Field(default=None, description="The workflow class's docstring")

    def filter_by_node_type(self, *node_types: str) -> WorkflowGraph:
        """Return a graph without the nodes of some types, whose edges lead across what was removed.

        A -> removed -> B becomes A -> B, labelled with the first node that was removed.
        """
        removed = {node.id: node.label for node in self.nodes if node.node_type in node_types}
        kept = [node for node in self.nodes if node.id not in removed]
        outgoing: dict[str, list[WorkflowGraphEdge]] = {}
        for edge in self.edges:
            outgoing.setdefault(edge.source, []).append(edge)
        targets = {node.id: _targets(node.id, outgoing, removed) for node in kept}
        edges = [
            WorkflowGraphEdge(source=source, target=target, label=label)
            for source, found in targets.items()
            for target, label in found.items()
            if target in targets
        ]
        return WorkflowGraph(name=self.name, nodes=kept, edges=edges, description=self.description)


def _targets(
    source: str, outgoing: dict[str, list[WorkflowGraphEdge]], removed: dict[str, str]
) -> dict[str, str | None]:
    """Find what a node leads to, directly or through removed nodes, with the label of the first way found."""
    found: dict[str, str | None] = {}
    passed: set[str] = set()
    waiting: list[tuple[str, str | None, str | None]]
    waiting = [(edge.target, edge.label, None) for edge in reversed(outgoing.get(source, ()))]
    while waiting:
        target, label, via = waiting.pop()
        if target not in removed:
            found.setdefault(target, label if via is None else via)
        elif target not in passed:
            passed.add(target)
            across = removed[target] if via is None else via
            waiting.extend((edge.target, edge.label, across) for edge in reversed(outgoing.get(target, ())))
    return found


# From a workflow to its graph.

_EXTERNAL = "external_step"


def get_workflow_representation(workflow: object) -> WorkflowGraph:
    """Return the graph of a workflow, given as a class or an instance: steps, events, resources and who is outside."""
    cls = workflow if isinstance(workflow, type) else type(workflow)
    steps = {**get_steps_from_class(cls), **getattr(cls, "_step_functions", {})}
    configs = {name: function._step_config for name, function in steps.items()}
    resources = ResourceNodes()
    needed = [
        WorkflowGraphEdge(source=name, target=resources.add(one.resource, one.type_annotation), label=one.name)
        for name, config in configs.items()
        for one in config.resources
    ]
    edges = [*_event_edges(configs), *needed, *resources.edges]
    return WorkflowGraph(
        name=cls.__name__,
        nodes=[*_nodes(steps).values(), *resources.nodes],
        edges=list({(edge.source, edge.target, edge.label): edge for edge in edges}.values()),
        description=inspect.cleandoc(cls.__dict__.get("__doc__") or "") or None,
    )


def _nodes(steps: dict[str, StepFunction[..., Any]]) -> dict[str, WorkflowGraphNode]:
    nodes: dict[str, WorkflowGraphNode] = {}
    for name, function in steps.items():
        config = function._step_config
        nodes[name] = WorkflowStepNode(id=name, label=name, description=inspect.getdoc(function))
        for event in (*config.accepted_events, *produced_types(config)):
            if _label(event) not in nodes:
                nodes[_label(event)] = _event_node(event, steps)
            if is_kind(event, InputRequiredEvent) and event in config.return_types:
                nodes.setdefault(_EXTERNAL, WorkflowExternalNode(id=_EXTERNAL, label=_EXTERNAL))
    return nodes


def _event_node(event: Any, steps: dict[str, StepFunction[..., Any]]) -> WorkflowEventNode:
    label = _label(event)
    return WorkflowEventNode(
        id=label,
        label=label,
        event_type=label,
        event_types=_lineage(event),
        event_schema=json_schema(event),
        produced_by=[
            name for name, function in steps.items() if label in map(_label, produced_types(function._step_config))
        ],
    )


def _lineage(event: Any) -> list[str]:
    if not is_kind(event, Event):
        return [_label(event)]
    bases = event.__mro__[: event.__mro__.index(Event)] or (event,)
    return [base.__name__ for base in bases if is_kind(base, Event)]


def _event_edges(configs: dict[str, StepConfig]) -> Iterator[WorkflowGraphEdge]:
    asks = any(is_kind(event, InputRequiredEvent) for config in configs.values() for event in config.return_types)
    for name, config in configs.items():
        for event in produced_types(config):
            yield WorkflowGraphEdge(source=name, target=_label(event))
            if is_kind(event, InputRequiredEvent):
                yield WorkflowGraphEdge(source=_label(event), target=_EXTERNAL)
        for event in _taken(config, configs):
            yield WorkflowGraphEdge(source=_label(event), target=name)
            if asks and is_kind(event, HumanResponseEvent):
                yield WorkflowGraphEdge(source=_EXTERNAL, target=_label(event))


def _taken(config: StepConfig, configs: dict[str, StepConfig]) -> list[Any]:
    """List what is routed to a step: the types it names and, if it wants them, their subclasses in the workflow.

    A stop event ends the run, so a step that names a broad base never sees it.
    """
    occurring = (event for other in configs.values() for event in (*other.accepted_events, *produced_types(other)))
    derived = (event for event in occurring if accepts(config, event) and not is_kind(event, StopEvent))
    return list(dict.fromkeys((*config.accepted_events, *derived)))


def _label(event: Any) -> str:
    return type_name(event) or "UnknownType"


ResourceNode = WorkflowResourceNode | WorkflowResourceConfigNode


class ResourceNodes:
    """The nodes of all resources that were added, each resource once, and the edges between them."""

    def __init__(self) -> None:
        self._nodes: dict[object, ResourceNode] = {}
        self.edges: list[WorkflowGraphEdge] = []

    @property
    def nodes(self) -> list[ResourceNode]:
        """The nodes in the order in which they were met."""
        return list(self._nodes.values())

    def add(self, resource: ResourceDescriptor, wanted: Any) -> str:
        """Add a resource and all it depends on; returns the id of its node."""
        key = _identity(resource)
        if key in self._nodes:
            return self._nodes[key].id
        node = (
            _config_node(resource, wanted) if isinstance(resource, ConfigResource) else _factory_node(resource, wanted)
        )
        node.id = self._unused(node.id)
        self._nodes[key] = node
        for parameter, dependency, inner in resource.get_dependencies():
            target = self.add(dependency, inner)
            self.edges.append(WorkflowGraphEdge(source=node.id, target=target, label=parameter))
        return node.id

    def _unused(self, wanted: str) -> str:
        """Two lambdas of one file have one name, and still are two resources."""
        taken = {node.id for node in self._nodes.values()}
        found, count = wanted, 1
        while found in taken:
            count += 1
            found = f"{wanted}_{count}"
        return found


def type_name(hint: Any) -> str | None:
    """Return how a type is called in a drawing."""
    return None if hint is None else getattr(hint, "__name__", None) or str(hint)


def json_schema(hint: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a model, or None where there is none, as for fields of arbitrary types."""
    if not (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return None
    try:
        return hint.model_json_schema()
    except PydanticUserError:
        return None


def _identity(resource: ResourceDescriptor) -> object:
    """A config is one node whatever models it is read into, and also while its file is missing."""
    return resource.name if isinstance(resource, ConfigResource) else identity_of(resource)


def _factory_node(resource: ResourceDescriptor, wanted: Any) -> WorkflowResourceNode:
    factory = resource.factory if isinstance(resource, FactoryResource) else type(resource)
    file, line = _source(factory)
    return WorkflowResourceNode(
        id=f"resource_{_digest(resource.name, file or 'unknown')}",
        label=type_name(wanted) or resource.name,
        type_name=type_name(wanted),
        getter_name=resource.name,
        source_file=file,
        source_line=line,
        description=inspect.getdoc(factory),
    )


def _config_node(config: ConfigResource, wanted: Any) -> WorkflowResourceConfigNode:
    try:
        file, value = config.config_file, config.load()
    except (OSError, ValueError):
        # A drawing shows what is declared, also where the file is missing; validation is what complains.
        file, value = config.name, None
    return WorkflowResourceConfigNode(
        id=f"resource_config_{_digest(file, config.path_selector or '')}",
        label=config.label or type_name(wanted) or file,
        type_name=type_name(wanted),
        config_file=file,
        path_selector=config.path_selector,
        config_schema=json_schema(wanted),
        config_value=value if isinstance(value, dict) else None,
        description=config.description,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]


def _source(factory: Callable[..., Any]) -> tuple[str | None, int | None]:
    """Tell where a factory is defined, as far as that can be known: partials and typed-in code have no file."""
    try:
        file = inspect.getfile(factory)
    except (OSError, TypeError):
        return None, None
    try:
        return file, inspect.getsourcelines(factory)[1]
    except (OSError, TypeError):
        return file, None


# From a graph to a drawing.

_SHAPES = {
    "step": ('["', '"]'),
    "event": ('(["', '"])'),
    "external": ('{{"', '"}}'),
    "resource": ('[("', '")]'),
    "resource_config": ('[/"', '"/]'),
}
_STYLES = {
    "step": "fill:#dbeafe,stroke:#1d4ed8,color:#111827",
    "event": "fill:#fef9c3,stroke:#a16207,color:#111827",
    "external": "fill:#fce7f3,stroke:#be185d,color:#111827",
    "resource": "fill:#dcfce7,stroke:#15803d,color:#111827",
    "resource_config": "fill:#f3f4f6,stroke:#4b5563,color:#111827",
}
_RESOURCES = ("resource", "resource_config")


def to_mermaid(graph: WorkflowGraph) -> str:
    """Return the graph as a Mermaid flowchart, in the order of its nodes and edges; resources hang on dotted lines."""
    ids = _safe_ids(graph.nodes)
    resources = {node.id for node in graph.nodes if node.node_type in _RESOURCES}
    used = {node.node_type for node in graph.nodes}
    lines = ["flowchart TD"]
    lines += [f"    {_mermaid_node(ids[node.id], node)}" for node in graph.nodes]
    lines += [
        f"    {ids[edge.source]} {_arrow(edge, dotted=edge.target in resources)} {ids[edge.target]}"
        for edge in graph.edges
        if edge.source in ids and edge.target in ids
    ]
    lines += [f"    classDef {name} {style}" for name, style in _STYLES.items() if name in used]
    return "\n".join(lines) + "\n"


def _safe_ids(nodes: list[WorkflowGraphNode]) -> dict[str, str]:
    """Ids that Mermaid can parse: the type in front keeps clear of its keywords (a step may be called `end`)."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for node in nodes:
        base = re.sub(r"[^A-Za-z0-9_]", "_", f"{node.node_type}_{node.id}")
        unique, count = base, 1
        while unique in taken:
            count += 1
            unique = f"{base}_{count}"
        taken.add(unique)
        ids[node.id] = unique
    return ids


def _mermaid_node(safe_id: str, node: WorkflowGraphNode) -> str:
    before, after = _SHAPES.get(node.node_type, _SHAPES["step"])
    style = f":::{node.node_type}" if node.node_type in _STYLES else ""
    return f"{safe_id}{before}{_escape(node.label)}{after}{style}"


def _arrow(edge: WorkflowGraphEdge, *, dotted: bool) -> str:
    line = "-.->" if dotted else "-->"
    return f'{line}|"{_escape(edge.label)}"|' if edge.label else line


def _escape(text: str) -> str:
    """Mermaid reads quotes, markup, entities and backticks in labels; write them as entities."""
    escaped = "".join(f"#{ord(char)};" if char in "\"'#&<>`\\|;" else char for char in text)
    return re.sub(r"\r\n|\r|\n", "<br/>", escaped)
