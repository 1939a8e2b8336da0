"""`GET /v1/workers`: who works on runs."""

from __future__ import annotations

import os

import httpx2
from server_serving import Served

import loom
from loom import StartEvent, StopEvent, Workflow, step


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
