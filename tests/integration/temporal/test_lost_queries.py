"""Core loses queries when a run leaves memory: of those that wait for the run's turn, it keeps the first alone."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from temporal_server import fresh_temporal_url
from temporalio.service import RPCError

import loom
from loom import HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.store.records import RunRow
from loom.temporal import rpc
from loom.temporal.address import parse_address
from loom.temporal.client.cluster import Cluster
from loom.temporal.names import QUERY_ROW
from loom.temporal.workflow.queries import AskAgain, RecordedHistory

READERS = 6
ARRIVE_S = 1.0
"""How long the queries of all readers take to reach the worker, as a rule. If not, the scene is played again."""
TRIES = 5


class Answer(HumanResponseEvent):
    pass


class Waits(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> None:
        return None

    @step
    async def end(self, ev: Answer) -> StopEvent:
        return StopEvent(result="answered")


async def has_settled(cluster: Cluster, run_id: str) -> None:
    """Wait until the run waits for its answer: then no task of its own carries the queries."""
    while True:
        described = (await cluster.describe(run_id)).raw_description
        last = await cluster.last_event(run_id)
        if described.pending_workflow_task.attempt == 0 and last is not None and not described.pending_activities:
            return
        await asyncio.sleep(0.05)


async def test_queries_that_a_worker_loses_are_answered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[float] = []
    refused: set[str] = set()
    check = RecordedHistory.check

    def refuse_the_first(self: RecordedHistory, info: Any, taken: Any, length: int) -> None:
        if info.workflow_id not in refused:
            refused.add(info.workflow_id)
            time.sleep(ARRIVE_S)  # the others wait in core until this one has its answer
            raise AskAgain
        check(self, info, taken, length)

    class Watched:
        """A run whose calls that nobody answers are counted."""

        def __init__(self, handle: Any) -> None:
            self._handle = handle

        async def query(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await self._handle.query(*arguments, **options)
            except RPCError:
                lost.append(options["rpc_timeout"].total_seconds())
                raise

    monkeypatch.setattr(RecordedHistory, "check", refuse_the_first)
    url = fresh_temporal_url()
    cluster = Cluster(parse_address(url))
    await cluster.connect()
    async with loom.connect(url) as runtime:
        runtime.register(Waits(timeout=None), name="waits")
        for number in itertools.count(1):
            run_id = f"run-{number}"
            handler = await runtime.start("waits", {}, run_id=run_id)
            await has_settled(cluster, run_id)
            run: Any = Watched(cluster.handle(run_id))
            asked = [rpc.ask(run, QUERY_ROW, []) for _ in range(READERS)]
            assert all(await asyncio.gather(*asked)), "every reader has an answer"
            row = await cluster.query(run_id, QUERY_ROW, RunRow)
            assert row.run_id == run_id
            await runtime.send_event(run_id, Answer())
            assert await asyncio.wait_for(handler, 60) == "answered"
            if lost:
                return
            assert number < TRIES, "no query was lost: does core keep them now?"
