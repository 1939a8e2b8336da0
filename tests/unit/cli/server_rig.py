"""A real server on loopback, in a thread of its own, for commands that are run one after another here."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli_rig import DOUBLE, ORDER, STORE, data, good

from loom.cli.targets import load_handlers, named_workflows
from loom.runtime.connect import connect
from loom.server.app import create_app
from loom.server.auth import Scope, new_key
from loom.server.http_server import bind, serving
from loom.server.settings import ServerSettings

FLOWS = ("nested.json", "secret.json", "retried.json")


class Serving:
    """A server of the shop and of some flows on the store that the tests of commands use."""

    def __init__(self) -> None:
        self.url = ""
        self._keys: Any = None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[Serving]:
        """The server, until the block ends."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        assert self._ready.wait(60)
        if self._failure is not None:
            raise self._failure
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(60)
            self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        load_handlers(["flow_handlers.py"])
        async with connect(STORE) as runtime:
            for name, workflow in named_workflows((ORDER, DOUBLE, *FLOWS)).items():
                runtime.register(workflow, name=name)
            await runtime.ready()
            app = create_app(runtime, ServerSettings(page=3))  # so that there are many pages
            self._keys = app.state.server.keys
            async with serving(app, await bind("127.0.0.1", 0)) as server:
                self.url = server.url
                self._ready.set()
                await self._stop.wait()

    def key(self, *scopes: Scope) -> str:
        """A new key; from now on the server asks for one."""
        key, stored = new_key(scopes)
        asyncio.run_coroutine_threadsafe(self._keys.add(stored), self._loop).result(60)
        return key

    def begun(self, run_id: str, workflow: str = "Order", *arguments: str) -> None:
        """A run that was started over HTTP and waits for something now."""
        self.good("workflow", "start", workflow, "--run-id", run_id, *arguments)
        self.until(run_id, "running")

    def until(self, run_id: str, status: str) -> None:
        """Look until a run has ended in a status, or is at rest if it is to go on running."""
        deadline = time.monotonic() + 60
        while True:
            run = self.data("workflow", "status", run_id)
            if run["status"] == status and (status != "running" or run["idle_since"] or run["timers"]):
                return
            assert time.monotonic() < deadline, run

    def good(self, *arguments: str) -> str:
        """What a command over HTTP printed that must succeed."""
        return good(*arguments, "--url", self.url)

    def data(self, *arguments: str) -> Any:
        """What a command over HTTP says with --json."""
        return json.loads(self.good(*arguments, "--json"))

    def both(self, *arguments: str) -> tuple[str, str]:
        """What a command prints over the store, and over the server."""
        return good(*arguments, "--store", STORE), self.good(*arguments)

    def both_data(self, *arguments: str) -> tuple[Any, Any]:
        """The same for programs."""
        return data(*arguments, "--store", STORE), self.data(*arguments)
