"""The programs that are killed: an engine that works on the runs of a workload, and a client that sends to them.

Both go by the witness file: what was acknowledged is not asked for again, and must be there; the rest is asked for
again under the same id. So a lost run or event shows as an error or a run that never ends.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from kill_switch import Kill, killing_store
from kill_witness import words_of
from kill_workload import WORKFLOWS, Mark, Plan, Workload, witness

import loom
import loom.runtime.durable.runtime
import loom.steps.graph
import loom.store.sqlite.migrations
from loom.runtime.durable import adapter
from loom.store.errors import RunNotFound

LEASE_S = 1.0
"""On PostgreSQL, so long the next process waits for the runs of one that was killed."""


async def engine(url: str, side: Path, work: Workload, kill: Kill | None) -> None:
    """Work until every run of the workload has ended."""
    adapter.SNAPSHOT_TICKS = work.snapshot_ticks
    acknowledged = words_of(side)
    started = {entry["run"] for entry in acknowledged["start"]}
    sent = {entry["id"] for entry in acknowledged["event"]}
    witness.open(side)
    witness.note("process", kill=str(kill))
    store = killing_store(url, kill)
    beside: Any = {"payloads": os.environ.get("LOOM_PAYLOADS")}
    async with loom.connect(
        store, **beside, poll_interval=0.1, lease=LEASE_S, probation=0.05, **work.options
    ) as runtime:
        for kind, name in work.workflow_names().items():
            runtime.register(WORKFLOWS[kind], name=name)
        async with asyncio.TaskGroup() as group:
            for plan in work.plans:
                group.create_task(_see_to(runtime, plan, plan.run_id in started, None if work.beside else sent))


async def _see_to(runtime: Any, plan: Plan, is_started: bool, sent: set[str] | None) -> None:
    """Start a run unless that is done, send it what is missing, read its stream, and wait for its end."""
    if is_started:
        handler = await runtime.handler(plan.run_id)
    else:
        handler = await runtime.start(plan.workflow, plan.inputs, run_id=plan.run_id)
        witness.acknowledged("start", run=plan.run_id)
    reading = asyncio.create_task(_read(handler))
    if sent is not None:
        await _send(runtime, plan, sent)
    await reading
    witness.note("result", run=plan.run_id, result=await handler)


async def _read(handler: Any) -> None:
    """Tell what a reader of the stream gets to see. Whoever reads anew begins at the beginning."""
    seen = 0
    async for event in handler.stream_events():
        if isinstance(event, Mark):
            witness.note("seen", run=handler.run_id, number=seen, text=event.text)
            seen += 1


async def _send(runtime: Any, plan: Plan, sent: set[str]) -> None:
    for event in plan.events:
        if event.token not in sent:
            await runtime.send_event(plan.run_id, event, event_id=event.token)
            witness.acknowledged("event", run=plan.run_id, id=event.token)


async def sender(url: str, side: Path, work: Workload) -> None:
    """Send the events from another process, which is not killed: the engine may be dead or alive."""
    witness.open(side)
    async with loom.connect(url) as runtime:
        for plan in work.plans:
            while plan.events:
                try:
                    await _send(runtime, plan, set())
                    break
                except RunNotFound:
                    await asyncio.sleep(0.01)
