"""The store in an SQLite file: opening, closing, and each method of the port as work for a thread."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from loom.store.errors import StoreUnavailable
from loom.store.loop_time import hold, wall_clock
from loom.store.records import Entry, check_entry_names
from loom.store.sqlite import key_values, ownership, reads
from loom.store.sqlite.changes import SqliteChanges
from loom.store.sqlite.connection import (
    Sqlite3Connection,
    WriteSession,
    check_file_names,
    check_place,
    check_present,
    make_private,
    open_reader,
    open_writer,
    patiently,
)
from loom.store.sqlite.db_threads import ChangeWatcher, ReaderPool, WriterThread, lock_against_forks
from loom.store.sqlite.ownership import EngineLock
from loom.store.sqlite.schema import check_exists, upgrade
from loom.store.sqlite.transactions import Group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom.api.counts import WorkflowCounts
    from loom.store.operations import Operation, Result
    from loom.store.records import (
        Chunk,
        HeldRuns,
        Holder,
        InboxMessage,
        Member,
        MemberState,
        RunQuery,
        RunRow,
        StoredRun,
    )
    from loom.store.sqlite.connection import Connection

T = TypeVar("T")

_log = logging.getLogger("loom.store")

_READERS = 2


def _ignore(_run_ids: Sequence[str]) -> None:
    """Take notifications of a store that has no listener."""


class SqliteStore:
    """Runs in one SQLite file. One process may `join` and run them; any number may read and write beside it.

    `connect` opens a connection, by default with the standard library. `busy_timeout` is how many seconds a write waits
    for other processes. `clock` gives the date; by default it is the event loop's, if it has one, else the system's.
    """

    exclusive = True
    keyed = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        connect: Callable[[str], Connection] = Sqlite3Connection,
        upgrade: bool = True,
        busy_timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.on_notification: Callable[[Sequence[str]], None] = _ignore
        self._connect = connect
        self._upgrade = upgrade
        self._patience = busy_timeout
        self._clock = clock
        self._source = secrets.randbits(62)
        self._lock = EngineLock(self.path)
        self._no_fork = lock_against_forks()
        self._fence: int | None = None
        self._writer: WriterThread | None = None
        self._readers: ReaderPool | None = None
        self._watcher: ChangeWatcher | None = None

    async def open(self) -> None:
        """Open the file and bring its schema up to date, or refuse."""
        if self._writer is not None:
            return
        check_place(self.path)
        if not self._upgrade:
            check_exists(self.path)
        loop = asyncio.get_running_loop()
        self._writer = WriterThread(self.path, loop, self._open_session, self._hear)
        self._readers = ReaderPool(self.path, loop, self._open_reader, _READERS)
        watcher = ChangeWatcher(self.path, self._open_reader, self._source, partial(self._notify, loop))
        try:
            # The writer opens its connection, which brings the schema up to date.
            await self._writer.submit(_nothing)
            await self._readers.submit(watcher.start)
        except BaseException:
            await self.close()
            raise
        self._watcher = watcher

    def _open_session(self) -> WriteSession:
        if self._watcher is not None:
            # The store was open before, so it must not begin anew with an empty file.
            check_present(self.path)
        else:
            make_private(self.path)
        connection = patiently(partial(open_writer, self._connect, self.path), self._patience)
        try:
            patiently(partial(upgrade, connection, self.path, allowed=self._upgrade), self._patience)
        except BaseException:
            connection.close()
            raise
        return WriteSession(connection, self.path, self._source, self._patience)

    def _open_reader(self) -> Connection:
        check_present(self.path)
        return open_reader(self._connect, self.path)

    def _notify(self, loop: asyncio.AbstractEventLoop, run_ids: list[str]) -> None:
        """Pass notifications from the watcher's thread to the event loop."""
        try:
            loop.call_soon_threadsafe(self._hear, run_ids)
        except RuntimeError:
            # The event loop was closed without closing the store: there is no listener left.
            if not loop.is_closed():
                raise

    def _hear(self, run_ids: list[str]) -> None:
        if self._writer is not None:
            self.on_notification(run_ids)

    async def close(self) -> None:
        """Leave, if joined, finish what was accepted, and close the file."""
        writer, readers, watcher = self._writer, self._readers, self._watcher
        if writer is None or readers is None:
            return
        fence, self._fence = self._fence, None
        leaving = writer.submit(partial(ownership.leave, fence=fence, now=self._now())) if fence is not None else None
        try:
            if watcher is not None:
                await _stopped(watcher)
            await readers.stop()
            await writer.stop()
        finally:
            self._writer = self._readers = self._watcher = None
            self._lock.release()
        if leaving is not None:
            try:
                await leaving
            except StoreUnavailable as error:
                # The next engine frees what this one owned.
                _log.warning("The end of this engine could not be noted: %s", error)

    async def join(self, name: str, lease_s: float) -> Member:  # noqa: ARG002 - the lock is the lease
        """Become the engine of this file, or `StoreLocked`. The place is kept until `close` or the process ends."""
        writer = self._opened()
        check_file_names(self.path)
        with self._no_fork:
            self._lock.take(name)
        try:
            member = await writer.submit(partial(ownership.join, name=name, now=self._now()))
        except BaseException:
            self._fence = None
            self._lock.release()
            raise
        self._fence = member.fence
        # This only makes commits faster: if the disk has no room for it, they will go without.
        with suppress(StoreUnavailable):
            await writer.submit(ownership.stretch)
        return member

    async def beat(self, fence: int, lease_s: float) -> bool:  # noqa: ARG002 - the lock is the lease
        """Note that the engine lives."""
        writer = self._opened()
        return fence == self._fence and await writer.submit(partial(ownership.beat, fence=fence, now=self._now()))

    async def owned(self, fence: int, *, with_messages: bool = False) -> list[str]:
        """Return the runs that a member owns, or only the ones with messages."""
        return await self._read(reads.owned, fence, with_messages)

    async def holder(self, row: RunRow) -> Holder | None:
        """Return the engine, if it owns the run. Its lease has no end; a silent engine is taken for dead."""
        if row.owner is None:
            return None
        return await self._read(reads.holder, row.owner, self._now())

    async def members(self) -> list[MemberState]:
        """Return the engine that has joined last. One that was silent for long is taken for dead."""
        return await self._read(reads.members, self._now())

    def apply(self, group: Sequence[Operation]) -> Awaitable[list[Result]]:
        """Write a group in one transaction."""
        return self._opened().submit(Group(group))

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run; None if there is none."""
        return await self._read(reads.get, run_id)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match."""
        return await self._read(reads.find, query)

    def change_reader(self, after: str | None = None) -> SqliteChanges:
        """Make a reader of changed runs, from its first look on or after a position."""
        return SqliteChanges(self._read, after)

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run."""
        return await self._read(partial(reads.stored, whole=False), run_id)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run."""
        return await self._read(partial(reads.stored, whole=True), run_id)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run after an id."""
        return await self._read(reads.inbox, run_id, after)

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick."""
        return await self._read(reads.chunks, run_id, first_tick, limit)

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        return await self._read(reads.stream, run_id, cursor, limit)

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Return runs that could be claimed for a timer, with the due time of their first one; earliest first."""
        return await self._read(reads.timers_due, workflows, before, limit)

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:
        """Return when the first timer of each of these runs is due."""
        return await self._read(reads.next_timers, run_ids)

    async def descendants(self, run_id: str, limit: int) -> int:
        """Count the open runs that descend from a run by open runs, up to a limit."""
        return await self._read(reads.descendants, run_id, limit)

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition; None if there is none."""
        return await self._read(key_values.document, digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Store a definition for good."""
        await self._opened().submit(partial(key_values.save_document, digest=digest, data=data, at=self._now()))

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Store an entry, if the stored one is the expected one."""
        check_entry_names(kind, key)
        entry = Entry(kind, key, 0, data, expires_at)
        return await self._opened().submit(partial(key_values.put_entry, entry=entry, expect=expect, now=self._now()))

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired."""
        check_entry_names(kind, key)
        return await self._read(key_values.entry, kind, key, self._now())

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind after a key, in the order of keys."""
        check_entry_names(kind, after or "-")
        return await self._read(key_values.entries, kind, after, limit, self._now())

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is the expected one."""
        check_entry_names(kind, key)
        dropping = partial(key_values.drop_entry, kind=kind, key=key, expect=expect, now=self._now())
        return await self._opened().submit(dropping)

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`."""
        return await self._opened().submit(partial(key_values.drop_expired, now=now, limit=limit))

    async def counts(self) -> dict[str, int]:
        """Count runs by status, plus `idle` and `owned`."""
        return await self._read(reads.counts)

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """Count the runs of each workflow by status and by what holds them."""
        return await self._read(reads.workflow_counts)

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Count the runs by workflow that wait for input, are parked or are stuck."""
        return await self._read(reads.held_counts)

    async def size(self) -> int:
        """Return the bytes of the database file."""
        return await self._read(reads.size)

    def _read(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        if self._readers is None:
            raise self._not_open()
        return self._readers.submit(lambda connection: function(connection, *arguments))

    def _opened(self) -> WriterThread:
        if self._writer is None:
            raise self._not_open()
        return self._writer

    def _not_open(self) -> StoreUnavailable:
        return StoreUnavailable(f"The store {self.path} is not open. Nothing was written.")

    def _now(self) -> float:
        if self._clock is not None:
            return self._clock()
        return wall_clock(asyncio.get_running_loop())()


async def _stopped(watcher: ChangeWatcher) -> None:
    """Wait for the end of a watcher's thread, without another one: a process that ends starts no threads any more."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    with hold():
        watcher.stop(lambda: loop.call_soon_threadsafe(ended.set_result, None))
        await ended


def _nothing(_session: WriteSession) -> None:
    """Only open the connection."""
