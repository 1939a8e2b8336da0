"""`GET /v1/workers`: who works on runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx2
from server_serving import Served

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.server import create_app
from loom.server.settings import ServerSettings


class Ends(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1)


async def test_this_process_is_listed_with_what_it_knows_of_itself(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(Ends(), name="ends")
    await (await served.runtime.start("ends"))
    answer = await client.get("/v1/workers")
    assert answer.status_code == 200, answer.text
    [worker] = answer.json()["items"]
    assert (worker["alive"], worker["is_this"], worker["pid"]) == (True, True, os.getpid())
    assert (worker["version"], worker["workflows"], worker["owned"]) == (loom.__version__, ["asks", "ends", "flow"], 0)
    assert (worker["runs_in_memory"], worker["since"] is not None) == (0, True)
    assert (await client.get("/v1/workers?alive=true")).status_code == 400


async def test_a_standby_tells_that_it_is_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    first, second = loom.connect(url, name="first"), loom.connect(url, name="second", when_locked="standby")
    for runtime in (first, second):
        runtime.register(Ends(), name="ends")
    async with first, second:
        transport = httpx2.ASGITransport(create_app(second))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            ready = await client.get("/v1/health/ready")
            assert (ready.status_code, ready.json()) == (200, {"status": "ready", "reasons": [], "role": "standby"})
            found = (await client.get("/v1/workers")).json()["items"]
            told = [(each["name"], each["role"], each["is_this"]) for each in found]
            assert told == [("first", "worker", False), ("second", "standby", True)]
            assert found[1]["workflows"] == ["ends"]
            started = await client.post("/v1/runs", json={"workflow": "ends", "run_id": "run-1"})
            assert started.status_code == 201
            run = (await client.get("/v1/runs/run-1?wait=30")).json()
            assert (run["status"], first.metrics.ticks > 0, second.metrics.ticks) == ("completed", True, 0)
            await first.close()
            async with asyncio.timeout(60):
                while (await client.get("/v1/health/ready")).json()["role"] != "worker":  # noqa: ASYNC110 - as a probe does
                    await asyncio.sleep(0.01)


async def test_a_server_without_code_tells_what_the_worker_works_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    worker, runtime = loom.connect(url, name="worker"), loom.connect(url)
    for name in ("ends", "other"):
        worker.register(Ends(), name=name)
    async with worker, runtime:
        server = Served(runtime, ServerSettings())
        whole, limited = await server.key("read"), await server.key("read", workflows=("ends",))
        async with server.client(whole) as client, server.client(limited) as restricted, asyncio.timeout(60):
            while (found := await _only(client))["workflows"] is None:  # noqa: ASYNC110 - as a page does
                await asyncio.sleep(0.01)
            assert (found["name"], found["is_this"], found["alive"]) == ("worker", False, True)
            assert (found["workflows"], found["runs_in_memory"]) == (["ends", "other"], 0)
            assert (found["pid"], found["version"], found["since"] is not None) == (os.getpid(), loom.__version__, True)
            shown = await _only(restricted)
            assert (shown["workflows"], shown["runs_in_memory"], shown["owned"]) == (["ends"], None, None)


async def _only(client: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/v1/workers")
    assert answer.status_code == 200, answer.text
    [worker] = answer.json()["items"]
    return dict(worker)
