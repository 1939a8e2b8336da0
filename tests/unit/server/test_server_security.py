"""Keys, hosts, origins and limits, one by one; tests/security attacks every route."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx2
import msgspec
import pytest
from server_serving import Served, serving

from loom.server.app import ROUTES
from loom.server.auth import KEYS, StoredKey, hash_of, is_loopback, new_key
from loom.server.call import read_json
from loom.server.settings import ServerSettings

START = {"workflow": "asks", "input": {"topic": "tea"}}


# -- keys -------------------------------------------------------------------------------------------------------------


async def test_wrong_keys_are_refused(served: Served) -> None:
    key = await served.key("admin")
    _, key_id, secret = key.split("_", 2)
    wrong = [
        "x",
        "loom_",
        f"loom_{key_id}_{'A' * 43}",
        f"loom_{'0' * 12}_{secret}",
        key + "x",
        key[:-1],
        key.upper(),
        hash_of(key),
        f"loom_{key_id}",
    ]
    for each in wrong:
        async with served.client(each) as client:
            assert (await client.get("/v1/runs")).status_code == 401, each
    async with served.client(key) as client:
        assert (await client.get("/v1/runs")).status_code == 200
    async with served.client(X_API_Key=key) as client:
        assert (await client.get("/v1/runs")).status_code == 200
    async with served.client() as client:
        assert (await client.get(f"/v1/runs?api_key={key}")).status_code == 401


async def test_a_wrong_key_is_refused_though_no_key_is_asked_for(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/runs", headers={"Authorization": "Bearer nonsense"})).status_code == 401


async def test_a_revoked_key_is_dead_and_the_server_does_not_open(served: Served) -> None:
    key, stored = new_key(("admin",))
    await served.server.keys.add(stored)
    gone = msgspec.structs.replace(stored, revoked_at=1.0)
    await served.runtime.store.put_entry(KEYS, stored.id, msgspec.json.encode(gone))
    async with served.client(key) as client, served.client() as nobody:
        assert (await client.get("/v1/runs")).status_code == 401
        assert (await nobody.get("/v1/runs")).status_code == 401


async def test_the_store_has_the_hash_of_a_key_only(served: Served) -> None:
    key = await served.key("read")
    [entry] = await served.runtime.store.entries(KEYS)
    assert key.encode() not in entry.data
    assert key.split("_", 2)[2].encode() not in entry.data
    assert msgspec.json.decode(entry.data, type=StoredKey).hash == hash_of(key)


async def test_keys_are_not_in_answers_or_logs(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    key = await served.key("read")
    caplog.set_level(logging.DEBUG)
    async with served.client(key) as client:
        answer = await client.post("/v1/runs", json=START)
    secret = key.split("_", 2)[2]
    assert answer.status_code == 403
    assert secret not in answer.text
    assert secret not in caplog.text


BODIES: dict[str, dict[str, object]] = {
    "events": {"type": "Approval", "value": {"by": "x"}},
    "fork": {"tick": 0},
    "tags": {"tags": {}},
}
"""What routes of one run must be sent, by the last part of their path."""


async def test_a_key_sees_its_workflows_only(served: Served) -> None:
    admin = await served.key("admin")
    key = await served.key("admin", workflows=("flow",))
    async with served.client(admin) as all_of_it, served.client(key) as client:
        await all_of_it.post("/v1/runs", json={**START, "run_id": "r"})
        await all_of_it.post("/v1/runs", json={"workflow": "flow", "run_id": "f"})
        assert [run["run_id"] for run in (await client.get("/v1/runs")).json()["items"]] == ["f"]
        assert (await client.get("/v1/runs?workflow=asks")).json()["items"] == []
        for name in ("asks", "nowhere"):
            assert (await client.post("/v1/runs", json={**START, "workflow": name})).status_code == 403
        for route in ROUTES:
            if route.path.startswith("/v1/runs/{run_id}"):
                path = route.path.replace("{run_id}", "r")
                last = path.rpartition("/")[2]
                sent = {"json": BODIES[last]} if last in BODIES else {}
                answer = await client.request(route.method, path, **sent)
                # An import has no run to hide: what is no export is refused first, whoever has the run.
                wanted = 400 if route.name == "importRun" else 404
                assert answer.status_code == wanted, (route.method, path, answer.text)


# -- without keys -----------------------------------------------------------------------------------------------------


async def test_without_keys_other_machines_are_refused(served: Served) -> None:
    for address in ("192.168.1.7", "8.8.8.8", "2001:db8::1", "testclient", "127.0.0.1.evil.com"):
        async with served.client(address=address) as client:
            assert (await client.get("/v1/runs")).status_code == 403, address
    for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        async with served.client(address=address) as client:
            assert (await client.get("/v1/runs")).status_code == 200, address


async def test_without_keys_a_foreign_host_is_refused(served: Served) -> None:
    for host in (
        "evil.com",
        "127.0.0.1.evil.com",
        "localhost.evil.com",
        "evil.com#localhost",
        "a@localhost",
        "0.0.0.0",
    ):
        async with served.client(Host=host) as client:
            assert (await client.get("/v1/runs")).status_code == 403, host
            assert (await client.get("/v1/health/live")).status_code == 403, host
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:99"):
        async with served.client(Host=host) as client:
            assert (await client.get("/v1/runs")).status_code == 200, host


async def test_pages_of_other_origins_are_refused(served: Served) -> None:
    for origin in ("https://evil.com", "null", "http://127.0.0.1.evil.com", "http://127.0.0.1:81", "https://127.0.0.1"):
        async with served.client(Origin=origin) as client:
            answer = await client.post("/v1/runs", json=START)
            assert answer.status_code == 403, origin
            assert "access-control-allow-origin" not in answer.headers
    async with served.client(Origin="http://127.0.0.1") as client:
        assert (await client.post("/v1/runs", json=START)).status_code == 201


async def test_cors_is_for_listed_origins_only() -> None:
    async with serving(origins=("https://ops.example.com",)) as served:
        async with served.client(Origin="https://ops.example.com") as client:
            answer = await client.get("/v1/runs")
            assert answer.headers["access-control-allow-origin"] == "https://ops.example.com"
            assert "access-control-allow-credentials" not in answer.headers
            asked = await client.options("/v1/runs", headers={"Access-Control-Request-Method": "POST"})
            assert (asked.status_code, "Origin" in asked.headers["vary"]) == (204, True)
        async with served.client(Origin="https://ops.example.com.evil.com") as client:
            assert (await client.get("/v1/runs")).status_code == 403


def test_any_origin_is_no_setting() -> None:
    for origin in ("*", "https://*", "ops.example.com", "https://ops.example.com/path", "ftp://x"):
        with pytest.raises(ValueError, match="is not an origin"):
            ServerSettings(origins=(origin,))


def test_what_is_loopback() -> None:
    assert not any(map(is_loopback, ("", "0.0.0.0", "localhost.", "LOCALHOST.example", "1", "::", "::ffff:10.0.0.1")))
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "[::1]")))


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_large_bodies_are_refused_with_and_without_a_length() -> None:
    async with serving(max_body=1000) as served, served.client() as client:
        large = json.dumps({**START, "input": {"topic": "x" * 1000}}).encode()
        assert (await client.post("/v1/runs", content=large)).json()["code"] == "too-large"

        async def pieces() -> Any:
            for _ in range(100):
                yield b" " * 100

        assert (await client.post("/v1/runs", content=pieces())).status_code == 413
        assert (await client.get("/v1/runs")).json()["items"] == []


async def test_large_headers_are_refused() -> None:
    async with serving() as served, served.client(X_Large="x" * 40_000) as client:
        assert (await client.get("/v1/runs")).status_code == 413


async def test_a_request_that_trickles_in_is_given_up() -> None:
    async with serving(arrival_timeout=0.05) as served, served.client() as client:

        async def slow() -> Any:
            yield b"{"
            await asyncio.sleep(30)
            yield b"}"

        async with asyncio.timeout(60):
            assert (await client.post("/v1/runs", content=slow())).status_code == 408


async def test_broken_json_is_refused(client: httpx2.AsyncClient) -> None:
    for body in (
        b"[" * 100_000,
        b'{"a":' * 70 + b"1" + b"}" * 70,
        b"{",
        b'"' + b'\\"' * 400_000,
        b"NaN",
        b'{"workflow": "asks", "workflow": "flow"}',
        b"\xff\xfe{}",
        '{"workflow":"asks"}'.encode("utf-16"),
        b'{"workflow": "\\ud800"}',
        b"1" * 5000,
        b"[]",
    ):
        async with asyncio.timeout(60):
            answer = await client.post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), body[:40]


def test_depth_is_not_counted_in_strings() -> None:
    assert read_json(b'["[[[[\\"[[["]', ServerSettings(max_depth=1)) == ['[[[["[[[']
    assert read_json(b"[[],[],[]]", ServerSettings(max_depth=2)) == [[], [], []]


async def test_other_media_types_are_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/v1/runs", content=b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")


async def test_ids_have_few_characters(client: httpx2.AsyncClient) -> None:
    for run_id in ("a b", "a/b", "../x", "a" * 201, "", "ä", "a\n", 7, {"$ne": 1}):
        answer = await client.post("/v1/runs", json={**START, "run_id": run_id})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), run_id
    assert (await client.get("/v1/runs/a%20b")).status_code == 400
    assert (await client.get("/v1/runs/x'%20OR%201=1")).status_code == 400


async def test_a_wait_is_not_longer_than_allowed() -> None:
    async with serving(max_wait=0.05) as served, served.client() as client:
        async with asyncio.timeout(60):
            answer = await client.post("/v1/runs?wait=9999", json=START)
        assert answer.json()["status"] == "running"
        assert (await client.get("/v1/runs?wait=1")).status_code == 400


# -- what is told -----------------------------------------------------------------------------------------------------


async def test_a_failure_of_the_server_tells_an_id_and_nothing_else(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(run_id: str) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(served.runtime, "row", broken)
    async with served.client(X_Request_ID="req-7") as client:
        answer = await client.get("/v1/runs/x")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text
    assert answer.headers["x-request-id"] == "req-7"
    assert "req-7" in caplog.text


async def test_request_ids_are_taken_over_only_if_they_are_harmless(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/runs", headers={"X-Request-ID": "abc-1"})).headers["x-request-id"] == "abc-1"
    made = (await client.get("/v1/runs", headers={"X-Request-ID": "a b"})).headers["x-request-id"]
    assert made != "a b"
    assert (await client.get("/v1/nowhere")).json()["request_id"]


async def test_a_store_that_is_gone_is_a_503(served: Served, client: httpx2.AsyncClient) -> None:
    from loom.store.errors import StoreUnavailable

    async def gone(run_id: str) -> None:
        raise StoreUnavailable("/secret/path/runs.db is full")

    served.runtime.store.get = gone  # type: ignore[method-assign,assignment]
    answer = await client.get("/v1/runs/x")
    assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
    assert "retry-after" in answer.headers
    assert "secret" not in answer.text
    ready = await client.get("/v1/health/ready")
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["store-unavailable"])
    assert (await client.get("/v1/health/live")).status_code == 200


async def test_unknown_routes_and_methods_are_problems(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/nowhere")).json()["code"] == "not-found"
    wrong = await client.patch("/v1/runs")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")
    assert set(wrong.headers["allow"].split(", ")) >= {"GET", "POST"}
    assert (await client.get("/nowhere")).json() == {"detail": "There is no such route."}
