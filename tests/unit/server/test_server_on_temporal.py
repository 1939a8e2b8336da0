"""The same API over a Temporal cluster: some tests of each kind of request, on a server whose runs are there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from server_serving import Served, serving

sys.path.insert(0, str(Path(__file__).parents[2]))
from temporal_server import fresh_temporal_url
from test_definitions import test_a_run_by_the_number_of_its_version  # noqa: F401 - collected here too, as all below
from test_runs import (
    test_a_failed_run_is_no_failure_of_the_server,  # noqa: F401
    test_a_fork_goes_on_from_a_tick,  # noqa: F401
    test_an_event_ends_the_wait,  # noqa: F401
    test_cancel_pause_resume_and_delete,  # noqa: F401
    test_the_same_start_again_is_the_same_run_and_another_one_is_refused,  # noqa: F401
)
from test_schedules_api import test_a_schedule_is_made_once_and_replaced_by_another  # noqa: F401
from test_server_history import (
    test_the_loops_of_a_flow_under_way_and_over,  # noqa: F401
    test_what_is_secure_is_masked_everywhere,  # noqa: F401
    waiting,  # noqa: F401
)
from test_server_idempotency import test_many_at_once_start_one_run  # noqa: F401


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server over a namespace of its own."""
    async with serving(fresh_temporal_url()) as found:
        yield found


async def test_metrics_count_the_runs_of_the_cluster_and_those_in_memory(served: Served) -> None:
    async with served.client() as client:
        body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": "one"}
        await client.post("/v1/runs", json=body)
        await served.until_waiting("one")
        assert served.runtime.figures["in_memory"] == 1
        assert "loom_runs_in_memory 1" in (await client.get("/metrics")).text


async def test_changes_are_told_as_late_as_lists(served: Served) -> None:
    changes = served.runtime.changes(workflow="asks")
    assert (await anext(changes)).event == "counts"
    async with served.client() as client:
        await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "one"})
        async with asyncio.timeout(60):
            async for change in changes:
                if change.run is not None and change.run.active_waiters:
                    place = change.id
                    break
            await client.post("/v1/runs/one/events", json={"type": "Approval", "value": {"by": "ann"}})
            async for change in changes:
                if change.run is not None and change.run.finished:
                    break
            # A reader that was away hears of the end too.
            async for change in served.runtime.changes(after=place):
                assert change.event != "reset"
                if change.run is not None and change.run.finished:
                    break
            await client.delete("/v1/runs/one")
            async for change in changes:
                if change.event == "gone":
                    assert change.run_id == "one"
                    break
