"""Connections that are opened when they are needed and replaced when they are lost, and what their errors mean.

May import the errors of loom.store, and the driver and address beside it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.loop_time import hold
from loom.store.postgres import driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from loom.store.postgres.address import Address
    from loom.store.postgres.driver import Connection

MAX_READERS = 4

_COMMON = {
    "application_name": "loom",
    "jit": "off",
    # What was acknowledged is on the disk, whatever the database or the role has as its default.
    "synchronous_commit": "on",
    # A process that is stopped amid a transaction would keep others from its runs for as long as it stands still.
    "idle_in_transaction_session_timeout": "10s",
}
_WRITER = {
    # Every statement finds its rows by a key. Planned once, it must not scan because the tables were small that day.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
}

NOTHING_WRITTEN = " Nothing was written."
OUTCOME_UNKNOWN = " The connection was lost in the commit: nobody knows whether it was written."


class ChangedMeanwhileError(Exception):
    """What was there when a transaction looked for it is gone, or the other way round: once more, then."""


@contextmanager
def told_as_store_errors(address: Address, outcome: str = "") -> Iterator[None]:
    """Errors of the driver become those of a store, which also tell what came of the call."""
    try:
        yield
    except driver.UNSUITABLE as error:
        raise StoreError(f"{address.place}: this cannot be stored: {_sentence(error)}{outcome}") from error
    except driver.REPEATED as error:
        raise StoreError(f"{address.place}: this is stored already: {_sentence(error)}{outcome}") from error
    except driver.FAILURES as error:
        raise StoreUnavailable(f"{address.place}: {cause(error)}{outcome}") from error


@contextmanager
def unknown_if_lost(address: Address) -> Iterator[None]:
    """Around what makes a transaction durable: without an answer, nobody knows whether it is."""
    try:
        yield
    except driver.LOST as error:
        message = f"{address.place}: {cause(error)}{OUTCOME_UNKNOWN}"
        raise StoreUnavailable(message, outcome_unknown=True) from error


def cause(error: BaseException) -> str:
    """An error as a sentence."""
    return f"{type(error).__name__}: {_sentence(error)}" if str(error) else f"{type(error).__name__}."


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


class Connections:
    """One connection for writing, a few for everything else. Belongs to one event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.pids: set[int] = set()
        """The servers' numbers of all its connections: what they tell is not news here."""
        self._writer: Connection | None = None
        self._writing = asyncio.Lock()
        self._places = asyncio.Semaphore(MAX_READERS)
        self._idle: list[Connection] = []
        self._closed = False

    async def connect(self, **settings: str) -> Connection:
        """A connection of one's own, with the schema as its search path."""
        if self._closed:
            raise StoreUnavailable(f"{self.address.place}: the store is not open.{NOTHING_WRITTEN}")
        every = {**_COMMON, **settings, "search_path": self.address.quoted_schema}
        with hold():
            connection = await driver.connect(self.address.url, every)
        self._count(connection)
        return connection

    def _count(self, connection: Connection) -> None:
        pid = connection.get_server_pid()
        self.pids.add(pid)
        connection.add_termination_listener(lambda _: self.pids.discard(pid))

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[Connection]:
        """The connection for writing, for one caller at a time, in the order of their calls."""
        async with self._writing:
            connection = self._writer
            if connection is None or connection.is_closed():
                with told_as_store_errors(self.address, NOTHING_WRITTEN):
                    connection = self._writer = await self.connect(**_WRITER)
            with _ended_if_unfinished(connection), hold():
                yield connection

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Connection]:
        """A connection for reading, and for small writes that must not wait behind groups."""
        async with self._places:
            with told_as_store_errors(self.address):
                connection = self._idle_one() or await self.connect()
                try:
                    with _ended_if_unfinished(connection), hold():
                        yield connection
                finally:
                    if not connection.is_closed():
                        self._idle.append(connection)

    def _idle_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def finish_writing(self) -> None:
        """Wait until everything that was to be written so far is."""
        async with self._writing:
            pass

    async def close(self) -> None:
        """Let what is under way finish, and close everything."""
        async with self._writing:
            self._closed = True
        for _ in range(MAX_READERS):
            await self._places.acquire()
        for connection in [*self._idle, self._writer]:
            if connection is not None:
                await close_quietly(connection)


@contextmanager
def _ended_if_unfinished(connection: Connection) -> Iterator[None]:
    """End a connection that its caller leaves amid a transaction: nobody else could use it.

    A caller that is cancelled may leave a BEGIN on its way that the driver knows nothing of. Whatever the next caller
    wrote would be part of that transaction, and never be committed.
    """
    try:
        yield
    except asyncio.CancelledError:
        connection.terminate()
        raise
    finally:
        if not connection.is_closed() and connection.is_in_transaction():
            connection.terminate()


async def close_quietly(connection: Connection) -> None:
    """Say goodbye if there is still somebody to say it to."""
    if connection.is_closed():
        return
    try:
        with hold():
            async with asyncio.timeout(driver.PATIENCE):
                await connection.close()
    except driver.FAILURES:
        connection.terminate()


def columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)]
