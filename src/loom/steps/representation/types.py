"""The nodes and edges of a workflow graph: plain models that travel as JSON.

May import pydantic and nothing of Loom.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _GraphModel(BaseModel):
    model_config = ConfigDict(defer_build=True)


class WorkflowNodeBase(_GraphModel):
    """What every node has."""

    id: str = Field(description="Identifies the node in its graph")
    label: str = Field(description="The text to show")

    def truncated_label(self, max_length: int) -> str:
        """The label in at most `max_length` characters; a star marks what was cut."""
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
        """Whether the event class is, or derives from, one of these."""
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
        """Whether the node's class is, or derives from, one of these."""
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
        """A graph without the nodes of some types, whose edges lead across what was removed.

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
    """What can be reached from a node directly or through removed nodes, with the label of the first way found."""
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
