"""The store in PostgreSQL, as the port wants it. May import the records and operations of loom.store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from loom.store.entries import check_names
from loom.store.errors import StoreUnavailable
from loom.store.postgres import documents, entries, members, reading, schema
from loom.store.postgres.address import parse
from loom.store.postgres.connections import NOTHING_WRITTEN, Connections, told_as_store_errors, unknown_if_lost
from loom.store.postgres.listener import Listener
from loom.store.postgres.writing import Writing
from loom.store.records import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, HeldRuns, Holder, Mail, Member, RunQuery, RunRow, StoredRun

_log = logging.getLogger("loom.store")

_FSYNC = "SELECT current_setting('fsync')"


def _no_news(_run_ids: Sequence[str]) -> None:
    """Nobody has asked."""


class PostgresStore:
    """Runs in a schema of a PostgreSQL database, which any number of processes may share.

    The schema is that of `search_path` in the URL, or `loom`. News come through NOTIFY. When the listening connection
    was lost and is back, `on_news` is called with no id at all: look at everything, since something may have been
    missed. A lost connection is replaced with the next call.

    It keeps state in its sessions (prepared statements, LISTEN, the search path), so that a pooler in front of the
    database must be in session mode.
    """

    exclusive = False
    keyed = True

    def __init__(self, url: str, *, upgrade: bool = True, schema: str | None = None) -> None:
        self.address = parse(url, schema)
        self.on_news: Callable[[Sequence[str]], None] = _no_news
        self._upgrade = upgrade
        self._connections: Connections | None = None
        self._listener: Listener | None = None
        self._writing = Writing(self.address)
        self._fences: list[int] = []
        self._knows_disk = False

    async def open(self) -> None:
        """Connect, bring the schema up to date or refuse, and begin to hear news."""
        if self._connections is not None:
            return
        connections = Connections(self.address)
        listener = Listener(connections, self._hear)
        try:
            async with connections.reader() as connection:
                await schema.upgrade(connection, self.address, allowed=self._upgrade)
            await listener.start()
        except BaseException:
            await connections.close()
            raise
        self._connections, self._listener = connections, listener

    async def close(self) -> None:
        """Finish what was accepted, leave, if joined, and let go of everything."""
        connections, listener = self._connections, self._listener
        if connections is None or listener is None:
            return
        self._connections = self._listener = None
        await listener.stop()
        try:
            await connections.finish_writing()
            if self._fences:
                await self._leave(connections)
        finally:
            await connections.close()

    async def _leave(self, connections: Connections) -> None:
        fences, self._fences = self._fences, []
        try:
            async with connections.reader() as connection:
                await members.leave(connection, fences)
        except StoreUnavailable as error:
            _log.warning("Could not say goodbye, so that the lease must run out first: %s", error)

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member. Any number may be, also of the same name."""
        async with self._opened().reader() as connection:
            if not self._knows_disk:
                self._look_at_disk(await connection.fetchval(_FSYNC))
            member = await members.join(connection, name, lease_s)
        self._fences.append(member.fence)
        return member

    def _look_at_disk(self, fsync: str) -> None:
        """Warn once, in a process that works on runs, if the server does not wait for its disk."""
        self._knows_disk = True
        if fsync == "off":
            _log.warning(
                "%s has fsync = off: when its machine fails, acknowledged runs may be lost and the database damaged.",
                self.address.place,
            )

    async def beat(self, fence: int, lease_s: float) -> bool:
        """Prolong the lease, if it is not over, and free what dead members own."""
        async with self._opened().reader() as connection:
            return await members.beat(connection, fence, lease_s)

    async def holder(self, row: RunRow) -> Holder | None:
        """The member that owns a run."""
        if row.owner is None:
            return None
        async with self._opened().reader() as connection:
            return await members.holder(connection, row.owner)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """All of the group or nothing, and then the news of it. An error that does not say that nothing was written
        means that the connection was lost in the commit.
        """
        async with self._opened().writer() as connection:
            with told_as_store_errors(self.address, NOTHING_WRITTEN):
                results, news = await self._writing.write(connection, group)
        if news:
            self.on_news(news)
        return results

    async def owned(self, fence: int, *, with_mail: bool = False) -> list[str]:
        """The runs that a member owns."""
        async with self._opened().reader() as connection:
            return await reading.owned(connection, fence, with_mail)

    async def get(self, run_id: str) -> RunRow | None:
        """The row of a run."""
        async with self._opened().reader() as connection:
            return await reading.get(connection, run_id)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """The rows that match."""
        async with self._opened().reader() as connection:
            return await reading.find(connection, query)

    async def load(self, run_id: str) -> StoredRun | None:
        """What is needed to take a run up: snapshot, the chunks behind it, mail, timers, document."""
        async with self._opened().reader() as connection:
            return await reading.stored(connection, run_id, whole=False)

    async def export(self, run_id: str) -> StoredRun | None:
        """Everything of a run: all chunks too."""
        async with self._opened().reader() as connection:
            return await reading.stored(connection, run_id, whole=True)

    async def mail(self, run_id: str, after: int) -> list[Mail]:
        """The mail of a run behind an id, in order."""
        async with self._opened().reader() as connection:
            return await reading.mail(connection, run_id, after)

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Chunks in order, beginning with the one that holds this tick."""
        async with self._opened().reader() as connection:
            return await reading.chunks(connection, run_id, first_tick, limit)

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Chunks with events in order, beginning with the one that holds this cursor."""
        async with self._opened().reader() as connection:
            return await reading.stream(connection, run_id, cursor, limit)

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Runs without an owner, with the due time of their first timer before a time; earliest first."""
        async with self._opened().reader() as connection:
            return await reading.timers_due(connection, workflows, before, limit)

    async def document(self, digest: str) -> bytes | None:
        """The text of a definition."""
        async with self._opened().reader() as connection:
            return await documents.text(connection, digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Keep a definition for good."""
        async with self._opened().reader() as connection:
            await documents.save(connection, digest, data)

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Keep an entry, if the one that is there is as expected."""
        check_names(kind, key)
        async with self._opened().reader() as connection:
            with unknown_if_lost(self.address):
                return await entries.put(connection, Entry(kind, key, 0, data, expires_at), expect)

    async def entry(self, kind: str, key: str) -> Entry | None:
        """An entry, unless it has expired."""
        check_names(kind, key)
        async with self._opened().reader() as connection:
            return await entries.get(connection, kind, key)

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """The entries of a kind behind a key, in the order of keys."""
        check_names(kind, after or "-")
        async with self._opened().reader() as connection:
            return await entries.page(connection, kind, after, limit)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is as expected."""
        check_names(kind, key)
        async with self._opened().reader() as connection:
            with unknown_if_lost(self.address):
                return await entries.drop(connection, kind, key, expect)

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`."""
        async with self._opened().reader() as connection:
            return await entries.drop_expired(connection, now, limit)

    async def counts(self) -> dict[str, int]:
        """How many runs there are by status, plus `idle` and `owned`."""
        async with self._opened().reader() as connection:
            return await reading.counts(connection)

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Give the runs by workflow that wait for input, are parked or are stuck."""
        async with self._opened().reader() as connection:
            return await reading.held_counts(connection)

    def _hear(self, run_ids: Sequence[str]) -> None:
        self.on_news(run_ids)

    def _opened(self) -> Connections:
        if self._connections is None:
            raise StoreUnavailable(f"{self.address.place}: the store is not open.{NOTHING_WRITTEN}")
        return self._connections
