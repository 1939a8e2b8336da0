"""Entries and documents of a store over a cluster, from the client's side.

One workflow keeps the entries of one kind. A document is the argument of a workflow of its own, so that it is read from
the history, without a worker.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from loom.runtime.lru_cache import LruCache
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.records import Entry, check_entry_names
from loom.temporal.client.cluster import NotThere
from loom.temporal.names import ENTRIES
from loom.temporal.payloads import (
    QUERY_GET,
    QUERY_LIST,
    UPDATE_DROP,
    UPDATE_PUT,
    DropEntry,
    EntriesArgument,
    EntryQuery,
    FoundEntries,
    PutEntry,
    Written,
    payload_of,
    value_of,
)
from loom.temporal.rpc import PATIENT_S, in_time

if TYPE_CHECKING:
    import msgspec

    from loom.temporal.client.cluster import Cluster

_AT_ONCE = 5
"""The server lets ten updates of one workflow be under way; other processes write too."""
_SENDS, _PAUSE_S = 6, 0.02
_UNPROCESSED = "UnprocessedUpdate"
"""What the server calls an update that no task has taken."""
_STARTS = 3


class Entries:
    """The entries that the runtimes of one task queue share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._doors: dict[str, asyncio.Semaphore] = {}

    async def put(self, kind: str, asked: PutEntry) -> int | None:
        """Keep an entry and return its new version; None if the entry there is not the expected one."""
        check_entry_names(kind, asked.key)
        return (await self._update(kind, UPDATE_PUT, asked)).version or None

    async def drop(self, kind: str, asked: DropEntry) -> bool:
        """Delete an entry; False if there is none, or not the expected one."""
        check_entry_names(kind, asked.key)
        return bool((await self._update(kind, UPDATE_DROP, asked)).version)

    async def get(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired."""
        check_entry_names(kind, key)
        found = await self._query(kind, QUERY_GET, EntryQuery(time.time(), key=key))
        return found[0] if found else None

    async def page(self, kind: str, after: str, limit: int) -> list[Entry]:
        """Return entries in the order of their keys."""
        check_entry_names(kind, after or "-")
        entries: list[Entry] = []
        while len(entries) < limit:
            query = EntryQuery(time.time(), after=after, limit=limit - len(entries))
            more = await self._query(kind, QUERY_LIST, query)
            if not more:
                break
            entries += more
            after = more[-1].key
        return entries

    def _id(self, kind: str) -> str:
        # Each task queue has entries of its own: its workers answer for them.
        return f"{ENTRIES}:{self._cluster.address.task_queue}:{kind}"

    async def _query(self, kind: str, name: str, asked: EntryQuery) -> tuple[Entry, ...]:
        try:
            return (await self._cluster.query(self._id(kind), name, FoundEntries, asked)).entries
        except NotThere:
            return ()  # nothing of this kind was ever kept

    async def _update(self, kind: str, name: str, asked: msgspec.Struct) -> Written:
        payload = payload_of(asked)
        self._cluster.check_size(payload, f"An entry of kind {kind!r}")
        async with self._doors.setdefault(kind, asyncio.Semaphore(_AT_ONCE)):
            for _ in range(_STARTS):
                try:
                    return await self._send_until_taken(kind, name, RawValue(payload))
                except NotThere:
                    await self._cluster.start(ENTRIES, self._id(kind), EntriesArgument(kind))
        raise StoreUnavailable(
            f"The entries of kind {kind!r} have no place at {self._cluster.address.url}: the workflow "
            f"{self._id(kind)!r} was closed, delete it there."
        )

    async def _send_until_taken(self, kind: str, name: str, argument: RawValue) -> Written:
        """Send an update again if a task has ended without it: nothing was written then."""
        for attempt in range(_SENDS):
            try:
                return await self._send(kind, name, argument)
            except _NotTaken:
                await asyncio.sleep(_PAUSE_S * 2**attempt)
        raise StoreUnavailable(f"The workflow {self._id(kind)!r} takes no updates at {self._cluster.address.url}.")

    async def _send(self, kind: str, name: str, argument: RawValue) -> Written:
        with self._cluster.calling(f"write an entry of kind {kind!r}", writes=True):
            try:
                update = self._cluster.handle(self._id(kind)).execute_update(
                    name, argument, result_type=RawValue, rpc_timeout=timedelta(seconds=PATIENT_S)
                )
                answer: RawValue = await in_time(update)
            except WorkflowUpdateFailedError as error:
                if isinstance(error.cause, ApplicationError) and error.cause.type == _UNPROCESSED:
                    raise _NotTaken from error
                raise StoreError(str(error.cause)) from error
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # the SDK tells of the caller's end as of a late answer
                raise StoreUnavailable(
                    f"No worker of task queue {self._cluster.address.task_queue!r} at {self._cluster.address.url} has "
                    f"written an entry of kind {kind!r} within {PATIENT_S:g} s. The next one that is there will.",
                    outcome_unknown=True,
                ) from error
        return value_of(answer.payload, Written)


class _NotTaken(Exception):
    """A task of the workflow has ended without an update that the server had given it."""


class Documents:
    """Definitions by their digest. A saved text stays for good."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: LruCache[str, bytes] = LruCache(100)

    async def save(self, digest: str, data: bytes) -> None:
        """Save a text for good."""
        if self._known.get(digest) is None:
            argument = EntriesArgument("document", (Entry("document", digest, 1, data),))
            if await self._cluster.start(ENTRIES, _document_id(digest), argument):
                self._known.put(digest, data)
            else:
                await self.get(digest)

    async def get(self, digest: str) -> bytes | None:
        """Return a text; None if it was never saved."""
        known = self._known.get(digest)
        if known is not None:
            return known
        try:
            event = await self._cluster.first_event(_document_id(digest))
        except NotThere:
            return None
        [payload] = event.workflow_execution_started_event_attributes.input.payloads
        argument = value_of(await self._cluster.plain(payload), EntriesArgument)
        self._known.put(digest, argument.entries[0].data)
        return argument.entries[0].data


def _document_id(digest: str) -> str:
    return f"{ENTRIES}.document:{digest}"
