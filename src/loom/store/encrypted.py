"""A store that encrypts: what it hands to the store beneath can be read only with its keys.

Sealed are inputs, journals, streams, snapshots, mail, definitions, errors, what runs wait for, and the data of entries.
What a database must search or count by stays plain: ids, names of workflows and event types, tags, times, numbers, and
the purposes of timers. May import the port, and what it needs beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.encrypted_records import Records
from loom.store.encrypted_values import Sealer
from loom.store.errors import WrongKeys
from loom.store.marks import KIND as MARKS
from loom.store.marks import check_marks, marks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.keyring import Keyring
    from loom.store.operations import Operation, Result
    from loom.store.ports import Store
    from loom.store.records import Chunk, Entry, HeldRuns, Holder, Mail, Member, RunQuery, RunRow, StoredRun

ENCRYPTION_KEYS = "LOOM_ENCRYPTION_KEYS"
PLAIN = "plain"
_USE = "encryption"


async def check_readable(store: Store) -> None:
    """`WrongKeys` if an open store was written with encryption and is read without: then it shows marks of keys."""
    await check_marks(store, _USE, None, ENCRYPTION_KEYS)


class EncryptedStore:
    """Encrypts on the way into another store, and decrypts on the way back."""

    def __init__(self, inner: Store, ring: Keyring) -> None:
        self.inner = inner
        self.exclusive = inner.exclusive
        self.keyed = inner.keyed
        self._ring = ring
        self._records = Records(Sealer(ring))

    @property
    def on_news(self) -> Callable[[Sequence[str]], None]:
        """See the port."""
        return self.inner.on_news

    @on_news.setter
    def on_news(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.inner.on_news = listener

    async def open(self) -> None:
        """Open the store beneath. `WrongKeys` if it was written with other keys, or without any."""
        await self.inner.open()
        try:
            await self._check()
        except BaseException:
            await self.inner.close()
            raise

    async def _check(self) -> None:
        if not self._ring.lenient and not await marks(self.inner, _USE):
            counts = await self.inner.counts()
            if counts["running"] + counts["completed"] + counts["failed"] + counts["cancelled"]:
                raise WrongKeys(
                    f"This store has runs that are not encrypted. The word `{PLAIN}` in {ENCRYPTION_KEYS}, beside the "
                    "keys, lets them be read; what is written from then on is encrypted."
                )
        await check_marks(self.inner, _USE, self._ring, ENCRYPTION_KEYS)

    async def close(self) -> None:
        """Close the store beneath."""
        await self.inner.close()

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member."""
        return await self.inner.join(name, lease_s)

    async def beat(self, fence: int, lease_s: float) -> bool:
        """Prolong the lease."""
        return await self.inner.beat(fence, lease_s)

    async def owned(self, fence: int, *, with_mail: bool = False) -> list[str]:
        """The runs that a member owns."""
        return await self.inner.owned(fence, with_mail=with_mail)

    async def holder(self, row: RunRow) -> Holder | None:
        """Who moves a run."""
        return await self.inner.holder(row)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """One transaction."""
        results = await self.inner.apply([self._records.sealed(operation) for operation in group])
        return [self._records.result(*pair) for pair in zip(group, results, strict=True)]

    async def get(self, run_id: str) -> RunRow | None:
        """The row of a run."""
        row = await self.inner.get(run_id)
        return None if row is None else self._records.row(row)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """The rows that match."""
        return [self._records.listed_row(row) for row in await self.inner.find(query)]

    async def load(self, run_id: str) -> StoredRun | None:
        """Snapshot, the chunks behind it, mail, timers, document."""
        stored = await self.inner.load(run_id)
        return None if stored is None else self._records.run(stored)

    async def export(self, run_id: str) -> StoredRun | None:
        """Everything of a run, in plain."""
        stored = await self.inner.export(run_id)
        return None if stored is None else self._records.run(stored)

    async def mail(self, run_id: str, after: int) -> list[Mail]:
        """The mail of a run behind an id."""
        return [self._records.mail(run_id, mail) for mail in await self.inner.mail(run_id, after)]

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Chunks, beginning with the one that holds this tick."""
        return [self._records.chunk(run_id, chunk) for chunk in await self.inner.chunks(run_id, first_tick, limit)]

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Chunks with events, beginning with the one that holds this cursor."""
        return [self._records.chunk(run_id, chunk) for chunk in await self.inner.stream(run_id, cursor, limit)]

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """Runs without an owner, with the due time of their first timer."""
        return await self.inner.timers_due(workflows, before, limit)

    async def document(self, digest: str) -> bytes | None:
        """The text of a definition."""
        data = await self.inner.document(digest)
        return None if data is None else self._records.document(digest, digest, data)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Keep a definition for good."""
        await self.inner.save_document(digest, self._records.seal_document(digest, data))

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Keep an entry, if the one that is there is as expected."""
        # Marks say which keys one needs: they must be read before.
        held = data if kind == MARKS else self._records.seal_entry(kind, key, data)
        return await self.inner.put_entry(kind, key, held, expires_at=expires_at, expect=expect)

    async def entry(self, kind: str, key: str) -> Entry | None:
        """An entry, unless it has expired."""
        return self._entry(await self.inner.entry(kind, key))

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """The entries of a kind behind a key, in the order of keys."""
        found = await self.inner.entries(kind, after, limit)
        if kind == MARKS:  # who sees no mark of encryption needs no key
            return [entry for entry in found if not entry.key.startswith(f"{_USE}.")]
        return [self._records.entry(entry) for entry in found]

    def _entry(self, entry: Entry | None) -> Entry | None:
        return entry if entry is None or entry.kind == MARKS else self._records.entry(entry)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is as expected."""
        return await self.inner.drop_entry(kind, key, expect)

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Delete entries that have expired."""
        return await self.inner.drop_expired(now, limit)

    async def counts(self) -> dict[str, int]:
        """How many runs there are by status, plus `idle` and `owned`."""
        return await self.inner.counts()

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Give the runs by workflow that wait for input, are parked or are stuck: names are not encrypted."""
        return await self.inner.held_counts()
