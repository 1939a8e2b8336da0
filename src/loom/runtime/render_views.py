"""What callers ask of a run over time: its graph with counts, its timeline, the iterations of its loops."""

from __future__ import annotations

import re
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from loom.api.times import maybe_moment, moment
from loom.api.views import Iteration, RunGraph, Timeline
from loom.core.records import EventRecord
from loom.core.reducer import Draft, transition
from loom.core.state import BrokerState
from loom.effects.off_loop import aside
from loom.runtime.render import flow_of
from loom.runtime.stored_run import program_of_row
from loom.runtime.views.step_lanes import StepLanes
from loom.runtime.views.timeline import Window, counts_of, timeline_of
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.api.state import Action, Loop
    from loom.api.views import StepCounts
    from loom.core.records import Published
    from loom.core.reducer import FieldReader
    from loom.core.state import BrokerConfig
    from loom.flows.program import Node, Program
    from loom.flows.state import Record
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.views.reader import Trace
    from loom.runtime.views.rounds import Round
    from loom.store.records import Chunk, RunRow

_STATUSES: tuple[Literal["running", "complete", "failed", "cancelled"], ...] = (
    "running",
    "complete",
    "failed",
    "cancelled",
)
_CHUNKS = 64
_INDEX = re.compile(r"\[([0-9]{1,15})\]$", re.ASCII)

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


# -- iterations --------------------------------------------------------------------------------------------------------


_MOST_SLASHES = 500
"""How many a path may have: each of them might begin the name of the action."""


class ActionPlace(NamedTuple):
    """An action in a program, and the iterations around it."""

    node: Node
    around: tuple[int, ...] | None
    """None: the path does not say."""


def place_of(program: Program, path: str) -> ActionPlace | None:
    """Read a path such as `outer[2]/inner`, where the last part may have an iteration too; None: it names no action."""
    if path.count("/") > _MOST_SLASHES:
        return None
    begin = 0  # of the last part: names may have slashes too
    while (node := program.find(_INDEX.sub("", path[begin:]))) is None:
        slash = path.find("/", begin)
        if slash < 0:
            return None
        begin = slash + 1
    names = [program.nodes[loop].name for loop in node.loops]
    if not begin:
        return ActionPlace(node, () if not names else None)
    outer = "".join(rf"{re.escape(name)}(?:\[([0-9]{{1,15}})\])?/" for name in names)
    found = re.fullmatch(outer, path[:begin], re.ASCII)
    if found is None:
        return None
    indexes = [int(index) for index in found.groups() if index is not None]
    return ActionPlace(node, tuple(indexes) if len(indexes) == len(names) else None)


async def rendered_iterations(
    runtime: RunClient, row: RunRow, path: str, limit: int, after: int | None = None, *, ascending: bool = False
) -> tuple[list[Iteration], int | None]:
    """Render the iterations of a loop after one of them, newest first, and the place where the next page begins.

    Raises `ValueError` if the path names no loop of the run.
    """
    program = await program_of_row(runtime, row)
    place = place_of(program, path) if program is not None else None
    if place is None or not place.node.blocks or not _is_loop(place.node):
        raise ValueError(f"Run {row.run_id!r} has no loop {path[:100]!r}.")
    page = partial(_rounds, place, limit, after, ascending)
    rounds, more = await runtime.traces.look(row, page)
    results = await _results(runtime, row, [each.cursor for each in rounds if each.cursor is not None])
    items = [_iteration(each, results) for each in rounds]
    return items, rounds[-1].iteration if more and rounds else None


def _is_loop(node: Node) -> bool:
    from loom.runtime.views.flow_lanes import is_loop

    return is_loop(node)


def _rounds(
    place: ActionPlace, limit: int, after: int | None, ascending: bool, trace: Trace
) -> tuple[list[Round], bool]:
    flow = trace.flow
    if flow is None:
        return [], False
    found = flow.rounds.of(place.node.name, place.around)
    numbers = sorted(found, reverse=not ascending)
    if after is not None:
        numbers = [number for number in numbers if (number > after if ascending else number < after)]
    # Copies, because the next look may go on with those that are under way.
    return [copy(found[number]) for number in numbers[:limit]], len(numbers) > limit


async def _results(runtime: RunClient, row: RunRow, cursors: list[int]) -> dict[int, Any]:
    """Read what a loop told of iterations from the stream, by cursor."""
    results: dict[int, Any] = {}
    known: dict[int, Published] = {}
    for cursor in sorted(cursors):
        if cursor not in known:
            known = {}
            for chunk in await runtime.store.stream(row.run_id, cursor, _CHUNKS):
                decoded = await runtime.decoded.decode(row.run_id, chunk)
                known |= dict(enumerate(decoded.published, chunk.first_cursor))
        event = known.get(cursor)
        results[cursor] = event.body.result if isinstance(event, EventRecord) else None
    return results


def _iteration(each: Round, results: dict[int, Any]) -> Iteration:
    from loom.flows.progress import preview

    return Iteration(
        iteration=each.iteration,
        status=_STATUSES[each.status],
        condition_result=each.condition_result,
        result=preview(results[each.cursor]) if each.cursor is not None else None,
        error=each.error,
        begin=moment(each.begin),
        end=maybe_moment(each.end),
        duration=None if each.end is None else each.end - each.begin,
        tick=each.tick,
    )


async def rendered_repetition(runtime: RunClient, row: RunRow, path: str) -> list[Action]:
    """Render one repetition of an action that later ones have replaced, such as `outer[2]/inner[5]/send`.

    The ticks of its iteration are reduced again. An empty list: there was no such repetition.
    """
    program = await program_of_row(runtime, row)
    place = place_of(program, path) if program is not None else None
    if program is None or place is None or not place.around:
        return []
    loop, around = program.nodes[place.node.loops[-1]].name, place.around
    found = await runtime.traces.look(row, partial(_round, loop, around))
    if found is None:
        return []
    before = await runtime.state_at(row.run_id, found.tick - 1) if found.tick else BrokerState()
    until = found.last_tick + 1 if found.end is not None else row.head.ticks
    watched = Watched(program, before, runtime.field_reader(row), (*around,), place.node.index)
    while watched.ticks < until:
        chunks = await runtime.store.chunks(row.run_id, watched.ticks, _CHUNKS)
        if not chunks:
            break
        await aside("replay", watched.go_on, row.run_id, chunks, until)
    from loom.flows.progress import repetition_state
    from loom.runtime.render_flow import rendered_action

    record = watched.found
    return [rendered_action(repetition_state(place.node, path, record))] if record is not None else []


def _round(loop: str, around: tuple[int, ...], trace: Trace) -> Round | None:
    found = trace.flow.rounds.of(loop, around[:-1]).get(around[-1]) if trace.flow is not None else None
    return copy(found) if found is not None else None


class Watched:
    """A replay of a part of a journal that looks for one repetition of an action."""

    def __init__(
        self, program: Program, state: BrokerState, read_field: FieldReader, around: tuple[int, ...], node: int
    ) -> None:
        from loom.flows.planner import FlowPlanner

        self.found: Record | None = None
        self._wanted = around, node
        self._draft = Draft(state, FlowPlanner(program, self._see), read_field)

    @property
    def ticks(self) -> int:
        """Return how many ticks of the run have been reduced."""
        return self._draft.ticks

    def _see(self, around: tuple[int, ...], node: int, record: Record) -> None:
        if (around, node) == self._wanted:
            self.found = record

    def go_on(self, run_id: str, chunks: Sequence[Chunk], until: int) -> None:
        """Reduce the next ticks, but none after a number of them."""
        for chunk in chunks:
            for tick in codec.decode_ticks(run_id, chunk)[self._draft.ticks - chunk.first_tick :]:
                if self._draft.ticks >= until:
                    return
                transition(self._draft, tick)
                self._draft.commands = []
