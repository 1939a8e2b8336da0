"""Nodes, edges and filtering."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowGenericNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowStepNode,
)


def graph(nodes: dict[str, str], edges: list[tuple[str, str, str | None]]) -> WorkflowGraph:
    return WorkflowGraph(
        name="G",
        nodes=[WorkflowGenericNode(id=name, label=f"<{name}>", node_type=kind) for name, kind in nodes.items()],
        edges=[WorkflowGraphEdge(source=source, target=target, label=label) for source, target, label in edges],
        description="kept",
    )


def shown(found: WorkflowGraph) -> list[tuple[str, str, str | None]]:
    return [(edge.source, edge.target, edge.label) for edge in found.edges]


def test_edges_lead_across_what_is_removed() -> None:
    full = graph(
        {"a": "step", "x": "event", "b": "step", "r": "resource"},
        [("a", "x", None), ("x", "b", None), ("a", "r", "db")],
    )
    filtered = full.filter_by_node_type("event")
    assert [node.id for node in filtered.nodes] == ["a", "b", "r"]
    assert shown(filtered) == [("a", "b", "<x>"), ("a", "r", "db")]
    assert (filtered.name, filtered.description) == ("G", "kept")


def test_a_chain_is_named_by_the_first_that_was_removed() -> None:
    full = graph({"a": "s", "x": "e", "y": "f", "b": "s"}, [("a", "x", None), ("x", "y", None), ("y", "b", None)])
    assert shown(full.filter_by_node_type("e", "f")) == [("a", "b", "<x>")]


def test_circles_of_removed_nodes_end() -> None:
    full = graph(
        {"a": "s", "x": "e", "y": "e"}, [("a", "x", None), ("x", "y", None), ("y", "x", None), ("y", "a", None)]
    )
    assert shown(full.filter_by_node_type("e")) == [("a", "a", "<x>")]


def test_parallel_ways_become_one_edge() -> None:
    full = graph(
        {"a": "s", "x": "e", "y": "e", "b": "s"},
        [("a", "x", None), ("a", "y", None), ("x", "b", None), ("y", "b", None)],
    )
    assert shown(full.filter_by_node_type("e")) == [("a", "b", "<x>")]


def test_nothing_to_remove() -> None:
    full = graph({"a": "s", "b": "s"}, [("a", "b", "label")])
    assert full.filter_by_node_type("event") == full
    assert full.filter_by_node_type() == full


NAMES = st.sampled_from("abcdef")


@given(
    st.dictionaries(NAMES, st.sampled_from(["keep", "drop"])),
    st.lists(st.tuples(NAMES, NAMES, st.none()), max_size=15),
)
def test_what_stays_is_connected_as_before(nodes: dict[str, str], edges: list[tuple[str, str, None]]) -> None:
    real = [edge for edge in edges if edge[0] in nodes and edge[1] in nodes]
    filtered = graph(nodes, real).filter_by_node_type("drop")

    def across(source: str) -> set[str]:
        reached: set[str] = set()
        waiting = [source]
        passed: set[str] = set()
        while waiting:
            here = waiting.pop()
            for a, b, _ in real:
                if a != here:
                    continue
                if nodes[b] == "keep":
                    reached.add(b)
                elif b not in passed:
                    passed.add(b)
                    waiting.append(b)
        return reached

    kept = [name for name, kind in nodes.items() if kind == "keep"]
    assert {(s, t) for s, t, _ in shown(filtered)} == {(s, t) for s in kept for t in across(s)}


def test_labels_can_be_cut() -> None:
    node = WorkflowStepNode(id="x", label="abcdef")
    assert (node.truncated_label(6), node.truncated_label(4)) == ("abcdef", "abc*")


def test_json_gives_each_node_its_class_back() -> None:
    nodes = [
        WorkflowStepNode(id="s", label="s"),
        WorkflowEventNode(id="e", label="e", event_type="e", event_types=["e"]),
        WorkflowGenericNode(id="g", label="g", node_type="agent"),
    ]
    full = WorkflowGraph(name="G", nodes=nodes, edges=[])
    assert WorkflowGraph.model_validate(full.model_dump()).nodes == nodes


def test_a_generic_node_may_stand_for_a_class() -> None:
    plain = WorkflowGenericNode(id="g", label="g", node_type="agent")
    typed = WorkflowGenericNode(id="g", label="g", node_type="agent", event_type="B", event_types=["B", "A"])
    assert not plain.is_subclass_of("A")
    assert typed.is_subclass_of("X", "A")
