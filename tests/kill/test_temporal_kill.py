"""Workers of a Temporal cluster and its server are killed: nothing is lost or doubled. See `make kill-temporal`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from temporal_held import Held
from temporal_kill import sweep
from temporal_server import fresh_temporal_url

import loom

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


async def test_nothing_acknowledged_is_lost_when_workers_and_the_server_are_killed(tmp_path: Path) -> None:
    kinds = ("letters", "parent", "loop")
    kills = ("worker", "server", "worker")
    report = await sweep(tmp_path, kills, chance=random.Random(0), sizes=(2, 3), kinds=kinds, pause_s=2.0)
    assert report.failures == []
    assert (report.worker_kills, report.server_kills) == (2, 1)
    assert set(report.runs) == set(kinds)


async def _failures_before_an_attempt(runtime: Any, run_id: str) -> list[Any]:
    """What the server knows of the attempt before each further attempt at a step."""
    history = await runtime.client.get_workflow_handle(run_id).fetch_history()
    begun = [event.activity_task_started_event_attributes for event in history.events]
    return [each.last_failure for each in begun if each.attempt > 1]


async def test_a_worker_that_is_told_to_stop_leaves_its_steps_to_others(tmp_path: Path) -> None:
    url, place = fresh_temporal_url(), tmp_path / "place"
    command = ("-m", "loom", "worker", f"{Path(__file__).with_name('temporal_held.py')}:Held", "--store", url)
    worker = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with loom.connect(url) as runtime, asyncio.timeout(60):
            handler = await runtime.start("Held", {"place": str(place)}, run_id="a")
            while not place.exists() or not place.read_text():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
            worker.send_signal(signal.SIGTERM)
            assert await worker.wait() == 0
            runtime.register(Held(timeout=None), name="Held")
            assert await handler == worker.pid, "the result that the first process had recorded is gone"
            failures = await _failures_before_an_attempt(runtime, "a")
            assert failures, "there was a second attempt"
            silent = [failure for failure in failures if failure.HasField("timeout_failure_info")]
            assert not silent, "the step was not given back: its silence had to be found out"
            assert place.read_text().split() == [str(worker.pid), str(os.getpid())]
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
