"""A store in memory: what is written is as durable as the `MemoryDatabase`, which several stores may share.

Made for tests and simulations: throw the store away and open another on the same database, and a crash has happened.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from loom.api.counts import WorkflowCounts
from loom.store.changes import MOST_CHANGES, ChangedRun, Look
from loom.store.errors import StoreUnavailable
from loom.store.loop_time import skipped_s, wall_clock
from loom.store.memory_tables import Tables, Transaction
from loom.store.records import (
    ABSENT,
    Entry,
    HeldRuns,
    Holder,
    Member,
    MemberState,
    check_entry_names,
    matches,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from loom.store.memory_tables import KeptRun
    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, InboxMessage, RunQuery, RunRow, StoredRun


class MemberLease(NamedTuple):
    """The end of a member's ownership, unless it beats before."""

    name: str
    until: float


class MemoryDatabase:
    """The data that outlives the stores opened on it. It belongs to one thread, like its stores."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.changes = _ChangeLog()
        self.entries = _Entries()
        self.leases: dict[int, MemberLease] = {}
        """Leases of the members, by fence."""
        self.last_fence = 0
        self.last_alive: float | None = None
        self.downtime = 0.0
        self.stores: list[MemoryStore] = []
        """The open stores."""

    def expel(self, lease_now: float, now: float) -> None:
        """Remove members whose lease is over, and free every run whose owner is no member."""
        dead = {fence for fence, lease in self.leases.items() if lease.until <= lease_now}
        self.leases = {fence: lease for fence, lease in self.leases.items() if fence not in dead}
        freeing = Transaction(self.tables)
        freeing.free(lambda owner: owner not in self.leases, dead.__contains__, now)
        self.finish(freeing)

    def finish(self, transaction: Transaction) -> None:
        """Take over what a transaction has made of the tables."""
        self.tables = transaction.finish()
        self.changes.add(transaction.changed)


_KEPT_CHANGES = 16_384


class _ChangeLog:
    """The last changes of runs, numbered from 1."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(4)
        self.last = 0
        self._kept: deque[tuple[str, str]] = deque(maxlen=_KEPT_CHANGES)

    def add(self, changed: Collection[tuple[str, str]]) -> None:
        """Add runs with their workflows, in order."""
        self._kept.extend(changed)
        self.last += len(changed)

    def since(self, number: int) -> dict[tuple[str, str], None] | None:
        """Return the runs of the changes after a number, each once; None if they are not known any more."""
        count = self.last - number
        if not 0 <= count <= len(self._kept):
            return None
        newest = list(islice(reversed(self._kept), count))
        return dict.fromkeys(reversed(newest))


class MemoryChanges:
    """See `ChangeReader`."""

    pause = 0.0

    def __init__(self, store: MemoryStore, after: str | None) -> None:
        self._store = store
        self._position = after

    async def look(self) -> Look:
        """See `ChangeReader`."""
        database = self._store.opened()
        log, before = database.changes, self._position
        self._position = f"{log.token}:{log.last}"
        if before is None:
            return Look(self._position, [])
        token, _, number = before.partition(":")
        found = log.since(int(number)) if token == log.token and number.isdecimal() else None
        if found is None or len(found) > MOST_CHANGES:
            return Look(self._position, [], is_whole=False)
        return Look(self._position, [_changed(database.tables, *each) for each in found])


def _changed(tables: Tables, run_id: str, workflow: str) -> ChangedRun:
    run = tables.runs.get(run_id)
    return ChangedRun(run_id, workflow, run.row if run is not None and run.row.workflow == workflow else None)


def _ignore(_run_ids: Sequence[str]) -> None:
    """Take notifications of a store that has no listener."""


class MemoryStore:
    """A store on a database in memory, its own unless it is given one.

    Leases follow `clock`. By default it is the event loop's date, if it has one (the virtual loop of `loom.testing`),
    else the system's.
    """

    exclusive = False
    keyed = True

    def __init__(self, database: MemoryDatabase | None = None, *, clock: Callable[[], float] | None = None) -> None:
        self.database = database if database is not None else MemoryDatabase()
        self.on_notification: Callable[[Sequence[str]], None] = _ignore
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fences: list[int] = []

    async def open(self) -> None:
        """Begin to be notified."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.database.stores.append(self)

    async def close(self) -> None:
        """Leave, if joined. All accepted writes are done already."""
        if self._loop is None:
            return
        self._loop = None
        self.database.stores.remove(self)
        if self._fences:
            self.database.last_alive = self._now()
            for fence in self._fences:
                self.database.leases.pop(fence, None)
            self.database.expel(self._lease_time(), self._now())
            self._fences.clear()

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member. Any number may be, also of the same name."""
        database, now, lease_now = self.opened(), self._now(), self._lease_time()
        database.expel(lease_now, now)
        if not database.leases and database.last_alive is not None:
            database.downtime += max(0.0, now - database.last_alive)
        database.last_alive = now
        database.last_fence += 1
        database.leases[database.last_fence] = MemberLease(name, lease_now + lease_s)
        self._fences.append(database.last_fence)
        return Member(database.last_fence, database.downtime)

    async def beat(self, fence: int, lease_s: float) -> bool:
        """Prolong the lease, if it is not over, and expel members whose lease is."""
        database, now, lease_now = self.opened(), self._now(), self._lease_time()
        database.expel(lease_now, now)
        lease = database.leases.get(fence)
        if lease is None:
            return False
        database.last_alive = now
        database.leases[fence] = MemberLease(lease.name, lease_now + lease_s)
        return True

    async def owned(self, fence: int, *, with_messages: bool = False) -> list[str]:
        """Return the runs that a member owns, or only the ones with messages."""
        runs = self.opened().tables.runs.items()
        return sorted(run_id for run_id, run in runs if run.row.owner == fence and (run.inbox or not with_messages))

    async def holder(self, row: RunRow) -> Holder | None:
        """Return the member that owns a run; None without an owner."""
        if row.owner is None:
            return None
        lease = self.opened().leases.get(row.owner)
        if lease is None:
            return Holder(f"member {row.owner}", alive=False)
        return Holder(lease.name, alive=lease.until > self._now(), until=lease.until)

    async def members(self) -> list[MemberState]:
        """Return the members, by their names."""
        database, now = self.opened(), self._lease_time()
        owners = Counter(run.row.owner for run in database.tables.runs.values())
        found = [
            MemberState(lease.name, lease.until > now, fence, until=lease.until, owned=owners[fence])
            for fence, lease in database.leases.items()
        ]
        return sorted(found, key=lambda member: member.name)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Write all of the group or nothing, and notify."""
        database = self.opened()
        transaction = Transaction(database.tables)
        results = transaction.apply(group)
        database.finish(transaction)
        if transaction.notified:
            self._announce(list(transaction.notified))
        return results

    def _announce(self, run_ids: list[str]) -> None:
        """Notify this store's listener at once, and the others in the next turn of the event loop."""
        for store in self.database.stores:
            if store is not self and store._loop is not None:
                store._loop.call_soon(store._hear, run_ids)
        self.on_notification(run_ids)

    def _hear(self, run_ids: list[str]) -> None:
        if self._loop is not None:
            self.on_notification(run_ids)

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run; None if there is none."""
        run = self._run(run_id)
        return run.row if run is not None else None

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match."""
        found = [run.row for run in self.opened().tables.runs.values() if matches(run.row, query)]
        found.sort(key=lambda row: place_of(row, query), reverse=not query.oldest_first)
        return found[: query.limit]

    def change_reader(self, after: str | None = None) -> MemoryChanges:
        """Make a reader of changes, from now on or after a position."""
        return MemoryChanges(self, after)

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run."""
        return self.opened().tables.stored(run_id, whole=False)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run."""
        return self.opened().tables.stored(run_id, whole=True)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run after an id."""
        run = self._run(run_id)
        return list(run.messages(after)) if run is not None else []

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick."""
        run = self._run(run_id)
        return list(run.journal.from_tick(first_tick, limit)) if run is not None else []

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        run = self._run(run_id)
        return run.journal.from_cursor(cursor, limit) if run is not None else []

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Return runs that could be claimed for a timer, with the due time of their first one; earliest first."""
        due: list[tuple[float, str]] = []
        for run_id, run in self.opened().tables.runs.items():
            if run.timers and run.claimable and run.row.workflow in workflows:
                first = run.first_due()
                if first is not None and first < before:
                    due.append((first, run_id))
        return [(run_id, first) for first, run_id in sorted(due)[:limit]]

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:
        """Return when the first timer of each of these runs is due."""
        found = {run_id: run.first_due() for run_id in run_ids if (run := self._run(run_id)) is not None}
        return {run_id: due for run_id, due in found.items() if due is not None}

    async def descendants(self, run_id: str, limit: int) -> int:
        """Count the open runs that descend from a run by open runs, up to a limit."""
        children: dict[str, list[str]] = {}
        for child, run in self.opened().tables.runs.items():
            if run.row.parent is not None and run.row.head.status == "running":
                children.setdefault(run.row.parent, []).append(child)
        count, above = 0, [run_id]
        while above and count < limit:
            found = children.get(above.pop(), [])
            count += len(found)
            above += found
        return min(count, limit)

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition; None if there is none."""
        return self.opened().tables.text(digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Store a definition for good."""
        database = self.opened()
        saving = Transaction(database.tables)
        saving.save_document(digest, data, self._now())
        database.tables = saving.finish()

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Store an entry, if the stored one is the expected one."""
        check_entry_names(kind, key)
        return self.opened().entries.put(Entry(kind, key, 0, data, expires_at), expect, self._now())

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired."""
        check_entry_names(kind, key)
        return self.opened().entries.get(kind, key, self._now())

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind after a key, in the order of keys."""
        check_entry_names(kind, after or "-")
        return self.opened().entries.page(kind, after, limit, self._now())

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is the expected one."""
        check_entry_names(kind, key)
        return self.opened().entries.drop(kind, key, expect, self._now())

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`."""
        return self.opened().entries.drop_expired(now, limit)

    async def counts(self) -> dict[str, int]:
        """Count runs by status, plus `idle` and `owned`."""
        found = dict.fromkeys(("running", "completed", "failed", "cancelled", "idle", "owned"), 0)
        for run in self.opened().tables.runs.values():
            head = run.row.head
            found[head.status] += 1
            found["idle"] += head.status == "running" and head.idle_since is not None
            found["owned"] += run.row.owner is not None
        return found

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """Count the runs of each workflow by status and by what holds them."""
        found: dict[str, Counter[str]] = {}
        for run in self.opened().tables.runs.values():
            head, counted = run.row.head, found.setdefault(run.row.workflow, Counter())
            running = head.status == "running"
            counted[head.status] += 1
            counted["total"] += 1
            counted["idle"] += running and head.idle_since is not None
            counted["asleep"] += head.asleep
            counted["waiting"] += head.waiting
            counted["paused"] += running and head.paused
            counted["parked"] += running and head.parked is not None
            counted["stuck"] += head.stuck is not None
        return [WorkflowCounts(workflow=workflow, **counted) for workflow, counted in found.items()]

    async def size(self) -> None:
        """Return None: it is a part of the memory of its process."""

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Count the runs by workflow that wait for input, are parked or are stuck."""
        found: dict[str, HeldRuns] = {}
        for run in self.opened().tables.runs.values():
            head = run.row.head
            if head.status == "running" and (head.idle_since is not None or head.parked is not None):
                waiting, parked, stuck = found.get(run.row.workflow, HeldRuns())
                is_parked, is_stuck = head.parked is not None, head.stuck is not None
                waits = not is_parked and not is_stuck
                found[run.row.workflow] = HeldRuns(waiting + waits, parked + is_parked, stuck + is_stuck)
        return found

    def opened(self) -> MemoryDatabase:
        """Return the database, while the store is open."""
        if self._loop is None:
            raise StoreUnavailable("The store in memory is not open. Nothing was written.")
        return self.database

    def _run(self, run_id: str) -> KeptRun | None:
        return self.opened().tables.runs.get(run_id)

    def _now(self) -> float:
        if self._clock is not None:
            return self._clock()
        return wall_clock(asyncio.get_running_loop())()

    def _lease_time(self) -> float:
        """Return the time for leases. It stands still where a virtual clock jumps over the looks that renew them."""
        return self._now() - skipped_s(asyncio.get_running_loop())


class _Entries:
    """Entries by kind and key. Every call is a transaction of its own."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._last_version = 0

    def get(self, kind: str, key: str, now: float) -> Entry | None:
        """Return an entry that has not expired; None if there is none."""
        entry = self._entries.get((kind, key))
        return entry if entry is not None and _is_alive(entry, now) else None

    def put(self, entry: Entry, expect: int | None, now: float) -> int | None:
        """Store an entry and return its new version; None if the stored one is not the expected one."""
        if not self._is_expected(entry.kind, entry.key, expect, now):
            return None
        self._last_version += 1
        kept = Entry(entry.kind, entry.key, self._last_version, entry.data, entry.expires_at)
        self._entries[entry.kind, entry.key] = kept
        return self._last_version

    def page(self, kind: str, after: str, limit: int, now: float) -> list[Entry]:
        """Return entries of a kind whose keys come after `after`, in the order of keys."""
        found = [entry for entry in self._entries.values() if entry.kind == kind and entry.key > after]
        return sorted((entry for entry in found if _is_alive(entry, now)), key=lambda entry: entry.key)[:limit]

    def drop(self, kind: str, key: str, expect: int | None, now: float) -> bool:
        """Delete an entry; False if there is none, or it is not the expected one."""
        if self.get(kind, key, now) is None or not self._is_expected(kind, key, expect, now):
            return False
        del self._entries[kind, key]
        return True

    def drop_expired(self, now: float, limit: int) -> int:
        """Delete expired entries, oldest first. Return how many."""
        expired = [entry for entry in self._entries.values() if not _is_alive(entry, now)]
        expired.sort(key=lambda entry: entry.expires_at or 0.0)
        for entry in expired[:limit]:
            del self._entries[entry.kind, entry.key]
        return len(expired[:limit])

    def _is_expected(self, kind: str, key: str, expect: int | None, now: float) -> bool:
        if expect is None:
            return True
        entry = self.get(kind, key, now)
        return (ABSENT if entry is None else entry.version) == expect


def _is_alive(entry: Entry, now: float) -> bool:
    return entry.expires_at is None or entry.expires_at > now
