"""Workflow classes as graphs."""

# No `from __future__ import annotations` here: resources are made inside annotations.

import functools
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from loom.steps.decorators import catch_error, make_step_function, step
from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepFailedEvent, StopEvent
from loom.steps.representation import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGraph,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
    get_workflow_representation,
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
