"""Runs of a cluster as records of a store: rows from memos and close events, and whole runs for export."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from temporalio.common import RawValue

from loom.store import codec
from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.records import RunHead, RunRow, Snapshot, StoredRun, TimerRow
from loom.temporal.client.cluster import NotThere
from loom.temporal.names import CLOSE_EVENTS, MEMO_RUN, QUERY_ORIGIN, QUERY_STATE
from loom.temporal.payloads import Ending, RunMetadata, StartArgument, value_of

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import WorkflowExecution

    from loom.core.state import BrokerState
    from loom.store.operations import StartRun
    from loom.store.records import Chunk
    from loom.temporal.client.cluster import Cluster
    from loom.temporal.client.reads import RunReader

# -- metadata and rows ------------------------------------------------------------------------------------------------


def start_digest(start: bytes) -> str:
    """Return a digest that tells starts from each other."""
    return blake2b(start, digest_size=16).hexdigest()


def metadata_of_start(asked: StartRun, attributes: bool) -> RunMetadata:
    """Return the metadata of a run that is to be started."""
    return RunMetadata(
        asked.run_id,
        asked.workflow,
        asked.created_at,
        tags=dict(asked.tags),
        parent=asked.parent,
        parent_ref=asked.parent_ref,
        document=asked.document[0] if asked.document is not None else None,
        attributes=attributes,
        start=start_digest(asked.start),
    )


def metadata_of_row(row: RunRow, start: bytes, attributes: bool) -> RunMetadata:
    """Return the metadata of a run that was imported, or is retried."""
    return RunMetadata(
        row.run_id,
        row.workflow,
        row.created_at,
        tags=dict(row.tags),
        parent=row.parent,
        parent_ref=row.parent_ref,
        forked_from=row.forked_from,
        document=row.document,
        attributes=attributes,
        start=start_digest(start),
    )


async def metadata_in_memo(execution: WorkflowExecution) -> RunMetadata | None:
    """Return the metadata of an execution; None if it is not a Loom run."""
    found = await execution.memo_value(MEMO_RUN, None, type_hint=RawValue)
    if found is None:
        return None
    try:
        return value_of(found.payload, RunMetadata)
    except ValueError:
        return None  # a memo of another application, by the same name


def row_of_metadata(metadata: RunMetadata, head: RunHead | None = None, ended_at: float | None = None) -> RunRow:
    """Return the row of a run of which only the metadata is known, and perhaps its head."""
    return RunRow(
        metadata.run_id,
        metadata.workflow,
        metadata.created_at,
        head if head is not None else RunHead("running", 0, 0, metadata.created_at),
        tags=metadata.tags,
        ended_at=ended_at,
        parent=metadata.parent,
        parent_ref=metadata.parent_ref,
        forked_from=metadata.forked_from,
        document=metadata.document,
    )


def row_unanswered(metadata: RunMetadata, why: str) -> RunRow:
    """Return the row of an open run for which no worker answers; `why` becomes its error."""
    return row_of_metadata(metadata, RunHead("running", 0, 0, metadata.created_at, error=why))


# -- how a run ended --------------------------------------------------------------------------------------------------

_CLOSED_OTHERWISE = {
    "workflow_execution_terminated_event_attributes": "It was terminated on Temporal",
    "workflow_execution_timed_out_event_attributes": "It was timed out by Temporal",
    "workflow_execution_failed_event_attributes": "It has failed on Temporal",
}


def is_closing(event: HistoryEvent) -> bool:
    """Say whether an event closes a run."""
    return event.WhichOneof("attributes") in CLOSE_EVENTS


def how_closed(event: HistoryEvent) -> str:
    """Say in words how an execution was closed that did not end by itself."""
    kind = event.WhichOneof("attributes") or ""
    failure = event.workflow_execution_failed_event_attributes.failure
    reason = failure.message or (getattr(getattr(event, kind), "reason", "") if kind else "")
    words = _CLOSED_OTHERWISE.get(kind, "Its execution on Temporal was closed, and does not say how the run ended")
    return f"{words}: {reason}" if reason else f"{words}."


def row_closed_otherwise(metadata: RunMetadata, event: HistoryEvent) -> RunRow:
    """Return the row of a run whose execution did not end by itself."""
    error = how_closed(event)
    at = event.event_time.ToMicroseconds() / 1_000_000
    return row_of_metadata(metadata, RunHead("failed", 0, 0, at, needs_worker=False, error=error), ended_at=at)


def ending_payload(event: HistoryEvent) -> Payload | None:
    """Return the payload of a close event that holds the run's ending; None if there is none."""
    attributes: Any
    match event.WhichOneof("attributes"):
        case "workflow_execution_completed_event_attributes":
            found = event.workflow_execution_completed_event_attributes.result.payloads
        case "workflow_execution_failed_event_attributes":
            attributes = event.workflow_execution_failed_event_attributes
            found = attributes.failure.application_failure_info.details.payloads
        case "workflow_execution_canceled_event_attributes":
            found = event.workflow_execution_canceled_event_attributes.details.payloads
        case _:
            return None
    return found[0] if found else None


async def ending_in(cluster: Cluster, event: HistoryEvent) -> Ending | None:
    """Return how a run ended, by its close event; None if the event does not say it."""
    payload = ending_payload(event)
    if payload is None:
        return None
    try:
        return value_of(await cluster.plain(payload), Ending)
    except ValueError:
        return None  # the result of a workflow that is not Loom's


# -- how a run began --------------------------------------------------------------------------------------------------


class ExecutionOrigin:
    """The start of an execution, by its first event, and the executions before it."""

    def __init__(self, argument: StartArgument | None, event: HistoryEvent) -> None:
        started = event.workflow_execution_started_event_attributes
        self.argument = argument
        """None if it is not a Loom run."""
        self.workflow = started.workflow_type.name
        self.execution = started.original_execution_run_id
        self.first = started.first_execution_run_id
        self.previous = started.continued_execution_run_id or (argument.previous if argument is not None else "")

    @property
    def start(self) -> bytes:
        """Return the start of the run; an empty one if this execution does not know it."""
        argument = self.argument
        if argument is not None and argument.start is not None:
            return argument.start.encode()
        if argument is not None and argument.stored is not None:
            return argument.stored.start
        return codec.encode_start(codec.StartSpec())

    @property
    def document(self) -> bytes | None:
        """Return the text of the flow; None for a workflow in Python."""
        argument = self.argument
        if argument is None:
            return None
        if argument.document is not None:
            return argument.document.encode()
        return argument.stored.document if argument.stored is not None else None


async def read_origin(cluster: Cluster, run_id: str, execution: str = "") -> ExecutionOrigin:
    """Read the start of an execution from its history, without a worker. `NotThere`."""
    event = await cluster.first_event(run_id, execution)
    given = event.workflow_execution_started_event_attributes.input.payloads
    argument = None
    if given:
        try:
            argument = value_of(await cluster.plain(given[0]), StartArgument)
        except ValueError:
            argument = None  # the argument of a workflow that is not Loom's
    return ExecutionOrigin(argument, event)


# -- whole runs -------------------------------------------------------------------------------------------------------

_PAGE = 64
_TRIES = 10


def _timers(state: BrokerState) -> tuple[TimerRow, ...]:
    return tuple(TimerRow(number, timer.due, timer.purpose) for number, timer in sorted(state.timers.items()))


class RunExporter:
    """Puts together what the executions of a run have of it."""

    def __init__(self, cluster: Cluster, reader: RunReader) -> None:
        self._cluster = cluster
        self._reader = reader

    async def stored(self, run_id: str, *, whole: bool) -> StoredRun | None:
        """Return a run as a record of one moment: with its whole journal, or with its state alone."""
        try:
            origin = await self.origin(run_id)
        except NotThere:
            return None
        if origin.argument is None:
            return None
        for _ in range(_TRIES):
            row = await self._reader.row(run_id)
            if row is None:
                return None
            found = await self._at(row, origin, whole)
            if found is not None:
                return found
        raise StoreUnavailable(f"Run {run_id!r} moves too fast to be read as a whole: pause it, or try again.")

    async def _at(self, row: RunRow, origin: ExecutionOrigin, whole: bool) -> StoredRun | None:
        """Return the run at the tick that its row has; None if the run has moved on since."""
        run_id, ticks = row.run_id, row.head.ticks
        text = await self._document(row, origin)
        if not ticks:
            return StoredRun(row, origin.start, None, (), document=text)
        data = await self.state(run_id)
        state = codec.decode_state(run_id, data)
        if state.ticks != ticks:
            return None
        chunks = await self._all_chunks(run_id, ticks) if whole else ()
        if chunks is None:
            return None
        return StoredRun(
            row,
            origin.start,
            Snapshot(ticks, data),
            chunks,
            timers=_timers(state) if row.head.status == "running" else (),
            event_ids=tuple(sorted(state.seen)) if whole else (),
            document=text,
        )

    async def _document(self, row: RunRow, origin: ExecutionOrigin) -> bytes | None:
        """Return the text of a run's flow. A run that was started without it got it from a worker."""
        if row.document is None or origin.document is not None:
            return origin.document
        argument = await self._cluster.query(row.run_id, QUERY_ORIGIN, StartArgument)
        return argument.document.encode() if argument.document is not None else None

    async def _all_chunks(self, run_id: str, ticks: int) -> tuple[Chunk, ...] | None:
        chunks: list[Chunk] = []
        position = 0
        while position < ticks:
            more = await self._reader.chunks(run_id, position, _PAGE)
            # The journal of an imported run may have been pruned in its first store.
            if not more or (chunks and more[0].first_tick != position):
                raise CorruptRecord(run_id, f"tick {position}", "the cluster does not tell it")
            chunks += more
            position = more[-1].first_tick + more[-1].ticks
        return tuple(chunks) if position == ticks else None

    async def state(self, run_id: str) -> bytes:
        """Return the state of a run, as the codec writes it."""
        return (await self._cluster.query_payload(run_id, QUERY_STATE)).data

    async def origin(self, run_id: str) -> ExecutionOrigin:
        """Return the start of a run, from the oldest execution that the cluster still has. `NotThere`."""
        newest = await read_origin(self._cluster, run_id)
        if newest.argument is None or newest.argument.carried is None:
            return newest
        try:
            return await read_origin(self._cluster, run_id, newest.first)
        except NotThere:
            return newest
