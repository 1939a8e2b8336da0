"""Graphs as Mermaid text."""

from __future__ import annotations

from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGenericNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
    to_mermaid,
)


def event(name: str) -> WorkflowEventNode:
    return WorkflowEventNode(id=name, label=name, event_type=name, event_types=[name])


def test_a_workflow_as_a_flowchart() -> None:
    graph = WorkflowGraph(
        name="Flow",
        nodes=[
            WorkflowStepNode(id="end", label="end"),
            event("Ask"),
            WorkflowExternalNode(id="external_step", label="external_step"),
            WorkflowResourceNode(id="resource_1", label="Db"),
            WorkflowResourceConfigNode(id="resource_config_1", label="Settings"),
            WorkflowGenericNode(id="tool", label="Tool", node_type="tool"),
        ],
        edges=[
            WorkflowGraphEdge(source="end", target="Ask"),
            WorkflowGraphEdge(source="Ask", target="external_step"),
            WorkflowGraphEdge(source="end", target="resource_1", label="db"),
            WorkflowGraphEdge(source="tool", target="end", label="calls"),
        ],
    )
    lines = to_mermaid(graph).splitlines()
    assert lines[:11] == [
        "flowchart TD",
        '    step_end["end"]:::step',
        '    event_Ask(["Ask"]):::event',
        '    external_external_step{{"external_step"}}:::external',
        '    resource_resource_1[("Db")]:::resource',
        '    resource_config_resource_config_1[/"Settings"/]:::resource_config',
        '    tool_tool["Tool"]',
        "    step_end --> event_Ask",
        "    event_Ask --> external_external_step",
        '    step_end -.->|"db"| resource_resource_1',
        '    tool_tool -->|"calls"| step_end',
    ]
    assert [line.split()[:2] for line in lines[11:]] == [
        ["classDef", name] for name in ("step", "event", "external", "resource", "resource_config")
    ]


def test_labels_cannot_break_out() -> None:
    graph = WorkflowGraph(name="Flow", nodes=[WorkflowStepNode(id="s", label='a"]; <b>#`|\n2')], edges=[])
    line = to_mermaid(graph).splitlines()[1]
    assert line == '    step_s["a#34;]#59; #60;b#62;#35;#96;#124;<br/>2"]:::step'


def test_ids_stay_apart() -> None:
    graph = WorkflowGraph(
        name="Flow",
        nodes=[event("list[A]"), event("list(A)"), event("Änderung")],
        edges=[WorkflowGraphEdge(source="list[A]", target="list(A)")],
    )
    text = to_mermaid(graph)
    assert "event_list_A_ --> event_list_A__2" in text
    assert 'event__nderung(["Änderung"])' in text


def test_edges_to_nowhere_are_left_out() -> None:
    graph = WorkflowGraph(
        name="Flow",
        nodes=[event("A")],
        edges=[WorkflowGraphEdge(source="A", target="gone"), WorkflowGraphEdge(source="gone", target="A")],
    )
    assert "-->" not in to_mermaid(graph)
