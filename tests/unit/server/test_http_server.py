"""A server on a loopback port: where it may be, what it takes, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from server_serving import Approval, Asks

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import Keys, new_key
from loom.server.http_server import CannotListen, HttpServer, NeedsKey, bind, check_keys, serving
from loom.server.settings import ServerSettings


@pytest.fixture
async def runtime() -> AsyncIterator[DurableRuntime]:
    async with loom.connect("memory://") as runtime:
        runtime.register(Asks(), name="asks")
        yield runtime


@pytest.fixture(params=["h11_impl.H11Protocol", "httptools_impl.HttpToolsProtocol"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of uvicorn's protocols, as far as it is installed."""
    module, _, name = request.param.partition(".")
    found = pytest.importorskip(f"uvicorn.protocols.http.{module}", exc_type=ImportError)
    monkeypatch.setattr("loom.server.http_server.AutoHTTPProtocol", getattr(found, name))


@asynccontextmanager
async def open_server(runtime: DurableRuntime, **settings: Any) -> AsyncIterator[HttpServer]:
    app = create_app(runtime, ServerSettings(**settings))
    async with serving(app, await bind("127.0.0.1", 0)) as server:
        yield server


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def answer_to(server: HttpServer, request: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await connect(server)
    writer.write(request)
    async with asyncio.timeout(60):
        found = await reader.read()
    writer.close()
    return found


async def waiting(client: httpx2.AsyncClient, runtime: DurableRuntime, run_id: str) -> None:
    """A run that waits for its approval."""
    body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": run_id}
    assert (await client.post("/v1/runs", json=body)).status_code == 201
    async with asyncio.timeout(60):
        while (await runtime.get(run_id)).idle_since is None:  # noqa: ASYNC110 - a store is asked, and tells nobody
            await asyncio.sleep(0.005)


# -- what it takes ----------------------------------------------------------------------------------------------------


async def test_a_client_is_who_it_is_whatever_its_headers_say(runtime: DurableRuntime) -> None:
    async with open_server(runtime) as server, httpx2.AsyncClient(base_url=server.url) as client:
        for headers in ({}, {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}):
            answer = await client.get("/v1/runs", headers=headers)
            assert answer.status_code == 200, answer.text
            assert "server" not in answer.headers


@pytest.mark.usefixtures("protocol")
async def test_the_head_of_a_request_must_come_in_time(runtime: DurableRuntime) -> None:
    async with open_server(runtime, arrival_timeout=0.1) as server:
        assert await answer_to(server, b"") == b""
        assert await answer_to(server, b"GET /health HTTP/1.1\r\nHost: local") == b""
        # Between requests a connection may be silent for longer; the head of the next one may not come bit by bit.
        reader, writer = await connect(server)
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.15)
        writer.write(b"GET /health HTTP/1.1\r\n")
        async with asyncio.timeout(60):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
        writer.close()


@pytest.mark.usefixtures("protocol")
async def test_heads_and_connections_have_a_limit(runtime: DurableRuntime) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    async with open_server(runtime, max_header=1000, max_body=10000, max_connections=2) as server:
        assert (await answer_to(server, head + b"\r\n")).startswith(b"HTTP/1.1 200")
        assert b" 400 " in (await answer_to(server, head + b"X: " + b"x" * 2000)).splitlines()[0]
        # The rest of a body that was refused is not taken for a head.
        reader, writer = await connect(server)
        writer.write(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10500\r\n\r\n")
        assert b" 413 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 10500 + head + b"\r\n")
        assert b"HTTP/1.1 200" in await reader.read()
        writer.close()
        _, first = await connect(server)
        assert b" 503 " in (await answer_to(server, head + b"\r\n")).splitlines()[0]
        first.close()


async def test_streams_end_with_the_key_that_opened_them(
    runtime: DurableRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.server.waits.KEYS_S", 0.02)
    now = runtime.now()
    keys = {name: new_key(("admin",), name=name, now=now) for name in ("first", "second")}
    async with open_server(runtime) as server, httpx2.AsyncClient(base_url=server.url, timeout=10) as client:
        await waiting(client, runtime, "order-1")
        there = Keys(runtime.store)

        async def opened(key: str | None) -> httpx2.Response:
            headers = {"X-API-Key": key} if key is not None else {}
            return await client.send(
                client.build_request("GET", "/v1/runs/order-1/stream", headers=headers), stream=True
            )

        local = await opened(None)
        for _, stored in keys.values():
            await there.add(stored)
        first, second = [await opened(key) for key, _ in keys.values()]
        with pytest.raises(httpx2.RemoteProtocolError):  # a key is asked for by now
            await local.aread()
        await there.revoke(keys["first"][1].id)
        with pytest.raises(httpx2.RemoteProtocolError):
            await first.aread()
        await runtime.send_event("order-1", Approval(by="Ada"))
        assert b"tea by Ada" in await second.aread()


# -- how it stops -----------------------------------------------------------------------------------------------------


async def test_a_server_that_stops_breaks_streams_and_finishes_requests(
    runtime: DurableRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with httpx2.AsyncClient(timeout=10) as client:
        async with open_server(runtime) as server:
            client.base_url = server.url
            await waiting(client, runtime, "order-1")
            stream = await client.send(client.build_request("GET", "/v1/runs/order-1/stream"), stream=True)
            asking = asyncio.create_task(client.get("/v1/runs/order-1?wait=30"))
            while len(server.server_state.tasks) < 2:  # noqa: ASYNC110 - both requests must be there
                await asyncio.sleep(0.005)
            stopping = asyncio.create_task(server.shutdown())
            with pytest.raises(httpx2.RemoteProtocolError):
                await stream.aread()
            with pytest.raises(httpx2.ConnectError):
                await client.get("/health")
            assert not asking.done()
            await runtime.send_event("order-1", Approval(by="Ada"))
            answer = await asking
            assert answer.json()["result"]["value"]["text"] == "tea by Ada"
            await stopping
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_start_that_was_under_way_is_stored_and_answered(runtime: DurableRuntime) -> None:
    request = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = b'{"workflow": "asks", "input": {"topic": "tea"}, "run_id": "late"}'
    async with open_server(runtime) as server:
        reader, writer = await connect(server)
        writer.write(request + b"Content-Length: %d\r\n\r\n" % len(body))
        while not server.server_state.tasks:  # noqa: ASYNC110 - the request must be there
            await asyncio.sleep(0.005)
        stopping = asyncio.create_task(server.shutdown())
        await asyncio.sleep(0)
        writer.write(body)
        assert b" 201 " in await reader.readuntil(b"\r\n")
        writer.close()
        await stopping
    assert (await runtime.get("late")).status == "running"


async def test_what_takes_too_long_is_broken_off_without_an_answer(
    runtime: DurableRuntime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.server.http_server._LAST_WORDS_S", 0.05)
    async with httpx2.AsyncClient(timeout=10) as client:
        async with open_server(runtime, drain=0.05) as server:
            client.base_url = server.url
            await waiting(client, runtime, "order-1")
            start = {"start_event": {"topic": "tea"}}  # it has no other answer than the end
            asking = asyncio.create_task(client.post("/workflows/asks/run", json=start))
            while len([run async for run in runtime.list(idle=True)]) < 2:  # noqa: ASYNC110 - its run must be there, and wait
                await asyncio.sleep(0.005)
        with pytest.raises(httpx2.TransportError):
            await asking
    found = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert found == ["The server stops. Requests that were not finished: 1."]
    assert (await runtime.get("order-1")).status == "running"


# -- where it may be --------------------------------------------------------------------------------------------------


async def test_without_a_key_it_is_for_this_machine_only(runtime: DurableRuntime) -> None:
    shared = create_app(runtime).state.server
    behind_proxy = create_app(runtime, ServerSettings(hosts=("localhost", "loom.example.com"))).state.server
    there = {host: await bind(host, 0) for host in ("127.0.0.1", "0.0.0.0", "localhost")}
    await check_keys([*there["127.0.0.1"], *there["localhost"]], shared)
    with pytest.raises(NeedsKey, match=r"0\.0\.0\.0 is open to others.*loom keys create"):
        await check_keys(there["0.0.0.0"], shared)
    with pytest.raises(NeedsKey, match=r"loom\.example\.com is open to others"):
        await check_keys(there["127.0.0.1"], behind_proxy)
    await check_keys(there["0.0.0.0"], create_app(runtime, ServerSettings(require_key=True)).state.server)
    _, stored = new_key(("read",))
    await shared.keys.add(stored)
    await check_keys(there["0.0.0.0"], shared)
    for bound in there.values():
        for each in bound:
            each.close()


async def test_places_where_it_cannot_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"Port {port} of 127.0.0.1 is in use"):
            await bind("127.0.0.1", port)
    with pytest.raises(CannotListen, match=r"no address 192\.0\.2\.1"):
        await bind("192.0.2.1", 0)
    with pytest.raises(CannotListen, match=r"'nowhere\.invalid' is not known"):
        await bind("nowhere.invalid", 0)


async def test_a_port_that_is_taken_after_it_was_bound(runtime: DurableRuntime) -> None:
    sockets = await bind("127.0.0.1", 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(sockets[0].getsockname())
        other.listen()
        with pytest.raises(CannotListen, match="cannot be served"):
            async with serving(create_app(runtime), sockets):
                pass
    sockets[0].close()


@pytest.mark.usefixtures("protocol")
async def test_who_asks_for_a_socket_does_not_fill_the_log(
    runtime: DurableRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_server(runtime) as server:
        asked = b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        answer = await answer_to(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + asked)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert caplog.records == []
