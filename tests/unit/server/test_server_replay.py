"""`GET /v1/runs/{run_id}/replay`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
from server_serving import Served, serving


async def test_a_run_gives_what_is_stored(served: Served, client: httpx2.AsyncClient) -> None:
    for name, given in (("asks", {"topic": "x"}), ("flow", {"pin": "1"})):
        await client.post("/v1/runs", json={"workflow": name, "input": given, "run_id": name})
        await served.until_waiting(name)
        run = (await client.get(f"/v1/runs/{name}")).json()
        found = (await client.get(f"/v1/runs/{name}/replay")).json()
        counted = {"first_tick": 0, "ticks": run["tick"] + 1, "events": run["cursor"] + 1}
        assert found == {"run_id": name, "replay": "same", **counted, "snapshot": found["snapshot"], "differences": []}


async def test_what_differs_is_named_and_what_is_secure_is_not_shown(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/runs.db") as served, served.client() as client:
        await client.post("/v1/runs", json={"workflow": "flow", "input": {"pin": "1"}, "run_id": "f"})
        await served.until_waiting("f")
        await client.post("/v1/runs/f/events", json={"type": "Go", "value": {"n": 1}})
        ended = (await client.get("/v1/runs/f?wait=10")).json()
        assert ended["status"] == "completed"
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE runs SET status = 'failed'")
        text = (await client.get("/v1/runs/f/replay")).text
        assert '"different"' in text
        assert "The row says status='failed'; replay gives 'completed'." in text
        assert "s3cret" not in text
        assert "t0p" not in text


async def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/runs.db") as served, served.client() as client:
        await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "x"}, "run_id": "r"})
        await served.until_waiting("r")
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE chunks SET data = x'00'")
        answer = await client.get("/v1/runs/r/replay")
        assert (answer.status_code, answer.json()["code"]) == (422, "result-unreadable")
        assert "r" in (await client.get("/v1/runs/r/state")).json()["damaged"]


async def test_who_may_ask(served: Served, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/runs/nobody/replay")).json()["code"] == "run-not-found"
    assert (await client.get("/v1/runs/nobody/replay?deep=true")).status_code == 400
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "x"}, "run_id": "r"})
    for scope, workflows, status in (("read", None, 200), ("event", None, 403), ("read", ("flow",), 404)):
        async with served.client(await served.key(scope, workflows=workflows)) as keyed:
            assert (await keyed.get("/v1/runs/r/replay")).status_code == status
