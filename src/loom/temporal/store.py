"""A Temporal cluster as a store: runs are workflows, inbox messages are signals.

Rows and journals are queries and close events.

What only an owner of runs does (commit, claim, release, park, join) does not exist here: the cluster owns the runs, and
workers move them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError, RPCStatusCode

from loom.store.errors import NotSupported, PartlyApplied, StoreUnavailable
from loom.store.operations import ImportRun, PostMessage, PurgeRuns, SetTags, StartRun
from loom.store.records import Holder, MemberState
from loom.temporal.address import parse_address
from loom.temporal.client.changes import TemporalChanges
from loom.temporal.client.cluster import Cluster
from loom.temporal.client.entries import Documents, Entries
from loom.temporal.client.reads import RunReader
from loom.temporal.client.records import RunExporter
from loom.temporal.client.visibility import Visibility
from loom.temporal.client.writes import Purger, Sender, Starter
from loom.temporal.names import ATTRIBUTE_IDLE_SINCE, ATTRIBUTE_TAGS, ATTRIBUTE_WAITING_FOR
from loom.temporal.payloads import DropEntry, PutEntry
from loom.temporal.rpc import PATIENT_S, in_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from temporalio.client import Client
    from typing_extensions import Unpack

    from loom.api.counts import WorkflowCounts
    from loom.runtime.durable.connect_options import ConnectOptions
    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, Entry, HeldRuns, InboxMessage, RunQuery, RunRow, StoredRun
    from loom.temporal.address import TemporalAddress
    from loom.temporal.payloads import NewCode
    from loom.temporal.runtime import TemporalRuntime

_ATTRIBUTES = {
    ATTRIBUTE_IDLE_SINCE: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    ATTRIBUTE_WAITING_FOR: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    ATTRIBUTE_TAGS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}
_PURGED_AT_ONCE = 20


def _no_news(_run_ids: Sequence[str]) -> None:
    """Ignore notifications."""


def _no_code(_name: str) -> NewCode | None:
    """Return None: no code is registered."""
    return None


class TemporalStore:
    """The runs of one task queue in one namespace.

    A caller may give a client of its own, for example with a payload codec. The cluster has no transactions: see
    `apply`.
    """

    keyed = False

    def __init__(self, address: TemporalAddress, client: Client | None = None) -> None:
        self.address = address
        self.on_notification: Callable[[Sequence[str]], None] = _no_news
        """Called with the runs that this store has changed; workers report theirs by themselves."""
        self.code_of: Callable[[str], NewCode | None] = _no_code
        """Returns the code of a registered workflow, else None; set by the runtime."""
        self._cluster = Cluster(address, client)
        self._reader = RunReader(self._cluster)
        self._entries = Entries(self._cluster)
        self._documents = Documents(self._cluster)
        self._exporter = RunExporter(self._cluster, self._reader)
        self._starter = Starter(self._cluster, self._reader, self._exporter, self._documents, self._code)
        self._sender = Sender(self._cluster, self._reader, self._code)
        self._purger = Purger(self._cluster, self._reader)
        self._visibility = Visibility(self._cluster, self._reader)

    @classmethod
    def at(cls, url: str) -> TemporalStore:
        """Return the store of an address such as `temporal://host:7233/namespace?task_queue=loom`."""
        return cls(parse_address(url))

    def complete_starts(self, whole_start: Callable[[str, bytes], bytes]) -> None:
        """Let a runtime add to the starts of runs what only its process knows."""
        self._starter.whole_start = whole_start

    def _code(self, name: str) -> NewCode | None:
        return self.code_of(name)

    @property
    def client(self) -> Client:
        """Return the client of the cluster, while the store is open."""
        return self._cluster.client

    @property
    def has_attributes(self) -> bool:
        """Say whether the cluster has Loom's search attributes."""
        return self._visibility.has_attributes

    def runtime(
        self, *, clock: Callable[[], float] | None = None, **options: Unpack[ConnectOptions]
    ) -> TemporalRuntime:
        """Return the runtime over this cluster: what `loom.connect` gives for its address."""
        from loom.runtime.durable.connect_options import settings_of
        from loom.temporal.runtime import TemporalRuntime
        from loom.temporal.settings import TemporalSettings

        return TemporalRuntime(self, settings_of(TemporalSettings, options), clock=clock)

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. `StoreUnavailable` if there is no cluster, or not the namespace."""
        await self._cluster.connect()
        try:
            self._learn(await self._registered())
        except BaseException:
            self._cluster.close()
            raise

    async def _registered(self) -> set[str]:
        """Return the search attributes that the namespace has; none, if this client may not ask."""
        try:
            request = ListSearchAttributesRequest(namespace=self.address.namespace)
            found = await in_time(
                self.client.operator_service.list_search_attributes(
                    request, retry=True, timeout=timedelta(seconds=PATIENT_S)
                )
            )
        except RPCError as error:
            if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
                return set()
            raise StoreUnavailable(f"Temporal at {self.address.url} cannot be used: {error}") from error
        return set(found.custom_attributes)

    def _learn(self, registered: set[str]) -> None:
        has = registered >= _ATTRIBUTES.keys()
        self._visibility.has_attributes = self._starter.has_attributes = has

    async def register_attributes(self) -> list[str]:
        """Add Loom's search attributes to the namespace, and return the missing ones. Runs use them from then on."""
        missing = sorted(_ATTRIBUTES.keys() - await self._registered())
        if missing:
            request = AddSearchAttributesRequest(
                namespace=self.address.namespace, search_attributes={name: _ATTRIBUTES[name] for name in missing}
            )
            with self._cluster.calling("add search attributes", writes=True):
                await in_time(
                    self.client.operator_service.add_search_attributes(request, timeout=timedelta(seconds=PATIENT_S))
                )
        self._learn(set(_ATTRIBUTES))
        return missing

    async def close(self) -> None:
        """Let go of the cluster."""
        self._cluster.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Apply each operation by itself, at the same time if they are for different runs: the cluster has no
        transactions.

        If one of several fails, `PartlyApplied` has the outcome of each.
        """
        by_run: defaultdict[str | None, list[int]] = defaultdict(list)
        for number, operation in enumerate(group):
            by_run[_run_of(operation)].append(number)
        outcomes: dict[int, Result | BaseException] = {}

        async def in_order(numbers: list[int]) -> None:
            for number in numbers:
                try:
                    outcomes[number] = await self._do(group[number])
                except Exception as error:  # noqa: BLE001 - the caller gets it
                    outcomes[number] = error

        await asyncio.gather(*(in_order(numbers) for numbers in by_run.values()))
        if len(group) > 1 and any(isinstance(outcome, BaseException) for outcome in outcomes.values()):
            raise PartlyApplied([outcomes[number] for number in range(len(group))])
        return [_told(outcomes[number]) for number in range(len(group))]

    async def _do(self, operation: Operation) -> Result:
        match operation:
            case StartRun():
                started = await self._starter.start(operation)
                self._announce(operation.run_id, started.created or started.posted)
                return started
            case PostMessage():
                if operation.reopens:
                    posted = await self._starter.retry(operation)
                else:
                    posted = await self._sender.post(operation)
                self._announce(operation.run_id, posted.outcome == "posted")
                return posted
            case ImportRun():
                brought = await self._starter.bring(operation)
                self._announce(operation.run.row.run_id, brought)
                return brought
            case PurgeRuns():
                return await self._purge(operation)
            case SetTags():
                raise NotSupported("On Temporal the tags of a run are fixed at its start.")
            case _:
                raise _not_here(type(operation).__name__)

    def _announce(self, run_id: str, changed: bool) -> None:
        if changed:
            self.on_notification([run_id])

    async def _purge(self, asked: PurgeRuns) -> int:
        """Delete runs on the cluster. The time is that of the run's end, by the server's clock."""
        if asked.run_id is not None:
            return int(await self._purger.purge(asked.run_id, asked.ended_before))
        if asked.ended_before is None:
            return 0
        gone = 0
        waiting: dict[str, None] = {}
        async for run_id in self._visibility.ended_before(asked.ended_before):
            waiting[run_id] = None
            if len(waiting) == min(_PURGED_AT_ONCE, asked.limit - gone):
                gone += await self._purge_all(waiting, asked.ended_before)
                waiting = {}
            if gone >= asked.limit:
                return gone
        return gone + await self._purge_all(waiting, asked.ended_before)

    async def _purge_all(self, run_ids: dict[str, None], ended_before: float) -> int:
        return sum(await asyncio.gather(*(self._purger.purge(run_id, ended_before) for run_id in run_ids)))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run, from the run itself or its close event. If no worker answers, its error says so."""
        return await self._reader.row(run_id)

    async def failed_since(self, at: float) -> AsyncIterator[RunRow]:
        """Yield runs that failed at a time or later, by the server's clock, in no order."""
        async for run_id in self._visibility.failed_since(at):
            observed = await self._reader.observe(run_id, closed=True)
            if observed is not None and observed.row.head.status == "failed":
                yield observed.row

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match, as far as the cluster's visibility has them: it has a new run a little later."""
        return await self._visibility.find(query)

    def change_reader(self, after: str | None = None) -> TemporalChanges:
        """Make a reader of changed runs, which sees them as late as lists do."""
        return TemporalChanges(self._visibility, self._reader, after)

    async def load(self, run_id: str) -> StoredRun | None:
        """Return a run with its state and without its journal."""
        return await self._exporter.stored(run_id, whole=False)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run, from all its executions. `HistoryGone` if the server has deleted one of them."""
        return await self._exporter.stored(run_id, whole=True)

    async def history_problems(self, run_id: str) -> list[str]:
        """Return in words which histories of the run do not replay. No worker is needed, and no code."""
        from loom.temporal.workflow.runner import replay_problem  # only a replay needs all that a worker does

        namespace, converter = self.address.namespace, self.client.data_converter
        histories = self._reader.histories(run_id)
        problems = [await replay_problem(history, namespace, converter) async for history in histories]
        return [problem for problem in problems if problem is not None]

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """None: what a run was told is in its history."""
        del run_id, after
        return []

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick; `HistoryGone` if the server has deleted them."""
        return await self._reader.chunks(run_id, first_tick, limit)

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor; `HistoryGone` likewise."""
        return await self._reader.stream(run_id, cursor, limit)

    async def holder(self, row: RunRow) -> Holder | None:
        """Return the task queue: its workers move all runs."""
        del row
        return Holder(f"task queue {self._cluster.address.task_queue!r}", is_process=False)

    async def members(self) -> list[MemberState]:
        """Return who has asked the task queue for work in the last minutes, by the server's word."""
        address = self._cluster.address
        request = DescribeTaskQueueRequest(
            namespace=address.namespace,
            task_queue=TaskQueue(name=address.task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        with self._cluster.calling("list workers"):
            service = self._cluster.client.workflow_service
            told = await in_time(service.describe_task_queue(request, timeout=timedelta(seconds=PATIENT_S)))
        found = [
            MemberState(each.identity, True, seen=each.last_access_time.ToMicroseconds() / 1e6) for each in told.pollers
        ]
        return sorted(found, key=lambda member: member.name)

    async def counts(self) -> dict[str, int]:
        """Count runs by status: see `Visibility.counts`. The cluster owns them all, so `owned` is 0."""
        return await self._visibility.counts()

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """Return nothing: a cluster counts by status alone."""
        return []

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:  # noqa: ARG002 - the port's
        """Return nothing: visibility has no timers."""
        return {}

    async def size(self) -> None:
        """Return None: a cluster does not tell."""

    async def held_counts(self) -> dict[str, HeldRuns]:
        """Return nothing: a cluster counts by status alone."""
        return {}

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition that a run was started with, or that was saved."""
        return await self._documents.get(digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Save a definition for good."""
        await self._documents.save(digest, data)

    # -- entries ------------------------------------------------------------------------------------------------------

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Keep an entry. Versions grow over all kinds as far as the server's clock does."""
        return await self._entries.put(kind, PutEntry(key, data, expires_at, expect))

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired. A worker must be there, if there ever was an entry of this kind."""
        return await self._entries.get(kind, key)

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind after a key, in the order of keys."""
        return await self._entries.page(kind, after, limit)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """Delete an entry, if it is as expected."""
        return await self._entries.drop(kind, DropEntry(key, expect))

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """Do nothing: each write sweeps the expired entries of its kind."""
        del now, limit
        return 0


def _run_of(operation: Operation) -> str | None:
    return operation.run.row.run_id if isinstance(operation, ImportRun) else getattr(operation, "run_id", None)


def _told(outcome: Result | BaseException) -> Result:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _not_here(what: str) -> TypeError:
    return TypeError(f"{what} does not exist on Temporal: the cluster owns the runs.")
