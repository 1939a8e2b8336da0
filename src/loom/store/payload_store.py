"""A store that keeps large payloads beside the journal: the store beneath gets and gives data with references.

It stands above a store that encrypts, since it cuts plain JSON; what it keeps is sealed on its own way. Payloads belong
to a run and go with it: a purge deletes them, and a sweep deletes those of runs that are gone, which a crash has left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec.structs import replace

from loom.store.encrypted import EncryptedStore
from loom.store.errors import CorruptRecord, StoreError
from loom.store.operations import CommitRun, ImportRun, PostMessage, PurgeRuns, Started, StartRun
from loom.store.payload_places import PayloadFolder, PayloadTable
from loom.store.payloads import ABOVE, LEAST, Names, cut, references_in, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.payloads import PayloadPlace
    from loom.store.ports import OwnedStore
    from loom.store.records import Chunk, InboxMessage, Member, StoredRun

_log = logging.getLogger("loom.store")

SWEEP_S = 3600.0
"""Seconds between two sweeps of a member, and for which a sweep leaves payloads of a run that is not there alone: its
start may be on its way."""
PURGE_S = 60.0
"""Seconds for which a purge leaves payloads alone: a run of the same id may begin anew. The next sweep takes them."""


class PayloadStore:
    """Cuts large texts out on the way into another store, and puts them back on the way out."""

    def __init__(self, inner: OwnedStore, place: PayloadPlace, above: int, names: Names) -> None:
        self.inner = inner
        self.place = place
        self.above = above
        self.exclusive, self.keyed = inner.exclusive, inner.keyed
        self._names = names
        self._sweeping: asyncio.Task[None] | None = None
        # What holds no payloads is that of the store beneath.
        self.open = inner.open
        self.beat, self.owned, self.members = inner.beat, inner.owned, inner.members
        self.get, self.find, self.change_reader = inner.get, inner.find, inner.change_reader
        self.holder, self.timers_due, self.descendants = inner.holder, inner.timers_due, inner.descendants
        self.next_timers = inner.next_timers
        self.counts, self.held_counts, self.workflow_counts = inner.counts, inner.held_counts, inner.workflow_counts
        self.size, self.next_timers = inner.size, inner.next_timers
        self.document, self.save_document = inner.document, inner.save_document
        self.put_entry, self.entry, self.entries = inner.put_entry, inner.entry, inner.entries
        self.drop_entry, self.drop_expired = inner.drop_entry, inner.drop_expired

    @property
    def on_notification(self) -> Callable[[Sequence[str]], None]:
        """See the port."""
        return self.inner.on_notification

    @on_notification.setter
    def on_notification(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.inner.on_notification = listener

    async def join(self, name: str, lease_s: float) -> Member:
        """Become a member. What crashes have left is swept out beside its work."""
        member = await self.inner.join(name, lease_s)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep_now_and_then())
        return member

    async def close(self) -> None:
        """Close the store beneath."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
        await self.inner.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Keep the payloads of a group, then write it in one transaction."""
        began = time.time()
        results = await self.inner.apply([await self._slim(operation) for operation in group])
        for place, (operation, result) in enumerate(zip(group, results, strict=True)):
            if isinstance(operation, StartRun) and isinstance(result, Started) and not result.created:
                start = await self._whole(operation.run_id, "the start", result.start)
                results[place] = replace(result, start=start)
            elif isinstance(operation, PurgeRuns) and result:
                await self._purged(operation.run_id, began)
        return results

    async def _slim(self, operation: Operation) -> Operation:
        match operation:
            case StartRun():
                message = operation.message
                return replace(
                    operation,
                    start=await self._cut(operation.run_id, operation.start),
                    message=None if message is None else await self._slim_message(message),
                )
            case PostMessage():
                return await self._slim_message(operation)
            case CommitRun():
                return await self._slim_commit(operation)
            case ImportRun():
                return ImportRun(await self._slim_run(operation.run))
            case _:
                return operation

    async def _slim_message(self, asked: PostMessage) -> PostMessage:
        data = await self._cut(asked.run_id, asked.data)
        return asked if data is asked.data else replace(asked, data=data)

    async def _slim_commit(self, asked: CommitRun) -> CommitRun:
        chunk, snapshot, run_id = asked.chunk, asked.snapshot, asked.run_id
        if chunk is not None:
            chunk = await self._slim_chunk(run_id, chunk)
        if snapshot is not None:
            snapshot = replace(snapshot, data=await self._cut(run_id, snapshot.data))
        sent = tuple([await self._slim(each) for each in asked.sent])
        return replace(asked, chunk=chunk, snapshot=snapshot, sent=sent)

    async def _slim_chunk(self, run_id: str, chunk: Chunk) -> Chunk:
        data = await self._cut(run_id, chunk.data)
        return chunk if data is chunk.data else replace(chunk, data=data)

    async def _slim_run(self, run: StoredRun) -> StoredRun:
        run_id, snapshot = run.row.run_id, run.snapshot
        if snapshot is not None:
            snapshot = replace(snapshot, data=await self._cut(run_id, snapshot.data))
        return replace(
            run,
            start=await self._cut(run_id, run.start),
            snapshot=snapshot,
            chunks=tuple([await self._slim_chunk(run_id, chunk) for chunk in run.chunks]),
            inbox=tuple([replace(each, data=await self._cut(run_id, each.data)) for each in run.inbox]),
        )

    async def _cut(self, run_id: str, data: bytes) -> bytes:
        """Keep the large texts of some data, and return what refers to them."""
        if len(data) <= self.above:
            return data
        made = await asyncio.to_thread(cut, data, self.above, self._names)
        if made.payloads:
            await self.place.put(run_id, made.payloads)
        return made.data

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _whole(self, run_id: str, what: str, data: bytes) -> bytes:
        """Put the payloads of stored data back. `CorruptRecord` names one that is missing or damaged."""
        payloads: dict[str, bytes] = {}
        for reference in references_in(data):
            if reference.name in payloads:
                continue
            found = await self.place.get(run_id, reference.name)
            if found is None or len(found) != reference.size or not self._names.fits(reference.name, found):
                state = "missing" if found is None else "damaged"
                reason = f"its payload {reference.name} of {reference.size} bytes is {state} in {self.place}"
                raise CorruptRecord(run_id, what, reason)
            payloads[reference.name] = found
        return whole(data, payloads) if payloads else data

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run."""
        stored = await self.inner.load(run_id)
        return None if stored is None else await self._whole_run(stored)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run, with its payloads."""
        stored = await self.inner.export(run_id)
        return None if stored is None else await self._whole_run(stored)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run after an id."""
        return [await self._whole_message(run_id, each) for each in await self.inner.inbox(run_id, after)]

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick."""
        return [await self._whole_chunk(run_id, each) for each in await self.inner.chunks(run_id, first_tick, limit)]

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        return [await self._whole_chunk(run_id, each) for each in await self.inner.stream(run_id, cursor, limit)]

    async def _whole_message(self, run_id: str, message: InboxMessage) -> InboxMessage:
        return replace(message, data=await self._whole(run_id, f"mail {message.id}", message.data))

    async def _whole_chunk(self, run_id: str, chunk: Chunk) -> Chunk:
        data = await self._whole(run_id, f"the chunk from tick {chunk.first_tick}", chunk.data)
        return chunk if data is chunk.data else replace(chunk, data=data)

    async def _whole_run(self, run: StoredRun) -> StoredRun:
        run_id, snapshot = run.row.run_id, run.snapshot
        if snapshot is not None:
            what = f"the snapshot after {snapshot.ticks} ticks"
            snapshot = replace(snapshot, data=await self._whole(run_id, what, snapshot.data))
        return replace(
            run,
            start=await self._whole(run_id, "the start", run.start),
            snapshot=snapshot,
            chunks=tuple([await self._whole_chunk(run_id, chunk) for chunk in run.chunks]),
            inbox=tuple([await self._whole_message(run_id, message) for message in run.inbox]),
        )

    # -- deleting -----------------------------------------------------------------------------------------------------

    async def _purged(self, run_id: str | None, began: float) -> None:
        """Delete the payloads of a purged run, or of all that are gone. A failure leaves them to the next sweep."""
        try:
            if run_id is None:
                await self.sweep()
            else:
                await self.place.drop(run_id, began - PURGE_S)
        except (OSError, StoreError) as error:
            _log.warning("Payloads of purged runs stay until the next sweep: %s", error)

    async def _sweep_now_and_then(self) -> None:
        while True:
            try:
                await self.sweep()
            except (OSError, StoreError) as error:
                _log.warning("The sweep of payloads was broken off: %s", error)
            await asyncio.sleep(SWEEP_S)

    async def sweep(self, grace_s: float = SWEEP_S) -> int:
        """Delete the payloads of runs that are not there, unless they were kept in the last seconds. Count the runs."""
        position, dropped, before = "", 0, time.time() - grace_s
        while found := await self.place.runs(position):
            for position, run_id in found:  # noqa: B007 - the last one is where the next look begins
                try:
                    if await self.inner.get(run_id) is None:
                        await self.place.drop(run_id, before)
                        dropped += 1
                except Exception as error:  # noqa: BLE001 - one that cannot be swept must not keep the others
                    _log.warning("Payloads of run %r stay until the next sweep: %s", run_id, error)
        return dropped


def payload_store(store: OwnedStore, place: str, above: int | None = None) -> PayloadStore:
    """Put a place for payloads beside a store: `table`, or `file:///folder`. A `ValueError` says what it is not."""
    above = ABOVE if above is None else above
    if above < LEAST:
        raise ValueError(f"payloads_above must be at least {LEAST} bytes, not {above}.")
    sealer = store.sealer if isinstance(store, EncryptedStore) else None
    names = Names(sealer.secret() if sealer is not None else None)
    if place == "table":
        return PayloadStore(store, PayloadTable(store), above, names)
    address = urlsplit(place)
    if address.scheme != "file" or address.netloc not in ("", "localhost") or not address.path.strip("/"):
        raise ValueError(f"payloads is 'table' or the URL of a folder such as file:///srv/payloads, not {place!r}.")
    return PayloadStore(store, PayloadFolder(Path(url2pathname(address.path)), store, sealer), above, names)
