"""The workflows that a server offers, described for clients of the compatible routes. May import loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.effects.flow_events import FlowEvent
from loom.runtime.flow import Flow
from loom.steps.events import StopEvent
from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowStepNode,
    get_workflow_representation,
)

if TYPE_CHECKING:
    from loom.flows.program import Program
    from loom.runtime.durable.working import WorkingRuntime
    from loom.server.shapes_compat import StartAndStop
    from loom.steps.workflow import Workflow

_OWN = "loom."
"""The names of workflows that the engine uses for itself begin so."""


_PRIVATE = ("source_file", "source_line", "config_file", "config_value")


def offered(runtime: WorkingRuntime) -> list[str]:
    """The names of the workflows and flows that can be started."""
    return sorted(name for name in runtime.codes if is_offered(name) and name not in runtime.definitions.deleted)


def is_offered(name: str) -> bool:
    """Whether runs of a workflow are for clients."""
    return not name.startswith(_OWN)


def schemas_of(workflow: Workflow) -> StartAndStop:
    """JSON Schemas of what runs begin and end with."""
    if isinstance(workflow, Flow):
        found = [trigger.schema for trigger in workflow.program.triggers if isinstance(trigger.schema, dict)]
        return {"start": found[0] if found else {}, "stop": StopEvent.model_json_schema()}
    return {
        "start": workflow.start_event_class.model_json_schema(),
        "stop": workflow.stop_event_class.model_json_schema(),
    }


def event_schemas(workflow: Workflow) -> list[dict[str, Any]]:
    """JSON Schemas of the events that a workflow knows; a flow takes any, by name."""
    classes = [FlowEvent] if isinstance(workflow, Flow) else workflow.events
    return [cls.model_json_schema() for cls in classes]


def graph_of(workflow: Workflow) -> dict[str, Any]:
    """A workflow as nodes and edges, without the places of its files and what its resources are configured with."""
    graph = _flow_graph(workflow.program) if isinstance(workflow, Flow) else get_workflow_representation(workflow)
    shown: dict[str, Any] = graph.model_dump(mode="json")
    for node in shown["nodes"]:
        node |= {name: None for name in _PRIVATE if name in node}
    return shown


def _flow_graph(program: Program) -> WorkflowGraph:
    """A flow as a graph: its triggers are events, its actions are steps, arrows are what runs after what."""
    triggers = [
        WorkflowEventNode(
            id=f"trigger:{trigger.name}", label=trigger.name, event_type=trigger.type, event_types=[trigger.type]
        )
        for trigger in program.triggers
    ]
    actions = [WorkflowStepNode(id=node.name, label=node.name, description=node.type) for node in program.nodes]
    roots = [program.nodes[index].name for index in program.blocks[0].roots]
    edges = [WorkflowGraphEdge(source=trigger.id, target=root) for trigger in triggers for root in roots]
    for node in program.nodes:
        edges += [WorkflowGraphEdge(source=program.nodes[before].name, target=node.name) for before, _ in node.after]
        inside = [program.nodes[index].name for block in node.blocks for index in program.blocks[block].roots]
        edges += [WorkflowGraphEdge(source=node.name, target=first, label="contains") for first in inside]
    return WorkflowGraph(name=program.name, nodes=[*triggers, *actions], edges=edges)
