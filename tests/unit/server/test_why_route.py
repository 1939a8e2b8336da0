"""`GET /v1/runs/{id}/why` and `stuck` over HTTP, with the client that reads them."""

from __future__ import annotations

import httpx2
from server_serving import Served

from loom import StartEvent, StopEvent, Workflow, step
from loom.client import Client


class Halts(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent | None:
        return None


async def test_the_client_is_told_what_holds_a_run(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"})
    await served.until_waiting("w")
    transport = httpx2.ASGITransport(app=served.app)
    async with Client("http://127.0.0.1", transport=transport) as caller:
        why = await caller.why("w")
    assert (why.kind, why.status, why.workflow) == ("waiter", "running", "asks")
    assert why.sentence.startswith("Step 'ask' waits for event 'Approval' since ")
    cause = why.causes[0]
    assert (cause.step, cause.event_type, cause.waiter_id is not None) == ("ask", "server_serving.Approval", True)
    shown = (await client.get("/v1/runs/w/why")).json()
    assert shown["causes"][0]["since"].endswith("Z")
    missing = await client.get("/v1/runs/nobody/why")
    assert (missing.status_code, missing.json()["code"]) == (404, "run-not-found")


async def test_stuck_runs_are_shown_and_found(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(Halts(), name="halts")
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"})
    await client.post("/v1/runs", json={"workflow": "halts", "run_id": "h"})
    await served.until_waiting("w")
    items: list[dict[str, object]] = []
    while not items:
        items = (await client.get("/v1/runs?stuck=true")).json()["items"]
    assert [item["run_id"] for item in items] == ["h"]
    assert items[0]["stuck"] == "Step 'begin' returned None, and nothing else was left to do."
    assert items[0]["error"] is None
    assert items[0]["status"] == "running"
    others = (await client.get("/v1/runs?stuck=false")).json()["items"]
    assert [(item["run_id"], item["stuck"]) for item in others] == [("w", None)]
    assert (await client.get("/v1/runs/h/why")).json()["kind"] == "stuck"
    compatible = (await client.get("/handlers/h")).json()
    assert (compatible["status"], compatible["error"]) == ("running", None)
