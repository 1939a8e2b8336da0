"""A server in the process of the tests, for what `loom serve` is not told: a prefix, other workflows, many runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import Scope as KeyScope
from loom.server.auth import new_key
from loom.server.http_server import bind, url_of
from loom.server.settings import ServerSettings


class OwnServer:
    """A runtime with its server, and the address of its page."""

    def __init__(self, runtime: DurableRuntime, app: Any, url: str) -> None:
        self.runtime = runtime
        self.url = url
        self._server = app.state.server

    async def key(self, *scopes: KeyScope, name: str = "", workflows: tuple[str, ...] | None = None) -> str:
        """Make a key."""
        key, stored = new_key(scopes, name=name, workflows=workflows)
        await self._server.keys.add(stored)
        return key

    async def revoke(self, key: str) -> None:
        """Revoke a key, as `loom keys revoke` does."""
        await self._server.keys.revoke(key.split("_")[1])

    def break_streams(self) -> None:
        """End all streams, as a server does that stops."""
        self._server.open_streams.break_all()


Around = Callable[[ASGIApp], ASGIApp]
"""What stands between the browser and the app."""


def mounted(app: ASGIApp) -> ASGIApp:
    """Be an application that has the app below `/x/y`."""
    return Starlette(routes=[Mount("/x/y", app)])


def behind_proxy(app: ASGIApp) -> ASGIApp:
    """Be a proxy that takes `/x/y` away: the app does not know of it."""

    async def strip(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix("/x/y")
        assert path != scope["path"], f"The page has left its prefix: {scope['path']}"
        await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return strip


@asynccontextmanager
async def own_server(
    store: str = "memory://", *, works: dict[str, Any] | None = None, around: Around | None = None, **settings: Any
) -> AsyncIterator[OwnServer]:
    """Serve workflows by their names."""
    async with loom.connect(store, idle_timeout=1.0) as runtime:
        for name, work in (works or {}).items():
            runtime.register(work, name=name)
        app = create_app(runtime, ServerSettings(**settings))
        sockets = await bind("127.0.0.1", 0)
        config = uvicorn.Config(
            around(app) if around is not None else app,
            log_level="warning",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve(sockets))
        own = OwnServer(runtime, app, url_of(sockets[0]) + ("/x/y" if around is not None else ""))
        try:
            yield own
        finally:
            own.break_streams()
            server.should_exit = True
            await task
