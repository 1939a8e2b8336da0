"""Writes to runs on a cluster: starts, imports, retries, messages, and purges.

A message is one signal. A query before it is needed only if this process does not know the run yet, or if the sender
gave an event id: only the run can say that it has had the event.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy

from loom.core.ticks import TickAddEvent, TickContinueRun, TickRetryRun
from loom.runtime.planners import flow_planner
from loom.store import codec
from loom.store.operations import Posted, Started
from loom.store.records import Snapshot, StoredRun
from loom.temporal.client.cluster import NoAnswer, NoSuchQuery, NotOpen, NotThere, is_open
from loom.temporal.client.records import (
    metadata_in_memo,
    metadata_of_row,
    metadata_of_start,
    read_origin,
    row_of_metadata,
    start_digest,
)
from loom.temporal.names import ATTRIBUTE_TAGS, MEMO_RUN, QUERY_SEEN, SIGNAL_MAIL, tag_keywords
from loom.temporal.payloads import RunMessage, StartArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.state import BrokerConfig
    from loom.core.ticks import WorkflowTick
    from loom.store.operations import ImportRun, PostMessage, StartRun
    from loom.store.records import RunRow
    from loom.temporal.client.cluster import Cluster
    from loom.temporal.client.entries import Documents
    from loom.temporal.client.reads import RunReader
    from loom.temporal.client.records import RunExporter
    from loom.temporal.payloads import NewCode, RunMetadata

_TAGS = SearchAttributeKey.for_keyword_list(ATTRIBUTE_TAGS)


def _as_asked(workflow: str, start: bytes) -> bytes:
    """Return a start as it is."""
    del workflow
    return start


# -- starts -----------------------------------------------------------------------------------------------------------


class Starter:
    """Starts the workflows that are runs."""

    def __init__(
        self,
        cluster: Cluster,
        reader: RunReader,
        exporter: RunExporter,
        documents: Documents,
        code_of: Callable[[str], NewCode | None],
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._exporter = exporter
        self._documents = documents
        self._code_of = code_of
        self.has_attributes = False
        """Whether the cluster has Loom's search attributes; the store sets it."""
        self.whole_start: Callable[[str, bytes], bytes] = _as_asked
        """Adds to the start of a workflow what only this process knows; the store's runtime sets it."""

    async def start(self, asked: StartRun) -> Started:
        """Accept a run; if there is one of this id already, say what that was started with."""
        metadata = metadata_of_start(asked, self.has_attributes)
        text: str | None = None
        if asked.document is not None:
            await self._documents.save(*asked.document)
            text = asked.document[1].decode()
        config = self._config(asked.workflow, asked.document[1] if asked.document is not None else None)
        # A run whose code is known begins in the workflow's sandbox, which reads no settings: so its client does.
        start = asked.start if config is None else self.whole_start(asked.workflow, asked.start)
        argument = StartArgument(metadata, start=start.decode(), config=config, document=text)
        message = None
        if asked.message is not None:
            message = RunMessage(tick_of(asked.message), began=(metadata.workflow, metadata.start))
        opened = await self._open(argument, message=message)
        if opened and message is None:
            started = Started(True)
        else:
            started = await self._found(asked, metadata if opened else None)
        if started.created:
            self._reader.began(row_of_metadata(metadata))
        return started

    async def _found(self, asked: StartRun, sent: RunMetadata | None) -> Started:
        """Return the run that has the id. Its metadata tell whether its start was the same, its history what it was.

        With `sent` the message of the start has reached it. If that is its metadata, it is the run that was started.
        """
        try:
            description = await self._cluster.describe(asked.run_id, wrote=sent is not None)
            metadata = await metadata_in_memo(description)
            if metadata is not None and metadata == sent:
                return Started(True)
            if metadata is not None and metadata.start == start_digest(asked.start):
                workflow = description.workflow_type or ""
                return Started(False, workflow, asked.start, posted=sent is not None and workflow == asked.workflow)
            origin = await self._exporter.origin(asked.run_id)
        except NotThere:
            return await self.start(asked)  # it was deleted in this moment
        return Started(False, origin.workflow, origin.start)

    async def bring(self, asked: ImportRun) -> bool:
        """Continue a run that was exported or forked; False if the id is taken."""
        stored = asked.run
        row = replace(stored.row, owner=None)
        if row.document is not None and stored.document is not None:
            await self._documents.save(row.document, stored.document)
        metadata = metadata_of_row(row, stored.start, self.has_attributes)
        config = self._config(row.workflow, stored.document)
        code = self._code_of(row.workflow) if stored.document is None else None
        keeps_timeout = code is not None and code.keeps_timeout
        argument = StartArgument(metadata, config=config, stored=replace(stored, row=row), keeps_timeout=keeps_timeout)
        brought = await self._open(argument)
        if brought:
            self._reader.began(row)
        return brought

    async def retry(self, asked: PostMessage) -> Posted:
        """Continue a failed run, in a new execution from the state that it had."""
        run_id, tick = asked.run_id, tick_of(asked)
        row = await self._reader.row(run_id)
        if row is None:
            return Posted("no_run")
        if row.head.status != "failed":
            return Posted("finished", status=row.head.status)
        description = await self._cluster.describe(run_id)
        origin = await self._exporter.origin(run_id)
        data = await self._exporter.state(run_id)
        snapshot = Snapshot(codec.decode_state(run_id, data).ticks, data)
        argument = StartArgument(
            metadata_of_row(row, origin.start, self.has_attributes),
            config=self._config(row.workflow, origin.document),
            stored=StoredRun(row, origin.start, snapshot, (), document=origin.document),
            retry=True,
            healing=tick if isinstance(tick, TickRetryRun) and tick.event is not None else None,
            previous=description.run_id,
        )
        if not await self._open(argument, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY):
            return Posted("finished", status="running")  # another client was faster
        self._reader.forget(run_id)
        return Posted("posted")

    def _config(self, workflow: str, document: bytes | None) -> BrokerConfig | None:
        """Return the code that a run begins with: that of its document, or of the workflow with its name."""
        if document is None:
            code = self._code_of(workflow)
            return code.config if code is not None else None
        from loom.flows.planner import flow_config  # a command that starts nothing must not wait for it

        return flow_config(flow_planner(document).program)

    async def _open(
        self,
        argument: StartArgument,
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
        message: RunMessage | None = None,
    ) -> bool:
        metadata = argument.metadata
        with suppress(NotThere):
            if await self._reader.is_deleted(metadata.run_id):
                reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE
        return await self._cluster.start(
            metadata.workflow,
            metadata.run_id,
            argument,
            memo={MEMO_RUN: metadata},
            attributes=_attributes(metadata),
            reuse=reuse,
            message=message,
        )


def _attributes(metadata: RunMetadata) -> TypedSearchAttributes | None:
    if not metadata.attributes:
        return None
    return TypedSearchAttributes([SearchAttributePair(_TAGS, tag_keywords(metadata.tags))])


# -- messages ---------------------------------------------------------------------------------------------------------

_SEEN_PATIENCE_S = 2.0


def tick_of(asked: PostMessage) -> WorkflowTick:
    """Return the tick of a message, with the id by which the run knows it if it comes again."""
    tick = codec.decode_tick(asked.data, asked.run_id)
    if asked.event_id is not None and isinstance(tick, TickAddEvent):
        return replace(tick, event_id=asked.event_id)
    return tick


class Sender:
    """Sends messages to runs, and says what became of them."""

    def __init__(self, cluster: Cluster, reader: RunReader, code_of: Callable[[str], NewCode | None]) -> None:
        self._cluster = cluster
        self._reader = reader
        self._code_of = code_of

    async def post(self, asked: PostMessage) -> Posted:
        """Send a message to a run."""
        run_id = asked.run_id
        row = self._reader.rows.get(run_id)
        if row is None:  # it may be a workflow that is not Loom's
            row = await self._reader.row(run_id)
        if row is None:
            return Posted("no_run")
        if asked.event_id is not None and row.head.status == "running" and await self._has_seen(run_id, asked.event_id):
            return Posted("repeated")
        if asked.limit is not None and row.head.kept >= asked.limit:
            return Posted("full", kept=row.head.kept)
        try:
            await self._cluster.signal(run_id, SIGNAL_MAIL, self._message(tick_of(asked), row))
        except NotThere:
            return await self._rejected(asked)
        return Posted("posted")

    def _message(self, tick: WorkflowTick, row: RunRow) -> RunMessage:
        """Make the message. A tick that continues a parked run brings the code with which it may go on."""
        code = self._code_of(row.workflow) if isinstance(tick, TickContinueRun) else None
        if code is None:
            return RunMessage(tick)
        return RunMessage(tick, code.config, keeps_timeout=code.keeps_timeout)

    async def _has_seen(self, run_id: str, event_id: str, *, only_open: bool = True) -> bool:
        """Say whether a run has had an event. If no worker can tell, it is sent: the run drops a repeated event."""
        try:
            return await self._cluster.query(
                run_id, QUERY_SEEN, bool, event_id, only_open=only_open, patience_s=_SEEN_PATIENCE_S
            )
        except (NoAnswer, NoSuchQuery, NotOpen, NotThere):
            return False

    async def _rejected(self, asked: PostMessage) -> Posted:
        """Say why the cluster did not take a message."""
        row = await self._reader.row(asked.run_id)
        if row is None:
            return Posted("no_run")
        if asked.event_id is not None and await self._has_seen(asked.run_id, asked.event_id, only_open=False):
            return Posted("repeated")
        return Posted("finished", status=row.head.status)


# -- purges -----------------------------------------------------------------------------------------------------------


class Purger:
    """Deletes closed runs, with all their executions.

    The server deletes a run when it has finished all work of its close, which may take a minute. In this process the
    run is gone at once, and its id is free.
    """

    def __init__(self, cluster: Cluster, reader: RunReader) -> None:
        self._cluster = cluster
        self._reader = reader

    async def purge(self, run_id: str, ended_before: float | None = None) -> bool:
        """Delete a run that has ended. False if there is none, it is open, or it has not ended before the time."""
        observed = await self._reader.observe(run_id, closed=True)
        if observed is None or observed.row.ended_at is None:
            return False
        if ended_before is not None and observed.row.ended_at >= ended_before:
            return False
        try:
            executions = await self._executions(run_id)
        except NotThere:
            return False  # another process has deleted it in this moment
        if not executions:
            return False
        for execution in executions:
            with suppress(NotThere):  # another process has deleted it, or the server by its retention
                await self._cluster.delete(run_id, execution)
        self._reader.hide(run_id, executions[0])
        return True

    async def _executions(self, run_id: str) -> list[str]:
        """Return the Temporal run ids of a run, newest first, as far back as they are kept; none if it is open."""
        newest = await self._cluster.describe(run_id)
        if is_open(newest):
            return []  # it was retried, or another run of the id was started, since it was read
        found = [newest.run_id or ""]
        while True:
            try:
                previous = (await read_origin(self._cluster, run_id, found[-1])).previous
            except NotThere:
                return found
            if not previous:
                return found
            found.append(previous)
