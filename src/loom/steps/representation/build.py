"""From a workflow class to its graph.

May import `graph`, `signature` and `events` of `steps`, and the modules of this package.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StopEvent
from loom.steps.graph import accepts, is_kind, produced_types
from loom.steps.representation.resource_nodes import ResourceNodes, json_schema, type_name
from loom.steps.representation.types import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowGraphNode,
    WorkflowStepNode,
)
from loom.steps.signature import get_steps_from_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.steps.step_config import StepConfig, StepFunction

_EXTERNAL = "external_step"


def get_workflow_representation(workflow: object) -> WorkflowGraph:
    """The graph of a workflow, given as a class or an instance: steps, events, resources and who is outside."""
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
    """What is routed to a step: the types it names and, if it wants them, the subclasses that occur in the workflow.

    A stop event ends the run, so a step that names a broad base never sees it.
    """
    occurring = (event for other in configs.values() for event in (*other.accepted_events, *produced_types(other)))
    derived = (event for event in occurring if accepts(config, event) and not is_kind(event, StopEvent))
    return list(dict.fromkeys((*config.accepted_events, *derived)))


def _label(event: Any) -> str:
    return type_name(event) or "UnknownType"
