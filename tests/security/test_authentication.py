"""Authentication: every route is closed by default; health paths are exact; keys are scoped and compared in full."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import pytest
from server_serving import Served, serving

from loom.server import auth
from loom.server.app import ROUTES
from loom.server.auth import SCOPES

OPEN = {"/health", "/v1/health/live", "/v1/health/ready", "/openapi.json", "/v1/session"}
"""What is open to everybody. A callback is open to whoever has its signed address."""
CALLBACK = "/callbacks/"
TRICKS = [
    "/v1/runs/health",
    "/v1/runs/x/health",
    "/v1/health/../runs",
    "/v1/health/live/../../runs",
    "/v1/health/live/..%2f..%2fruns",
    "/v1/health/%2e%2e/runs",
    "/v1/health/live/",
    "/v1/health/live;/v1/runs",
    "/v1/health/live%2f..%2f..%2fruns",
    "/v1/runs?x=/v1/health/live",
    "/v1/runs#/health",
    "//health",
    "/health/",
    "/HEALTH",
    "/Health",
    "/health/../handlers",
    "/health%00",
    "/./v1/runs",
    "//v1/runs",
    "/v1//runs",
    "/V1/runs",
    "/v1/runs/",
    "/openapi.json/../v1/runs",
    "/metrics/",
    "/handlers/health",
    "/results/health",
    "/events/health",
    "/workflows/health/schema",
]


def concrete(path: str) -> str:
    for name in ("run_id", "name", "handler_id", "schedule_id"):
        path = path.replace(f"{{{name}}}", "x")
    return path.replace("{", "").replace("}", "")


def is_open(path: str) -> bool:
    return path in OPEN or CALLBACK in path


async def asked(served: Served, method: str, path: str, key: str | None) -> int:
    """The status of an answer to a path that is sent as it is written."""
    sent: list[int] = []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])
    answered = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if message := next(messages, None):
            return message
        await answered.wait()  # the caller leaves with the status: some streams have no end of their own
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])
            answered.set()

    from urllib.parse import unquote

    raw, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1")] + ([(b"authorization", f"Bearer {key}".encode())] if key else [])
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await served.app(scope, receive, send)  # type: ignore[arg-type]
    return sent[0]


def test_only_what_is_listed_is_open() -> None:
    unscoped = {route.path for route in ROUTES if route.scope is None}
    assert {path for path in unscoped if not is_open(path)} == set()
    assert {"/health", "/v1/health/live", "/v1/health/ready"} <= unscoped


async def test_every_route_needs_a_key_and_its_scope() -> None:
    async with serving() as served:
        keys = {scope: await served.key(scope) for scope in SCOPES}
        for route in ROUTES:
            if is_open(route.path):
                continue
            path = concrete(route.path)
            assert await asked(served, route.method, path, None) == 401, route.path
            for scope, key in keys.items():
                status = await asked(served, route.method, path, key)
                may = scope in (route.scope, "admin")
                assert (status != 403) == may, (route.method, path, scope, status)
                assert status != 401, (route.method, path, scope)


async def test_purge_on_the_compatible_route_needs_admin() -> None:
    async with serving() as served, served.client(await served.key("start")) as client:
        assert (await client.post("/handlers/x/cancel?purge=true")).status_code == 403


@pytest.mark.parametrize("path", TRICKS)
async def test_no_trick_with_a_path_opens_anything(path: str) -> None:
    async with serving(require_key=True) as served:
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
            status = await asked(served, method, path, None)
            assert status in (401, 403, 404, 405), (method, path, status)


async def test_a_head_request_needs_what_a_get_request_needs() -> None:
    async with serving() as served:
        key = await served.key("event")
        assert await asked(served, "HEAD", "/v1/runs", None) == 401
        assert await asked(served, "HEAD", "/v1/runs", key) == 403


async def test_other_protocols_than_http_are_not_spoken() -> None:
    async with serving(require_key=True) as served:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/v1/runs", "headers": [], "query_string": b""}
        await served.app(scope, receive, send)  # type: ignore[arg-type]
        assert not [message for message in sent if message["type"] == "websocket.accept"]


async def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def watched(one: Any, other: Any) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(watched)

    monkeypatch.setattr(auth, "hmac", Watched)
    async with serving() as served:
        key = await served.key("read")
        for tried in (key, key[:-1] + ("a" if key[-1] != "a" else "b"), f"loom_{'0' * 12}_{'A' * 43}", "short"):
            async with served.client(tried) as client:
                await client.get("/v1/runs")
        # Also for keys that are not known at all, and always over digests of one length.
        assert compared == [(64, 64)] * 4


async def test_a_key_in_two_headers_or_many_does_not_confuse_who_asks() -> None:
    async with serving() as served:
        good = await served.key("read")
        async with served.client(good, X_API_Key="nonsense") as client:
            assert (await client.get("/v1/runs")).status_code == 200
        async with served.client("nonsense", X_API_Key=good) as client:
            assert (await client.get("/v1/runs")).status_code == 401
        async with served.client(Authorization=f"Basic {good}") as client:
            assert (await client.get("/v1/runs")).status_code == 401
        async with served.client(Cookie=f"key={good}; loom={good}") as client:
            assert (await client.get("/v1/runs")).status_code == 401


async def test_without_keys_a_stranger_gets_no_route_at_all() -> None:
    async with serving() as served:
        for route in ROUTES:
            if is_open(route.path):
                continue
            async with served.client(address="10.1.2.3") as client:
                answer = await client.request(route.method, concrete(route.path))
            assert answer.status_code == 403, (route.method, route.path)
