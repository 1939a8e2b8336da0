"""What callers ask of a run over time: its graph with counts, its timeline, the iterations of its loops."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.api.views import RunGraph, Timeline
from loom.runtime.render import flow_of
from loom.runtime.stored_run import program_of_row
from loom.runtime.views.step_lanes import StepLanes
from loom.runtime.views.timeline import Window, counts_of, timeline_of

if TYPE_CHECKING:
    from loom.api.state import Loop
    from loom.api.views import StepCounts
    from loom.core.state import BrokerConfig
    from loom.flows.program import Program
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.views.reader import Trace
    from loom.store.records import RunRow

Graph = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""Nodes and edges."""


async def rendered_timeline(runtime: RunClient, row: RunRow, window: Window) -> Timeline:
    """Render what a run did over time."""
    now = runtime.now() if row.head.status == "running" else None
    return await runtime.traces.look(row, partial(_timeline, row, window, now))


def _timeline(row: RunRow, window: Window, now: float | None, trace: Trace) -> Timeline:
    shown = timeline_of(trace, window, now)
    return replace(shown, partial=True) if trace.made.ticks < row.head.ticks else shown


async def rendered_graph(runtime: RunClient, row: RunRow, tick: int | None = None) -> RunGraph:
    """Render the graph of the version that a run follows, with counts as of a tick; None: as of the last one.

    Raises `ValueError` if there is no such tick.
    """
    if tick is not None and not 0 <= tick < row.head.ticks:
        raise ValueError(f"Run {row.run_id!r} has the ticks 0 to {row.head.ticks - 1}: there is no tick {tick}.")
    program = await program_of_row(runtime, row)
    at, steps, config, is_partial = await runtime.traces.look(row, partial(_counted, row, tick))
    nodes, edges = _flow_graph(program) if program is not None else await _steps_graph(runtime, row, config)
    known = {node["id"] for node in nodes}
    # Older code of the run may have had steps that the workflow lacks now.
    nodes = [*nodes, *(_step_node(each.node) for each in steps if each.node not in known)]
    loops = await _loops(runtime, row, tick) if program is not None else []
    return RunGraph(name=row.workflow, nodes=nodes, edges=edges, steps=steps, loops=loops, tick=at, partial=is_partial)


def _counted(row: RunRow, tick: int | None, trace: Trace) -> tuple[int, list[StepCounts], BrokerConfig | None, bool]:
    at = trace.tick if tick is None else min(tick, trace.tick)
    made = trace.made
    config = made.config if isinstance(made, StepLanes) else None
    is_partial = row.first_tick > 0 or at < (row.head.ticks - 1 if tick is None else tick)
    return at, counts_of(trace, at), config, is_partial


def _flow_graph(program: Program) -> Graph:
    from loom.flows.graph import to_graph

    drawn = to_graph(program)
    return drawn["nodes"], drawn["edges"]


async def _steps_graph(runtime: RunClient, row: RunRow, config: BrokerConfig | None) -> Graph:
    """Return the graph that a process with the code has described, else the steps that the run itself knows of."""
    entry = await runtime.catalog.entry(row.workflow)
    if entry is not None:
        return entry.nodes, entry.edges
    return [_step_node(spec.name) for spec in (config.steps if config is not None else ())], []


def _step_node(name: str) -> dict[str, Any]:
    return {"id": name, "label": name, "node_type": "step"}


async def _loops(runtime: RunClient, row: RunRow, tick: int | None) -> list[Loop]:
    from loom.runtime.render_flow import rendered_loops

    flow = await flow_of(runtime, row, await runtime.state_at(row.run_id, tick), tick)
    return rendered_loops(flow, ended=True) if flow is not None else []
