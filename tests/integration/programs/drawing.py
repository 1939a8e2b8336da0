"""A workflow of free functions and its graph, and the graph's JSON."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio

from workflows import Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from workflows.representation import get_workflow_representation


class Middle(Event):
    size: int


class Drawn(Workflow):
    """A workflow to look at."""

    @step
    async def begin(self, ev: StartEvent) -> Middle | InputRequiredEvent:
        return Middle(size=1)

    @step
    async def answered(self, ev: HumanResponseEvent) -> Middle:
        return Middle(size=2)


@step(workflow=Drawn)
async def finish(ev: Middle) -> StopEvent:
    """Ends the run."""
    return StopEvent(result=ev.size)


async def main() -> None:
    graph = get_workflow_representation(Drawn())
    print(graph.name, graph.description)
    for node in sorted(graph.nodes, key=lambda node: node.id):
        print(node.node_type, node.id, node.label)
    for edge in sorted(graph.edges, key=lambda edge: (edge.source, edge.target)):
        print(edge.source, "->", edge.target, edge.label)
    print(sorted(node.id for node in graph.filter_by_node_type("event").nodes))
    print(sorted(event.__name__ for event in Drawn().events))
    print(await Drawn(timeout=10).run())


asyncio.run(main())
