"""Integrity: what operators did is recorded, and nobody can change the record through the server; a journal that was
changed is noticed."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx2
import pytest
from security_rig import is_parked, until
from server_serving import Served, serving

from loom.server.app import ROUTES
from loom.server.audit import ACTIONS, AUDIT
from loom.store.errors import StoreUnavailable

START = {"workflow": "asks", "input": {"topic": "tea"}}
NOT_RECORDED = {
    "/v1/runs",
    "/v1/runs/{run_id}/events",
    "/events/{handler_id}",
    "/workflows/{name}/run",
    "/workflows/{name}/run-nowait",
    "/v1/definitions/validate",
    "/v1/definitions/{name}/invoke",
    "/v1/definitions/{name}/invoke/{path:path}",
    "/v1/callbacks/{token}",
    "/v1/session",
}
"""What starts runs and sends them events: the histories of the runs have it. And what changes nothing."""
RECORDS_ITSELF = {"/v1/bulk"}
"""What is recorded while it works: the act on each run, and the whole with its counts."""


async def record(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get("/v1/audit")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_every_route_that_changes_something_is_recorded_or_listed_here() -> None:
    changing = {(route.method, route.path) for route in ROUTES if route.method != "GET"}
    assert {path for method, path in changing - set(ACTIONS)} <= NOT_RECORDED | RECORDS_ITSELF
    others = {("GET", "/v1/runs/{run_id}/export")}  # it gives out secure data in clear
    assert set(ACTIONS) <= changing | others, "what is to be recorded is there"


async def test_acts_are_recorded_with_who_did_them(served: Served) -> None:
    key = await served.key("admin")
    async with served.client(key) as client:
        for run_id in ("a", "b"):
            await client.post("/v1/runs", json={**START, "run_id": run_id})
        await served.until_waiting("a")
        await client.post("/v1/runs/a/pause")
        await client.post("/v1/runs/a/resume")
        await client.put("/v1/runs/a/tags", json={"tags": {"team": "x"}})
        fork = (await client.post("/v1/runs/a/fork", json={"tick": 0})).json()["run_id"]
        await client.post("/v1/runs/a/cancel", headers={"X-Request-ID": "req-9"})
        await client.get("/v1/runs/a?wait=10")
        await client.delete("/v1/runs/a")
        await client.post("/handlers/b/cancel?purge=true")
        schedule = {"name": "nightly", "workflow": "asks", "every": 3600, "input": {"topic": "tea"}}
        assert (await client.post("/v1/schedules", json=schedule)).status_code == 201
        await client.delete("/v1/schedules/nightly")
        found = await record(client)
    done = [(act["action"], act["target"]) for act in reversed(found)]
    assert done == [
        ("run.pause", "a"),
        ("run.resume", "a"),
        ("run.tag", "a"),
        ("run.fork", "a"),
        ("run.cancel", "a"),
        ("run.delete", "a"),
        ("run.delete", "b"),
        ("schedule.put", "nightly"),
        ("schedule.delete", "nightly"),
    ]
    assert {act["actor"] for act in found} == {key.split("_")[1]}
    assert found[-4]["made"] == fork
    assert found[-5]["request_id"] == "req-9"
    assert found[-5]["outcome"] == 202
    assert all(act["at"].endswith("Z") for act in found)


async def test_what_was_refused_and_what_was_only_repeated_is_no_act(client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs/nowhere/cancel")
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    for _ in range(2):
        await client.post("/v1/runs/r/cancel", headers={"Idempotency-Key": "once"})
    assert [act["action"] for act in await record(client)] == ["run.cancel"]


async def test_the_record_is_read_in_pages_newest_first(client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    for _ in range(5):
        await client.post("/v1/runs/r/pause")
        await client.post("/v1/runs/r/resume")
    whole = await record(client)
    assert len(whole) == 10
    assert [act["at"] for act in whole] == sorted((act["at"] for act in whole), reverse=True)
    pages: list[Any] = []
    cursor = ""
    while True:
        page = (await client.get(f"/v1/audit?limit=3{cursor}")).json()
        pages += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert pages == whole
    for wrong in ("x", "' OR 1=1", "9" * 300):
        assert (await client.get("/v1/audit", params={"cursor": wrong})).status_code == 400


async def test_no_route_changes_the_record(client: httpx2.AsyncClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await client.request(method, "/v1/audit")).status_code == 405
        assert (await client.request(method, "/v1/audit/x")).status_code == 404


async def test_the_record_is_for_whoever_administers_all_workflows() -> None:
    async with serving() as served:
        for scopes, workflows in ((("read", "start", "event"), None), (("admin",), ("asks",))):
            async with served.client(await served.key(*scopes, workflows=workflows)) as client:  # type: ignore[arg-type]
                assert (await client.get("/v1/audit")).status_code == 403


async def test_the_record_ends_with_its_retention() -> None:
    async with serving(audit_retention=60.0) as served, served.client() as client:
        await client.post("/v1/runs", json={**START, "run_id": "r"})
        await client.post("/v1/runs/r/pause")
        [entry] = await served.runtime.store.entries(AUDIT)
        assert entry.expires_at == pytest.approx(served.runtime.now() + 60.0, abs=30)


async def test_an_act_that_cannot_be_recorded_is_done_and_logged(
    served: Served, client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})

    async def failing(*_args: Any, **_options: Any) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(served.runtime.store, "put_entry", failing)
    assert (await client.post("/v1/runs/r/pause")).status_code == 202
    [told] = [each for each in caplog.records if each.name == "loom.audit"]
    assert told.levelno == logging.ERROR
    assert "run.pause" in told.getMessage()


# -- the journal ------------------------------------------------------------------------------------------------------


def _rewritten(path: Path) -> int:
    """Put other words into a run's journal, with checksums that are right; in how many places."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute("SELECT id, data FROM chunks").fetchall()
        changed = [(number, data.replace(b"tea", b"tee")) for number, data in rows if b"tea" in data]
        for number, data in changed:
            connection.execute("UPDATE chunks SET data = ?, checksum = ? WHERE id = ?", (data, crc32(data), number))
    return len(changed)


async def test_a_journal_that_somebody_has_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with serving(url) as served, served.client() as client:
        await client.post("/v1/runs", json={**START, "run_id": "r"})
        await served.until_waiting("r")
    assert _rewritten(tmp_path / "runs.db")
    async with serving(url) as served, served.client() as client:
        await client.post("/v1/runs/r/events", json={"type": "Approval", "value": {"by": "x"}})
        found = await until(served.runtime, "r", lambda info: is_parked(info) or info.status != "running")
        assert found.status == "running"
        assert "is not what was written" in (found.parked or "")
        differences = (await client.get("/v1/runs/r/replay")).json()["differences"]
        assert differences, "whoever asks is told"
