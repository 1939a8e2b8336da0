"""SSRF: a flow that comes through the API reaches no address that is not public, whatever it is called or leads to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

import loom
from loom.server.app import create_app

FLOW: dict[str, Any] = {
    "definition": {
        "triggers": {"manual": {"type": "Request"}},
        "actions": {
            "Fetch": {
                "type": "Http",
                "inputs": {
                    "method": "GET",
                    "uri": "@triggerBody()?['uri']",
                    "headers": {"Authorization": "Bearer k3y-for-first", "Cookie": "k3y-too"},
                },
                "retryPolicy": {"type": "none"},
                "runAfter": {},
            }
        },
        "outputs": {"body": {"type": "String", "value": "@string(body('Fetch'))"}},
    }
}

INNER = [
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]:{port}/",
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://localhost:{port}/",
    "http://localhost.:{port}/",
    "http://LOCALHOST:{port}/",
    "http://public.example@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@public.example/",
    "http://10.0.0.1/",
    "http://192.168.0.1/",
    "http://100.100.100.200/latest/meta-data/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x",
    "unix:///var/run/docker.sock",
]


class Inner:
    """A service inside, which notes who reached it and can send others elsewhere."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.redirect: str | None = None
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head.decode())
        status = f"302 Found\r\nLocation: {self.redirect}" if self.redirect else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def inner_service() -> AsyncIterator[Inner]:
    found = Inner()
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


@asynccontextmanager
async def api(**options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """The front door of a server with the flow."""
    async with loom.connect(**options) as runtime:
        runtime.register(loom.load(FLOW), name="fetch")
        transport = httpx2.ASGITransport(app=create_app(runtime), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            yield client


async def fetched(client: httpx2.AsyncClient, uri: str) -> dict[str, Any]:
    answer = await client.post("/v1/runs?wait=20", json={"workflow": "fetch", "input": {"uri": uri}})
    assert answer.status_code == 201, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def test_no_address_inside_is_reached_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_HTTP_ALLOW", raising=False)
    async with inner_service() as inner, api() as client:
        for form in INNER:
            run = await fetched(client, form.format(port=inner.port))
            assert run["status"] == "failed", (form, run)
            assert "inside" not in json.dumps(run), form
        assert inner.requests == []


async def test_a_name_that_means_an_address_inside_is_judged_by_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def rebound(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        wanted = "127.0.0.1" if host in ("public.example", b"public.example") else host
        return resolve(wanted, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    monkeypatch.delenv("LOOM_HTTP_ALLOW", raising=False)
    async with inner_service() as inner, api() as client:
        run = await fetched(client, f"http://public.example:{inner.port}/")
        assert run["status"] == "failed"
        assert "refused" in run["error"]["message"]
        assert inner.requests == []


async def test_a_redirect_is_checked_again_and_brings_no_credentials_along() -> None:
    async with inner_service() as first, inner_service() as second:
        async with api(http_allow=[f"127.0.0.1:{first.port}"]) as client:
            for target in (f"http://127.0.0.1:{second.port}/", "http://169.254.169.254/", "http://[::ffff:127.0.0.1]/"):
                first.redirect = target
                run = await fetched(client, f"http://127.0.0.1:{first.port}/")
                assert run["status"] == "failed", target
                assert "inside" not in json.dumps(run["result"])
            assert second.requests == []
        allowed = [f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"]
        async with api(http_allow=allowed) as client:
            first.redirect = f"http://127.0.0.1:{second.port}/"
            run = await fetched(client, f"http://127.0.0.1:{first.port}/")
            assert run["status"] == "completed", run
            assert "k3y-for-first" in first.requests[-1]
            [request] = second.requests
            assert "k3y" not in request
