"""The front door: requests as bytes on a socket, as no client would send them, to the server as it is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from server_serving import Served
from server_serving import serving as served_in_memory

from loom.server.app import create_app
from loom.server.http_server import HttpServer, NeedsKey, bind, check_keys, serving
from loom.server.settings import ServerSettings

TARGETS = [
    "/v1/health/../runs",
    "/v1/health/live/../../runs",
    "/v1/health/%2e%2e/runs",
    "/v1/health/live%2f..%2f..%2fruns",
    "//health",
    "/health/../v1/runs",
    "/health%20",
    "/health?/v1/runs&x=/..",
    "http://127.0.0.1/v1/runs",
    "http://evil.example/health/../v1/runs",
    "/v1/runs\\..\\health",
    "/v1/runs;health",
    "*",
]


@asynccontextmanager
async def door(**settings: Any) -> AsyncIterator[tuple[Served, HttpServer]]:
    """A server on a port of this machine that asks for keys."""
    async with served_in_memory() as served:
        app = create_app(served.runtime, ServerSettings(**settings))
        async with serving(app, await bind("127.0.0.1", 0)) as server:
            yield served, server


async def answers(server: HttpServer, request: bytes) -> list[int]:
    """The statuses of all answers to some bytes."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(60):
        try:
            found = await reader.read()
        except ConnectionError:
            found = b""
    writer.close()
    return [int(part.split()[1]) for part in found.split(b"\n") if part.startswith(b"HTTP/1.")]


def request(target: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_no_target_opens_anything() -> None:
    async with door(require_key=True) as (_, server):
        for target in TARGETS:
            for status in await answers(server, request(target)):
                assert status in (400, 401, 403, 404, 405) or target.startswith("/health?"), (target, status)
        assert await answers(server, request("/health")) == [200]
        assert await answers(server, request("/v1/runs")) == [401]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /v1/runs HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /v1/runs HTTP/1.0\r\n\r\n",
        b"GET /v1/runs\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost : 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /v1/runs HTTP/9.9\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=range(8),
)
async def test_a_request_without_one_good_host_gets_nothing(raw: bytes) -> None:
    async with door() as (_, server):
        assert all(400 <= status < 500 for status in await answers(server, raw))


async def test_no_request_is_smuggled_behind_another() -> None:
    hidden = b"DELETE /v1/runs/r HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    start = {"workflow": "asks", "run_id": "r", "input": {"topic": "now"}}
    for headers in (
        (f"Content-Length: {len(hidden)}", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Content-Length: 0", f"Content-Length: {len(hidden)}"),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: xchunked",),
        ("Content-Length: +5",),
        ("Content-Length: -1",),
    ):
        async with door() as (served, server), served.client() as client:
            await client.post("/v1/runs?wait=5", json=start)
            attack = request("/v1/runs", *headers, method="POST", body=b"0\r\n\r\n" + hidden)
            statuses = await answers(server, attack.replace(b"Connection: close\r\n", b""))
            assert 204 not in statuses, headers
            assert (await client.get("/v1/runs/r")).status_code == 200, headers


async def test_headers_without_end_are_given_up() -> None:
    async with door(max_header=4096, arrival_timeout=0.3) as (_, server):
        many = "".join(f"X-{number}: {'x' * 50}\r\n" for number in range(1000))
        statuses = await answers(server, f"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}".encode())
        assert all(400 <= status < 500 for status in statuses)
        assert all(400 <= status < 500 for status in await answers(server, b"GET /health HTTP/1.1\r\nHost: 127"))


async def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    async with door(max_body=1000) as (_, server):
        chunks = b"3e8\r\n" + b" " * 1000 + b"\r\n"
        whole = request("/v1/runs", "Transfer-Encoding: chunked", "Content-Type: application/json", method="POST")
        assert await answers(server, whole + chunks * 50 + b"0\r\n\r\n") == [413]
        told = request("/v1/runs", "Content-Length: 99999999999999999999", method="POST")
        assert all(status in (400, 413) for status in await answers(server, told + b" " * 5000))


async def test_without_keys_only_this_machine_is_served() -> None:
    async with served_in_memory() as served:
        for host in ("0.0.0.0", "::"):
            sockets = await bind(host, 0)
            try:
                with pytest.raises(NeedsKey):
                    await check_keys(sockets, served.server)
            finally:
                for each in sockets:
                    each.close()
        sockets = await bind("127.0.0.1", 0)
        await check_keys(sockets, served.server)
        for each in sockets:
            each.close()


async def test_who_is_on_this_machine_is_not_told_by_headers() -> None:
    async with served_in_memory() as served, served.client(address="10.0.0.1") as client:
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "CF-Connecting-IP"):
            value = "for=127.0.0.1" if name == "Forwarded" else "127.0.0.1"
            assert (await client.get("/v1/runs", headers={name: value})).status_code == 403, name
