"""Workflow classes as graphs, and graphs as drawings."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from loom.steps.decorators import catch_error, make_step_function, step
from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepFailedEvent, StopEvent
from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGenericNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
    get_workflow_representation,
    to_mermaid,
)
from loom.steps.resources import Resource, ResourceConfig


class A(Event):
    n: int = 0


class SubA(A):
    pass


class Ask(InputRequiredEvent):
    pass


class Answer(HumanResponseEvent):
    pass


class Flow:
    """Asks, then ends."""

    @step
    async def ask(self, ev: StartEvent) -> Ask | None:
        """Ask somebody."""

    @step
    async def hear(self, ev: Answer) -> list[A]: ...

    @step
    async def gather(self, evs: list[A]) -> StopEvent: ...


def edges(graph: WorkflowGraph) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in graph.edges]


def node(graph: WorkflowGraph, node_id: str) -> Any:
    return next(node for node in graph.nodes if node.id == node_id)


def test_steps_events_and_the_outside() -> None:
    graph = get_workflow_representation(Flow)
    assert (graph.name, graph.description) == ("Flow", "Asks, then ends.")
    assert [one.id for one in graph.nodes] == [
        "ask", "StartEvent", "Ask", "external_step", "gather", "A", "StopEvent", "hear", "Answer",
    ]  # fmt: skip
    assert edges(graph) == [
        ("ask", "Ask"),
        ("Ask", "external_step"),
        ("StartEvent", "ask"),
        ("gather", "StopEvent"),
        ("A", "gather"),
        ("hear", "A"),
        ("Answer", "hear"),
        ("external_step", "Answer"),
    ]


def test_nodes_carry_what_is_known() -> None:
    graph = get_workflow_representation(Flow)
    assert node(graph, "ask") == WorkflowStepNode(id="ask", label="ask", description="Ask somebody.")
    assert node(graph, "external_step") == WorkflowExternalNode(id="external_step", label="external_step")
    event = node(graph, "A")
    assert isinstance(event, WorkflowEventNode)
    assert (event.event_type, event.event_types, event.produced_by) == ("A", ["A"], ["hear"])
    assert event.event_schema == A.model_json_schema()
    assert node(graph, "Ask").event_types == ["Ask", "InputRequiredEvent"]
    assert node(graph, "Answer").is_subclass_of("HumanResponseEvent")


def test_an_instance_looks_like_its_class() -> None:
    assert get_workflow_representation(Flow()) == get_workflow_representation(Flow)


def test_free_functions_belong_to_the_workflow() -> None:
    def free(ev: A) -> StopEvent: ...

    class Extended(Flow):
        _step_functions = {"free": make_step_function(free)}  # noqa: RUF012

    assert ("A", "free") in edges(get_workflow_representation(Extended))


def test_a_class_without_a_docstring_has_no_description() -> None:
    class Quiet(Flow):
        pass

    assert get_workflow_representation(Quiet).description is None


def test_every_edge_is_drawn_once() -> None:
    class Twice(Flow):
        @step
        async def ask_again(self, ev: StartEvent) -> Ask: ...

        @step
        async def hear_too(self, ev: Answer) -> None: ...

    found = edges(get_workflow_representation(Twice))
    assert len(found) == len(set(found))


def test_a_broad_step_takes_subclasses_but_no_stop() -> None:
    class Broad:
        @step
        async def make(self, ev: StartEvent) -> SubA | StopEvent: ...

        @step(accept_event_subclasses=True)
        async def log(self, ev: Event) -> None: ...

    assert [source for source, target in edges(get_workflow_representation(Broad)) if target == "log"] == [
        "Event",
        "StartEvent",
        "SubA",
    ]
    assert node(get_workflow_representation(Broad), "SubA").event_types == ["SubA", "A"]
    assert node(get_workflow_representation(Broad), "Event").event_types == ["Event"]


def test_a_handler_takes_failures() -> None:
    class Caught(Flow):
        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent: ...

    assert ("StepFailedEvent", "rescue") in edges(get_workflow_representation(Caught))


def test_an_event_without_a_schema_can_be_drawn() -> None:
    class Opaque(Event):
        thing: functools.partial  # type: ignore[type-arg]

    class Opaquely:
        @step
        async def make(self, ev: StartEvent) -> Opaque: ...

        @step
        async def take(self, ev: Opaque) -> StopEvent: ...

    assert node(get_workflow_representation(Opaquely), "Opaque").event_schema is None


def test_what_is_no_event_can_be_drawn() -> None:
    class Odd:
        @step
        async def make(self, ev: StartEvent) -> dict[str, int] | StopEvent: ...

    assert node(get_workflow_representation(Odd), "dict").event_types == ["dict"]


# --- resources --------------------------------------------------------------------------------------------------------


class Settings(BaseModel):
    size: int


def connect() -> str:
    """Open the database."""
    return "connection"


def make_session(connection: Annotated[str, Resource(connect)]) -> int:
    return len(connection)


def test_resources_and_what_they_are_made_from() -> None:
    class Using:
        @step
        async def one(self, ev: StartEvent, db: Annotated[int, Resource(make_session)]) -> A: ...

        @step
        async def two(self, ev: A, again: Annotated[int, Resource(make_session)]) -> StopEvent: ...

    graph = get_workflow_representation(Using)
    made = {one.getter_name: one for one in graph.nodes if isinstance(one, WorkflowResourceNode)}
    assert list(made) == ["make_session", "connect"]
    session, connection = made["make_session"], made["connect"]
    assert session.id.startswith("resource_")
    assert (connection.label, connection.type_name, connection.description) == ("str", "str", "Open the database.")
    assert connection.source_file == __file__
    assert connection.source_line == connect.__code__.co_firstlineno
    labelled = [(edge.source, edge.target, edge.label) for edge in graph.edges if edge.label]
    assert labelled == [
        ("one", session.id, "db"),
        ("two", session.id, "again"),
        (session.id, connection.id, "connection"),
    ]


def test_two_lambdas_are_two_resources() -> None:
    class Lambdas:
        @step
        async def run(
            self,
            ev: StartEvent,
            one: Annotated[int, Resource(lambda: 1)],
            two: Annotated[int, Resource(lambda: 2)],
            typed_in: Annotated[int, Resource(functools.partial(len, "abc"))],
        ) -> StopEvent: ...

    ids = [one.id for one in get_workflow_representation(Lambdas).nodes if one.node_type == "resource"]
    assert len(set(ids)) == 3


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"deep": {"size": 3}}))
    return str(path)


def test_configs(config_file: str) -> None:
    class Configured:
        @step
        async def run(
            self,
            ev: StartEvent,
            deep: Annotated[Settings, ResourceConfig(config_file, "deep", label="Deep", description="How deep.")],
            whole: Annotated[Settings, ResourceConfig(config_file)],
        ) -> StopEvent: ...

    graph = get_workflow_representation(Configured)
    deep, whole = (one for one in graph.nodes if isinstance(one, WorkflowResourceConfigNode))
    assert deep.id.startswith("resource_config_")
    assert (deep.label, deep.description, deep.type_name) == ("Deep", "How deep.", "Settings")
    assert (deep.path_selector, deep.config_value) == ("deep", {"size": 3})
    assert deep.config_schema == Settings.model_json_schema()
    assert deep.config_file == str(Path(config_file).resolve())
    assert (whole.label, whole.config_value) == ("Settings", {"deep": {"size": 3}})
    assert whole.id != deep.id


def test_a_missing_config_is_drawn_as_declared() -> None:
    class Configured:
        @step
        async def run(self, ev: StartEvent, gone: Annotated[Settings, ResourceConfig("gone.json")]) -> StopEvent: ...

    found = get_workflow_representation(Configured).nodes[-1]
    assert isinstance(found, WorkflowResourceConfigNode)
    assert (found.config_file, found.config_value) == ("gone.json", None)


# --- as JSON ----------------------------------------------------------------------------------------------------------


def test_a_graph_survives_json() -> None:
    graph = get_workflow_representation(Flow)
    assert WorkflowGraph.model_validate_json(graph.model_dump_json()) == graph


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
