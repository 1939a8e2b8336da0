"""The port of every store: what is read and written, and what a store promises.

The contract, which the conformance suite checks on every store:

1. `apply` is one transaction: all operations of a group become durable together, or none does and it raises. What an
   operation refuses (a fence that is gone, a run that has ended) is its result, never an exception; it changes nothing.
2. Operations of one group, and groups of one process, take effect in their order.
3. A run is written only by the member whose fence owns it. A fence is never given twice, so that a member that slept
   past its lease cannot write any more what another has taken over.
4. News follow: after the transaction of a `PostMail`, of a `StartRun` without an owner or with mail, or of
   a run's end is durable, the `on_news` of every open store on the same database is called with the run's id, in this
   process at once. Without ids it means: look at everything.
5. A read sees one consistent moment.
6. The document of a run is there for as long as the run is, however many others come and go that share it.
7. Entries are written one by one, by any process, member or not. What a put or a drop returned is durable; of several
   that expect the same version, one takes place. An expired entry is as good as none. A kind or a key that is empty,
   longer than 200 characters or no text is a `ValueError`.

8. What a member owned and was at work on when it was found dead is marked as `loom.store.deaths` says; one that has
   left in order marks nothing. Marks change nothing for a run but who may claim it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, Entry, HeldRuns, Holder, Mail, Member, RunQuery, RunRow, StoredRun


class Store(Protocol):
    """A place where runs are kept. All methods belong to the event loop that opened the store."""

    on_news: Callable[[Sequence[str]], None]
    """Called on the event loop with the ids of runs that got mail, were started or have ended. Set before `open`."""

    exclusive: bool
    """Whether nobody else writes runs while this store is joined, so that all their news are this process' own."""

    keyed: bool
    """Whether Loom's own keys sign and encrypt what is kept here. If not, no marks of keys are looked for."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date or refuse: `StoreTooNew`, `StoreUnavailable`."""
        ...

    async def close(self) -> None:
        """Leave, if joined, and let go of everything. Operations that were accepted are finished first."""
        ...

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member that may own runs, for `lease_s` seconds at a time. What dead members owned has no owner now.

        Where only one member may be (SQLite), `StoreLocked` says who holds the place.
        """
        ...

    async def beat(self, fence: int, lease_s: float) -> bool:
        """Prolong the lease; False if it was lost. Also takes the runs of members whose lease is over from them."""
        ...

    async def owned(self, fence: int, *, with_mail: bool = False) -> list[str]:
        """The runs that a member owns, or only those of them that have mail."""
        ...

    async def holder(self, row: RunRow) -> Holder | None:
        """Who moves a run now: the member that owns it, or the cluster. None if nobody does."""
        ...

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """One transaction: see the contract. `StoreUnavailable` if it failed as a whole."""
        ...

    async def get(self, run_id: str) -> RunRow | None:
        """The row of a run."""
        ...

    async def find(self, query: RunQuery) -> list[RunRow]:
        """The rows that match."""
        ...

    async def load(self, run_id: str) -> StoredRun | None:
        """What is needed to take a run up: snapshot, the chunks behind it, mail, timers, document."""
        ...

    async def export(self, run_id: str) -> StoredRun | None:
        """Everything of a run: all chunks too."""
        ...

    async def mail(self, run_id: str, after: int) -> list[Mail]:
        """The mail of a run behind an id, in order."""
        ...

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Chunks in order, beginning with the one that holds this tick."""
        ...

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Chunks with events in order, beginning with the one that holds this cursor."""
        ...

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Runs without an owner, with the due time of their first timer before a time; earliest first."""
        ...

    async def document(self, digest: str) -> bytes | None:
        """The text of a definition, as long as a run has it or it was saved."""
        ...

    async def save_document(self, digest: str, data: bytes) -> None:
        """Keep a definition for good, whether or not a run has it. A text that is stored under this digest stays."""
        ...

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Keep an entry and give its new version. With `expect` only if its version is this one, or there is none
        (`ABSENT`); else nothing happens, and the result is None.
        """
        ...

    async def entry(self, kind: str, key: str) -> Entry | None:
        """An entry, unless it has expired."""
        ...

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """The entries of a kind whose keys are behind one, in the order of keys by code points."""
        ...

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry. False if there is none, or its version is not the expected one."""
        ...

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired by `now`, the oldest first. Says how many; if `limit`, there may be more."""
        ...

    async def counts(self) -> dict[str, int]:
        """How many runs there are by status, plus `idle` and `owned`."""
        ...

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Give the runs by workflow that wait for input, are parked or are stuck; nothing for workflows that have none.

        A store that cannot group its runs by workflow gives nothing.
        """
        ...
