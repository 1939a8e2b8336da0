"""Reads about one stored run that several answers need: its program, what it ended with, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.records import EventRecord
from loom.flows.calls import FlowEnd
from loom.runtime.planners import planner_for, program_in

if TYPE_CHECKING:
    from loom.core.records import Published, WaiterReport
    from loom.core.state import BrokerState
    from loom.flows.program import Program
    from loom.runtime.durable.run_client import RunClient
    from loom.store.records import RunRow


async def program_of_row(runtime: RunClient, row: RunRow) -> Program | None:
    """Return the program of the document that a run was started with; None for a workflow in Python."""
    text = await runtime.store.document(row.document) if row.document is not None else None
    return program_in(planner_for(text))


async def last_published(runtime: RunClient, row: RunRow) -> Published | None:
    """Return what a run ended with, which is the last thing on its stream; None while it runs."""
    head = row.head
    if head.status == "running" or not head.events:
        return None
    recent = runtime.recent.find(row)
    if recent is not None:
        return recent
    chunks = await runtime.store.stream(row.run_id, head.events - 1, 1)
    return (await runtime.decoded.decode(row.run_id, chunks[-1])).published[-1] if chunks else None


async def end_of_run(runtime: RunClient, run_id: str) -> FlowEnd | None:
    """Return what a flow ended with; None while it runs, and for a workflow in Python."""
    last = await last_published(runtime, await runtime.row(run_id))
    return last.body if isinstance(last, EventRecord) and isinstance(last.body, FlowEnd) else None


def open_waiters(state: BrokerState) -> tuple[WaiterReport, ...]:
    """Return all waiters of a run, where its row has only the first ones.

    Steps that take answers from outside count when the run is idle.
    """
    if not state.is_running or not (state.idle_since is not None or state.waiting.index or state.children):
        return ()
    return state.waiter_reports(asked=True)
