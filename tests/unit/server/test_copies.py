"""Exports and imports over HTTP: from server to server, who may, what is refused, and what is recorded."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from server_serving import Served

from loom.server.v1 import copies


async def exported(served: Served, client: httpx2.AsyncClient, run_id: str = "a") -> dict[str, Any]:
    """Start a run that waits, and export it."""
    body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": run_id}
    assert (await client.post("/v1/runs", json=body)).status_code == 201
    await served.until_waiting(run_id)
    answer = await client.get(f"/v1/runs/{run_id}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    return found


async def moved(client: httpx2.AsyncClient, run_id: str = "a") -> None:
    """Delete a run, so that its export can come back."""
    assert (await client.post(f"/v1/runs/{run_id}/cancel")).status_code == 202
    assert (await client.get(f"/v1/runs/{run_id}", params={"wait": 30})).json()["status"] == "cancelled"
    assert (await client.delete(f"/v1/runs/{run_id}")).status_code == 204


async def test_a_run_that_is_imported_goes_on(served: Served, client: httpx2.AsyncClient) -> None:
    export = await exported(served, client)
    again = await client.put("/v1/runs/a/export", json=export)
    assert (again.status_code, again.json()["code"]) == (409, "run-exists")
    await moved(client)
    made = await client.put("/v1/runs/a/export", json=export)
    assert (made.status_code, made.json()["run_id"], made.headers["location"]) == (201, "a", "/v1/runs/a")
    await served.until_waiting("a")
    sent = await client.post("/v1/runs/a/events", json={"type": "Approval", "value": {"by": "Ada"}})
    assert sent.is_success
    assert (await client.get("/v1/runs/a", params={"wait": 30})).json()["status"] == "completed"


async def test_a_run_of_a_handler_moves_too(served: Served, client: httpx2.AsyncClient) -> None:
    """Clients of the handlers start runs with tags that no other caller may choose."""
    begun = await client.post("/workflows/asks/run-nowait", json={"start_event": {"topic": "tea"}, "handler_id": "h"})
    assert begun.status_code == 200, begun.text
    await served.until_waiting("h")
    export = (await client.get("/v1/runs/h/export")).json()
    assert export["run"]["row"]["tags"] == {"handler": "h"}
    await moved(client, "h")
    assert (await client.put("/v1/runs/h/export", json=export)).status_code == 201
    await served.until_waiting("h")
    assert (await client.get("/handlers/h")).json()["status"] == "running"


async def test_what_is_no_export_is_refused(served: Served, client: httpx2.AsyncClient) -> None:
    export = await exported(served, client)
    row = export["run"]["row"]
    for run_id, body in {
        "b": export,
        "a": {},
        "c": {"loom_run": 1, "run": {"row": {"run_id": "c"}}},
        "d": {**export, "loom_run": 10_000, "run": {**export["run"], "row": {**row, "run_id": "d"}}},
        "e": {**export, "run": {"row": {**row, "run_id": "e"}}},
        "f": {**export, "run": {**export["run"], "row": {**row, "run_id": "f", "tags": {"": "x" * 5000}}}},
    }.items():
        refused = await client.put(f"/v1/runs/{run_id}/export", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-request"), (run_id, refused.text)
    assert (await client.get("/v1/runs/none/export")).status_code == 404
    large = await client.put(
        "/v1/runs/a/export", content=b" " * (2**20 + 1), headers={"Content-Type": "application/json"}
    )
    assert (large.status_code, large.json()["code"]) == (413, "too-large")


async def test_an_export_has_a_limit(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await exported(served, client)
    monkeypatch.setattr(copies, "MAX_EXPORT", 10)
    refused = await client.get("/v1/runs/a/export")
    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")


async def test_only_administrators_may_and_it_is_recorded(served: Served, client: httpx2.AsyncClient) -> None:
    export = await exported(served, client)
    async with (
        served.client(await served.key("read", "start", "event")) as operator,
        served.client(await served.key("admin")) as admin,
    ):
        for refused in (await operator.get("/v1/runs/a/export"), await operator.put("/v1/runs/a/export", json=export)):
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await admin.get("/v1/runs/a/export")).status_code == 200
        await moved(admin)
        assert (await admin.put("/v1/runs/a/export", json=export)).status_code == 201
        acts = (await admin.get("/v1/audit")).json()["items"]
    done = [(act["action"], act["target"], act["outcome"]) for act in acts]
    assert done[0] == ("run.import", "a", 201)
    assert ("run.export", "a", 200) in done
    assert ("run.import", "a", 403) in done
