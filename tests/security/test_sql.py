"""SQL in filters: names are allow-listed, values and keys of tags are parameters; nothing becomes a statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from postgres_server import fresh_database_url
from server_serving import Served, serving

from loom.server.auth import KEYS

ATTACKS = [
    "' OR '1'='1",
    "' OR 1=1 --",
    '" OR ""="',
    "x'; DROP TABLE runs; --",
    "x') UNION SELECT sql FROM sqlite_master --",
    "$.a') OR json_extract(tags, '$.b",
    "a' || (SELECT hash FROM entries) || '",
    "%",
    "_",
    "*",
    "\\",
    "../..",
]


@pytest.fixture(params=["sqlite", "postgres"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server on either database, with one run."""
    url = f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else fresh_database_url()
    async with serving(url) as found, found.client() as client:
        body = {"workflow": "asks", "run_id": "r", "input": {"topic": "tea"}, "tags": {"team": "red"}}
        assert (await client.post("/v1/runs", json=body)).status_code == 201
        await found.until_waiting("r")
        yield found


async def test_values_of_filters_are_only_values(served: Served) -> None:
    async with served.client() as client:
        for attack in ATTACKS:
            await _try(client, attack)
        assert [run["run_id"] for run in (await client.get("/v1/runs?tag=team=red")).json()["items"]] == ["r"]


async def _try(client: httpx2.AsyncClient, attack: str) -> None:
    for name in ("workflow", "waiting_for", "status", "parent_id", "order", "cursor", "created_after", "idle"):
        answer = await client.get("/v1/runs", params={name: attack})
        assert answer.status_code == 400 or answer.json()["items"] == [], (name, answer.text)
    for tag in (f"team={attack}", f"{attack}=red", f"team'{attack}=red", f'team"={attack}'):
        answer = await client.get("/v1/runs", params={"tag": tag})
        assert answer.status_code == 400 or answer.json()["items"] == [], (tag, answer.text)
    for name in ("status", "workflow_name"):
        assert (await client.get("/handlers", params={name: attack})).json()["handlers"] == []
    assert (await client.get("/handlers", params={"cursor": attack})).status_code == 400
    for path in ("/handlers/", "/results/", "/events/"):
        assert (await client.get(path + httpx2.URL("/", params={"a": attack}).query.decode())).status_code == 404


async def test_names_of_filters_are_known_or_refused(served: Served) -> None:
    async with served.client() as client:
        for name in ("tags->>'team'", "1=1;--", "head", "owner", "status'", "tag[]", "limit;", "sql"):
            answer = await client.get("/v1/runs", params={name: "x"})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), name


async def test_tags_with_any_text_are_kept_and_found_as_they_are(served: Served) -> None:
    async with served.client() as client:
        for number, attack in enumerate(ATTACKS):
            body = {"workflow": "asks", "run_id": f"t{number}", "input": {"topic": "now"}, "tags": {attack: attack}}
            answer = await client.post("/v1/runs", json=body)
            assert answer.status_code == 201, (attack, answer.text)
            if "=" in attack:
                continue  # a filter ends the name at its first sign
            found = (await client.get("/v1/runs", params={"tag": f"{attack}={attack}"})).json()["items"]
            assert [run["run_id"] for run in found] == [f"t{number}"], attack


async def test_an_id_of_a_key_is_a_value_too(served: Served) -> None:
    key = await served.key("admin")
    for attack in ATTACKS:
        async with served.client(address="127.0.0.1", X_API_Key=f"loom_{attack[:12]}_{'A' * 43}") as client:
            assert (await client.get("/v1/runs")).status_code in (401, 429), attack
    assert len(await served.runtime.store.entries(KEYS)) == 1
    async with served.client(key, address="127.0.0.2") as client:
        assert (await client.get("/v1/runs")).status_code == 200
