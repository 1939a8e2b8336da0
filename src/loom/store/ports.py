"""The ports of stores: what is read and written, by whom, and what a store promises.

A port is narrow, so that a caller names what it uses and a store implements what it has:

| port | who uses it |
|---|---|
| `RunReads` | readers: servers, clients, the command line, owners |
| `RunWrites` | the committer, with starts and messages of callers, and commits of owners |
| `EntryStore`, `DocumentStore` | servers and runtimes, for what is no run |
| `Store` | every store has all of these |
| `Ownership` | processes that move runs themselves; a cluster has none of it |
| `OwnedStore` | a store whose runs are owned by processes: memory, SQLite, PostgreSQL |

The contract, which the conformance suite checks on every store:

1. `apply` is one transaction: all operations of a group become durable together, or none does and it raises. What an
   operation refuses (a fence that is gone, a run that has ended) is its result, never an exception; it changes nothing.
2. Operations of one group, and groups of one process, take effect in their order.
3. A run is written only by the member whose fence owns it. A fence is never given twice, so that a member that slept
   past its lease cannot write any more what another has taken over.
4. Notifications follow: after the transaction of a `PostMessage`, of a `StartRun` without an owner or with a message,
   or of a run's end is durable, every open store on the same database calls its `on_notification` with the run's id;
   the store that wrote it does so at once. Without ids it means: look at everything.
5. A read sees one consistent moment.
6. The document of a run is there for as long as the run is, however many others come and go that share it.
7. Entries are written one by one, by any process, member or not. What a put or a drop returned is durable; of several
   that expect the same version, one takes place. An expired entry is as good as none. A kind or a key that is empty,
   longer than 200 characters or no text is a `ValueError`.
8. Looks of a `change_reader` tell of every run whose row was written or deleted between them, whichever process did it
   and in whatever order transactions ended.
9. What a member owned and was at work on when it was found dead is marked as `loom.store.deaths` says; one that has
   left in order marks nothing. Marks change nothing for a run but who may claim it.

`loom.store.rules` has the rules of operations on single runs. All methods belong to the event loop that opened the
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom.api.counts import WorkflowCounts
    from loom.store.changes import ChangeReader
    from loom.store.operations import Operation, Result
    from loom.store.records import (
        Chunk,
        Entry,
        HeldRuns,
        Holder,
        InboxMessage,
        Member,
        MemberState,
        RunQuery,
        RunRow,
        StoredRun,
    )


class RunReads(Protocol):
    """Reads of runs, by any process."""

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run; None if there is none."""
        ...

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match."""
        ...

    def change_reader(self, after: str | None = None) -> ChangeReader:
        """Make a reader of changed runs, from its first look on or after a position: see `loom.store.changes`."""
        ...

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run: snapshot, the chunks after it, inbox, timers, document."""
        ...

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run: all chunks too."""
        ...

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run that no commit has taken, after an id, in order."""
        ...

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks in order, beginning with the one that holds this tick."""
        ...

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events in order, beginning with the one that holds this cursor."""
        ...

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:
        """Return when the first timer of each of these runs is due; runs without timers are left out.

        A store that keeps no timers returns nothing.
        """
        ...

    async def holder(self, row: RunRow) -> Holder | None:
        """Return who moves a run now: the member that owns it, or the cluster. None if it has no owner."""
        ...

    async def members(self) -> list[MemberState]:
        """Return the processes that work on runs, as far as the store knows, by their names."""
        ...

    async def counts(self) -> dict[str, int]:
        """Count runs by status, plus `idle` and `owned`."""
        ...

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """Count the runs of each workflow by status and by what holds them, in no order.

        A store that cannot group its runs by workflow returns nothing.
        """
        ...

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Count the runs by workflow that wait for input, are parked or are stuck; workflows without any are left out.

        A store that cannot group its runs by workflow returns nothing.
        """
        ...

    async def size(self) -> int | None:
        """Return how many bytes the store takes, with its indexes; None if it takes none that it can tell."""
        ...


class RunWrites(Protocol):
    """Writes of runs, and what follows from them."""

    on_notification: Callable[[Sequence[str]], None]
    """Called on the event loop with the ids of runs that got a message, were started or have ended.

    Set it before `open`.
    """

    def apply(self, group: Sequence[Operation]) -> Awaitable[list[Result]]:
        """Write a group in one transaction: see the contract. `StoreUnavailable` if it failed as a whole.

        A store without transactions raises `PartlyApplied`, and a `TypeError` for operations of owners if it has none.
        """
        ...


class DocumentStore(Protocol):
    """The texts of definitions, by digest."""

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition, as long as a run has it or it was saved; None if there is none."""
        ...

    async def save_document(self, digest: str, data: bytes) -> None:
        """Store a definition for good, whether or not a run has it. A text that is stored under this digest stays."""
        ...


class EntryStore(Protocol):
    """Small values beside the runs, by kind and key, with versions for compare-and-swap."""

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Store an entry and return its new version.

        With `expect` only if its version is this one, or there is none (`ABSENT`); else it changes nothing and returns
        None.
        """
        ...

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry; None if there is none, or it has expired."""
        ...

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind whose keys come after `after`, in the order of keys by code points."""
        ...

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry. False if there is none, or its version is not the expected one."""
        ...

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`, oldest first. Return how many; if `limit`, there may be more."""
        ...


class Store(RunReads, RunWrites, DocumentStore, EntryStore, Protocol):
    """A place where runs are kept."""

    keyed: bool
    """Whether Loom's own keys sign and encrypt what is kept here. If not, it has no key markers."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date or refuse: `StoreTooNew`, `StoreUnavailable`."""
        ...

    async def close(self) -> None:
        """Leave, if joined, and close everything. Operations that were accepted are finished first."""
        ...


@runtime_checkable
class Ownership(Protocol):
    """Membership of processes that own runs, and the reads that only owners need."""

    exclusive: bool
    """Whether no other process writes runs while this store is joined, so that all notifications are its own."""

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member that may own runs, for `lease_s` seconds at a time. Runs of dead members are freed.

        Where only one member may be (SQLite), `StoreLocked` names the holder of the place.
        """
        ...

    async def beat(self, fence: int, lease_s: float) -> bool:
        """Prolong the lease; False if it was lost. Also frees the runs of members whose lease is over."""
        ...

    async def owned(self, fence: int, *, with_messages: bool = False) -> list[str]:
        """Return the runs that a member owns, or only the ones whose inbox has messages."""
        ...

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Return runs without an owner, with the due time of their first timer before a time; earliest first."""
        ...

    async def descendants(self, run_id: str, limit: int) -> int:
        """Count the open runs that descend from a run by open runs, up to a limit."""
        ...


class OwnedStore(Store, Ownership, Protocol):
    """A store whose runs are owned by processes."""
