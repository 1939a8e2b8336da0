"""One server on the loopback that stands for all hosts of the world, and a client whose requests all go there.

The client is the real one behind its guard, with one more transport in front: it sends every request to the loopback,
with the host it was meant for and the action that asks in headers, one after the other so that each run of a flow sees
the same order. While a request is under way the virtual clock stands still.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from loom.effects.actions import http_client
from loom.effects.actions.ssrf import ENVIRONMENT_VARIABLE
from loom.steps.ports import current_execution
from loom.testing import VirtualLoop


@dataclass(frozen=True)
class Request:
    """What the server was asked."""

    action: str
    method: str
    host: str
    path: str
    """With its query."""
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What it answers: data as JSON, a text or bytes."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


class World:
    """The server. `answer` may be set to any function from a request to a reply."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answer: Callable[[Request], Reply] = lambda _request: Reply({})
        self.port = 0

    def reply(self, request: Request) -> Reply:
        self.asked.append(request)
        if request.path.endswith("/oauth2/token"):
            return Reply({"access_token": "token", "token_type": "Bearer"})
        return self.answer(request)

    def asked_by(self, action: str) -> list[Request]:
        return [request for request in self.asked if request.action == action]


class Redirected(httpx2.AsyncBaseTransport):
    """Sends everything to the loopback."""

    def __init__(self, real: httpx2.AsyncBaseTransport, port: int) -> None:
        self._real = real
        self._port = port
        self._turn = asyncio.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async with self._turn:
            execution = current_execution()
            asked_by = execution.command.item.event.body.action if execution is not None else ""  # type: ignore[attr-defined]
            headers = {**request.headers, "X-Host": request.url.host, "X-Asked-By": asked_by.encode().hex()}
            url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
            loop = asyncio.get_running_loop()
            with loop.hold() if isinstance(loop, VirtualLoop) else nullcontext():
                content = await request.aread()
                response = await self._real.handle_async_request(
                    httpx2.Request(request.method, url, headers=headers, content=content)
                )
                body = await response.aread()
            return httpx2.Response(response.status_code, headers=response.headers.raw, stream=httpx2.ByteStream(body))

    async def aclose(self) -> None:
        await self._real.aclose()


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            action = bytes.fromhex(self.headers.get("X-Asked-By", "")).decode()
            host = self.headers.get("X-Host", "")
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = world.reply(Request(action, self.command, host, self.path, headers, body))
            self.send_response_only(reply.status)  # without the time, which no two answers have in common
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.data)))
            self.end_headers()
            self.wfile.write(reply.data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    return Handler


@contextmanager
def loopback_world() -> Iterator[World]:
    """The server, and the client that leads there, for as long as this lasts."""
    world = World()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(world)) as listener, pytest.MonkeyPatch.context() as patch:
        listener.daemon_threads = True
        world.port = listener.server_address[1]
        make_client = http_client.make_client

        def redirected(policy: Any, *args: Any) -> httpx2.AsyncClient:
            client = make_client(policy, *args)
            client._transport = Redirected(client._transport, world.port)
            return client

        patch.setattr(http_client, "make_client", redirected)
        patch.setenv(ENVIRONMENT_VARIABLE, "127.0.0.1")
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield world
        finally:
            listener.shutdown()
            thread.join()
