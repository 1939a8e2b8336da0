"""The store in PostgreSQL: opening, closing, and each method of the port on a connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from loom.store.errors import StoreUnavailable
from loom.store.postgres import key_values, ownership, reads, schema
from loom.store.postgres.changes import PostgresChanges
from loom.store.postgres.connections import (
    NOTHING_WRITTEN,
    Connections,
    Listener,
    parse_address,
    told_as_store_errors,
    unknown_if_lost,
)
from loom.store.postgres.transactions import GroupWriter
from loom.store.records import Entry, check_entry_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

_log = logging.getLogger("loom.store")

_FSYNC = "SELECT current_setting('fsync')"


def _ignore(_run_ids: Sequence[str]) -> None:
    """Take notifications of a store that has no listener."""


class PostgresStore:
    """Runs in a schema of a PostgreSQL database, which any number of processes may share.

    The schema is that of `search_path` in the URL, or `loom`. Notifications come through NOTIFY. When the listening
    connection was lost and is back, `on_notification` is called without ids: look at everything, since notifications
    may have been missed. A lost connection is replaced with the next call.

    It keeps state in its sessions (prepared statements, LISTEN, the search path), so that a pooler in front of the
    database must be in session mode.
    """

    exclusive = False
    keyed = True

    def __init__(self, url: str, *, upgrade: bool = True, schema: str | None = None) -> None:
        self.address = parse_address(url, schema)
        self.on_notification: Callable[[Sequence[str]], None] = _ignore
        self._upgrade = upgrade
        self._connections: Connections | None = None
        self._listener: Listener | None = None
        self._writer = GroupWriter(self.address)
        self._fences: list[int] = []
        self._knows_disk = False

    async def open(self) -> None:
        """Connect, bring the schema up to date or refuse, and begin to listen."""
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
        """Finish what was accepted, leave, if joined, and close all connections."""
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
                await ownership.leave(connection, fences)
        except StoreUnavailable as error:
            _log.warning("Could not say goodbye, so that the lease must run out first: %s", error)

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member. Any number may be, also of the same name."""
        async with self._opened().reader() as connection:
            if not self._knows_disk:
                self._look_at_disk(await connection.fetchval(_FSYNC))
            member = await ownership.join(connection, name, lease_s)
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
            return await ownership.beat(connection, fence, lease_s)

    async def members(self) -> list[MemberState]:
        """Return the members, by their names."""
        async with self._opened().reader() as connection:
            return await ownership.members(connection)

    async def holder(self, row: RunRow) -> Holder | None:
        """Return the member that owns a run; None without an owner."""
        if row.owner is None:
            return None
        async with self._opened().reader() as connection:
            return await ownership.holder(connection, row.owner)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Write all of the group or nothing, and notify. An error that does not say that nothing was written means that
        the connection was lost in the commit.
        """
        async with self._opened().writer() as connection:
            with told_as_store_errors(self.address, NOTHING_WRITTEN):
                results, notified = await self._writer.write(connection, group)
        if notified:
            self.on_notification(notified)
        return results

    async def owned(self, fence: int, *, with_messages: bool = False) -> list[str]:
        """Return the runs that a member owns, or only the ones with messages."""
        async with self._opened().reader() as connection:
            return await reads.owned(connection, fence, with_messages)

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run; None if there is none."""
        async with self._opened().reader() as connection:
            return await reads.get(connection, run_id)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match."""
        async with self._opened().reader() as connection:
            return await reads.find(connection, query)

    def change_reader(self, after: str | None = None) -> PostgresChanges:
        """Make a reader of changed runs, from its first look on or after a position."""
        return PostgresChanges(self._fetch, after)

    async def _fetch(self, query: str, *values: Any) -> Sequence[Any]:
        async with self._opened().reader() as connection:
            return await connection.fetch(query, *values)

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run."""
        async with self._opened().reader() as connection:
            return await reads.stored(connection, run_id, whole=False)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run."""
        async with self._opened().reader() as connection:
            return await reads.stored(connection, run_id, whole=True)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run after an id."""
        async with self._opened().reader() as connection:
            return await reads.inbox(connection, run_id, after)

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick."""
        async with self._opened().reader() as connection:
            return await reads.chunks(connection, run_id, first_tick, limit)

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        async with self._opened().reader() as connection:
            return await reads.stream(connection, run_id, cursor, limit)

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Return runs that could be claimed for a timer, with the due time of their first one; earliest first."""
        async with self._opened().reader() as connection:
            return await reads.timers_due(connection, workflows, before, limit)

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:
        """Return when the first timer of each of these runs is due."""
        async with self._opened().reader() as connection:
            return await reads.next_timers(connection, run_ids)

    async def descendants(self, run_id: str, limit: int) -> int:
        """Count the open runs that descend from a run by open runs, up to a limit."""
        async with self._opened().reader() as connection:
            return await reads.descendants(connection, run_id, limit)

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition; None if there is none."""
        async with self._opened().reader() as connection:
            return await key_values.document(connection, digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Store a definition for good."""
        async with self._opened().reader() as connection:
            await key_values.save_document(connection, digest, data)

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Store an entry, if the stored one is the expected one."""
        check_entry_names(kind, key)
        async with self._opened().reader() as connection:
            with unknown_if_lost(self.address):
                return await key_values.put_entry(connection, Entry(kind, key, 0, data, expires_at), expect)

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired."""
        check_entry_names(kind, key)
        async with self._opened().reader() as connection:
            return await key_values.entry(connection, kind, key)

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind after a key, in the order of keys."""
        check_entry_names(kind, after or "-")
        async with self._opened().reader() as connection:
            return await key_values.entries(connection, kind, after, limit)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is the expected one."""
        check_entry_names(kind, key)
        async with self._opened().reader() as connection:
            with unknown_if_lost(self.address):
                return await key_values.drop_entry(connection, kind, key, expect)

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`."""
        async with self._opened().reader() as connection:
            return await key_values.drop_expired(connection, now, limit)

    async def counts(self) -> dict[str, int]:
        """Count runs by status, plus `idle` and `owned`."""
        async with self._opened().reader() as connection:
            return await reads.counts(connection)

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """Count the runs of each workflow by status and by what holds them."""
        async with self._opened().reader() as connection:
            return await reads.workflow_counts(connection)

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Count the runs by workflow that wait for input, are parked or are stuck."""
        async with self._opened().reader() as connection:
            return await reads.held_counts(connection)

    async def size(self) -> int:
        """Return the bytes of the tables with their indexes."""
        async with self._opened().reader() as connection:
            return await reads.size(connection)

    def _hear(self, run_ids: Sequence[str]) -> None:
        self.on_notification(run_ids)

    def _opened(self) -> Connections:
        if self._connections is None:
            raise StoreUnavailable(f"{self.address.place}: the store is not open.{NOTHING_WRITTEN}")
        return self._connections
