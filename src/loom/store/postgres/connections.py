"""Connections: where a database is, one to write, a few to read, one to listen, and what their errors mean.

A connection is opened when it is needed and replaced when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.loop_time import hold, until_look
from loom.store.postgres import driver
from loom.store.postgres.driver import FAILURES, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from loom.store.postgres.driver import Connection

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


class Address(NamedTuple):
    """A database and the schema in it."""

    url: str
    """The URL as the driver takes it."""
    schema: str
    place: str
    """The database as error texts name it, without the password."""

    @property
    def quoted_schema(self) -> str:
        """Return the schema as SQL names it."""
        return f'"{self.schema}"'

    @property
    def channel(self) -> str:
        """Return the channel of this schema's notifications."""
        return f"loom_{self.schema}"


def parse_address(url: str, schema: str | None = None) -> Address:
    """Read an address from a URL. Its `search_path`, if it has one, is the schema unless another is given."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    named = query.pop("search_path", "loom")
    schema = schema or named
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(
            f"{schema!r} cannot be the schema of a store: use at most 50 letters, digits and underscores, and no digit "
            "at the beginning."
        )
    host = parts.netloc.rpartition("@")[2] or query.get("host", "localhost")
    database = unquote(parts.path.lstrip("/")) or query.get("dbname", "the default database")
    bare = urlunsplit(parts._replace(query=urlencode(query)))
    return Address(bare, schema, f"PostgreSQL at {host}, {database}")


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


class ChangedSinceError(Exception):
    """A row has come or gone since a transaction looked for it. The transaction is done again."""


@contextmanager
def told_as_store_errors(address: Address, outcome: str = "") -> Iterator[None]:
    """Turn errors of the driver into errors of a store; `outcome` says in them whether anything was written."""
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
    """Mark the outcome as unknown if the connection is lost inside: use it around a commit."""
    try:
        yield
    except driver.LOST as error:
        message = f"{address.place}: {cause(error)}{OUTCOME_UNKNOWN}"
        raise StoreUnavailable(message, outcome_unknown=True) from error


def cause(error: BaseException) -> str:
    """Write an error as a sentence."""
    return f"{type(error).__name__}: {_sentence(error)}" if str(error) else f"{type(error).__name__}."


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


class Connections:
    """One connection for writing, a few for everything else. Belongs to one event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.pids: set[int] = set()
        """The server's process ids of all its connections. The listener ignores what they notify of."""
        self._writer: Connection | None = None
        self._writing = asyncio.Lock()
        self._places = asyncio.Semaphore(MAX_READERS)
        self._idle: list[Connection] = []
        self._closed = False

    async def connect(self, **settings: str) -> Connection:
        """Open a connection, with the schema as its search path."""
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
        """Give the connection for writing to one caller at a time, in the order of their calls."""
        async with self._writing:
            connection = self._writer
            if connection is None or connection.is_closed():
                with told_as_store_errors(self.address, NOTHING_WRITTEN):
                    connection = self._writer = await self.connect(**_WRITER)
            with _ended_if_unfinished(connection), hold():
                yield connection

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Connection]:
        """Give a connection for reading, and for small writes that must not wait for groups."""
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
        """Wait until all writes so far are done."""
        async with self._writing:
            pass

    async def close(self) -> None:
        """Wait for all callers, and close everything."""
        async with self._writing:
            self._closed = True
        for _ in range(MAX_READERS):
            await self._places.acquire()
        for connection in [*self._idle, self._writer]:
            if connection is not None:
                await close_quietly(connection)


@contextmanager
def _ended_if_unfinished(connection: Connection) -> Iterator[None]:
    """End a connection that its caller leaves amid a transaction: no other caller could use it.

    A caller that is cancelled may leave a BEGIN on its way that the driver does not know of. What the next caller
    writes would be part of that transaction, and never be committed.
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
    """Close a connection, whether or not the server answers."""
    if connection.is_closed():
        return
    try:
        with hold():
            async with asyncio.timeout(driver.PATIENCE):
                await connection.close()
    except driver.FAILURES:
        connection.terminate()


def columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Turn rows into the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)]


_log = logging.getLogger("loom.store")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LOOK_EVERY = 30.0
"""Seconds after which a connection that has silently died is noticed."""

_run_ids = msgspec.json.Decoder(list[str]).decode


class Listener:
    """A connection that only listens, and comes back when it is lost."""

    def __init__(self, connections: Connections, on_notification: Callable[[Sequence[str]], None]) -> None:
        self._connections = connections
        self._address = connections.address
        self._on_notification = on_notification
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
        # The store has notified of its own writes already.
        if pid not in self._connections.pids:
            self._on_notification(_run_ids(str(payload)))

    async def _stay(self) -> None:
        while True:
            await self._until_lost()
            await self._listen_again()
            # Notifications may have been missed. A listener that raises must not end this task.
            asyncio.get_running_loop().call_soon(self._on_notification, [])

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
