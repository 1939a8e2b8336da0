"""A server on SQLite in a thread of its own, with workflows of each kind and runs in each status, to be fuzzed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import compat_server

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import Keys, Scope, new_key
from loom.server.http_server import bind, serving
from loom.server.settings import ServerSettings
from loom.server.waits import wait_for_end

WORKFLOWS = ("greet", "count", "ask", "await", "break", "flow", "loop", "answers")
ENDING = ("greet", "count", "break", "flow", "answers")
"""Those whose runs end by themselves, whatever they are given."""
COPIES = 3
"""Of each kind of run there are so many, for some requests end or delete one."""
SCHEDULES = ("nightly", "hourly")

_LOOP: dict[str, Any] = {
    "definition": {
        "actions": {
            "Again": {
                "type": "Until",
                "expression": "@equals(outputs('Asked')?['n'], 2)",
                "limit": {"count": 5, "timeout": "PT1H"},
                "actions": {"Asked": {"type": "waitForEvent", "inputs": {"event": "Go"}}},
                "runAfter": {},
            }
        }
    }
}
_ANSWERS: dict[str, Any] = {
    "definition": {
        "triggers": {"manual": {"type": "Request", "kind": "Http", "inputs": {}}},
        "actions": {
            "Response": {"type": "Response", "inputs": {"statusCode": 200, "body": {"ok": True}}, "runAfter": {}}
        },
    }
}
DOCUMENTS = (_LOOP, _ANSWERS, {"definition": {"actions": {"Bad": {"type": "Until"}}}}, {})
"""Definitions, good ones and bad ones."""
STORED = "stored"
"""The name of a definition that is put and deleted."""


class FuzzedServer:
    """Where the server is, and what is there to be found."""

    def __init__(self, url: str, keys: Keys) -> None:
        self.url = url
        self.running = [f"{kind}-{number}" for kind in ("waiting", "looping", "paused") for number in range(COPIES)]
        self.ended = [
            f"{kind}-{number}" for kind in ("done", "failed", "cancelled", "flow") for number in range(COPIES)
        ]
        self.loop = asyncio.get_running_loop()
        self._keys = keys

    def key(self, *scopes: Scope) -> str:
        """A new key. From the first one on, every request needs one."""
        return asyncio.run_coroutine_threadsafe(self._key(scopes), self.loop).result(60)

    async def _key(self, scopes: tuple[Scope, ...]) -> str:
        key, stored = new_key(scopes)
        await self._keys.add(stored)
        return key


@contextmanager
def fuzzed_server(folder: Path) -> Iterator[FuzzedServer]:
    """The server, until the block ends."""
    started, found, stop = threading.Event(), list[Any](), asyncio.Event()

    async def serve() -> None:
        async with loom.connect(f"sqlite:///{folder}/fuzzed.db", idle_timeout=0.5, definitions=True) as runtime:
            _register(runtime)
            await _seed(runtime)
            app = create_app(runtime, ServerSettings(max_wait=0.05, heartbeat=0.5, drain=1.0))
            async with serving(app, await bind("127.0.0.1", 0)) as server:
                found.append(FuzzedServer(server.url, app.state.server.keys))
                started.set()
                await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found.append(error)
            raise
        finally:
            started.set()

    logging.getLogger("loom").setLevel(logging.CRITICAL)  # refusals by the hundred are what is wanted here
    thread = threading.Thread(target=run, name="fuzzed server")
    thread.start()
    started.wait(60)
    try:
        if not isinstance(found[0], FuzzedServer):
            raise RuntimeError("The server did not start.") from found[0]
        yield found[0]
    finally:
        if isinstance(found[0], FuzzedServer):
            found[0].loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        logging.getLogger("loom").setLevel(logging.NOTSET)


def _register(runtime: DurableRuntime) -> None:
    compat_server.register_all(runtime)
    runtime.register(loom.load(_LOOP, name="loop"), "loop")
    runtime.register(loom.load(_ANSWERS, name="answers"), "answers")


async def _seed(runtime: DurableRuntime) -> None:
    """Runs in each status, and schedules."""
    for number in range(COPIES):
        await runtime.start("greet", {"name": "World"}, run_id=f"done-{number}")
        await runtime.start("break", {}, run_id=f"failed-{number}")
        await runtime.start("flow", {"name": "World"}, run_id=f"flow-{number}")
        for kind in ("waiting", "paused", "cancelled"):
            await runtime.start("ask", {}, run_id=f"{kind}-{number}")
        await runtime.start("loop", {}, run_id=f"looping-{number}")
        await runtime.pause(f"paused-{number}")
        await runtime.cancel(f"cancelled-{number}")
    for number in range(COPIES):
        for kind in ("done", "failed", "cancelled", "flow"):
            await wait_for_end(runtime, f"{kind}-{number}", 10.0)
    for name in SCHEDULES:
        await runtime.schedule(name, "greet", every=86400.0, input={"name": "Night"})
