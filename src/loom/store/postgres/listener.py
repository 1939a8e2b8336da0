"""Hearing what other processes have written. May import the connections beside it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from loom.store.errors import StoreUnavailable
from loom.store.loop_time import hold, until_look
from loom.store.postgres.connections import close_quietly, told_as_store_errors
from loom.store.postgres.driver import FAILURES, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.postgres.connections import Connections
    from loom.store.postgres.driver import Connection

_log = logging.getLogger("loom.store")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LOOK_EVERY = 30.0
"""A connection that has silently died is noticed after so many seconds."""

_run_ids = msgspec.json.Decoder(list[str]).decode


class Listener:
    """A connection that only listens, and comes back when it is lost."""

    def __init__(self, connections: Connections, on_news: Callable[[Sequence[str]], None]) -> None:
        self._connections = connections
        self._address = connections.address
        self._on_news = on_news
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen from now on."""
        await self._listen()
        self._task = asyncio.create_task(self._stay(), name="loom news")

    async def stop(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._connection is not None:
            await close_quietly(self._connection)

    async def _listen(self) -> None:
        lost = asyncio.Event()
        with told_as_store_errors(self._address):
            connection = self._connection = await self._connections.connect()
            connection.add_termination_listener(lambda _: lost.set())
            with hold():
                await connection.add_listener(self._address.channel, self._hear)
        self._lost = lost

    def _hear(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        # What this store has written itself, it has told already.
        if pid not in self._connections.pids:
            self._on_news(_run_ids(str(payload)))

    async def _stay(self) -> None:
        while True:
            await self._until_lost()
            await self._listen_again()
            # Nobody knows what was told meanwhile. A listener that raises must not end this task.
            asyncio.get_running_loop().call_soon(self._on_news, [])

    async def _until_lost(self) -> None:
        while not self._lost.is_set():
            if not await until_look(_LOOK_EVERY, self._lost.wait()):
                await self._look()

    async def _look(self) -> None:
        assert self._connection is not None
        try:
            with hold():
                async with asyncio.timeout(PATIENCE):
                    await self._connection.execute("SELECT 1")
        except FAILURES as error:
            _log.warning("The connection for news does not answer: %s", error)
            self._connection.terminate()
            self._lost.set()

    async def _listen_again(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._listen()
            except StoreUnavailable as error:
                _log.warning("No news until the database is back: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
