"""The feed of changed runs: one stream for a whole list, instead of asking for the list again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.api.changes import Gone, Reset, RunChange
from loom.api.counts import Counts
from loom.api.requests import filter_parameters
from loom.api.runs import Run
from loom.effects.off_loop import aside_if_large
from loom.runtime.durable.change_batch import FeedView
from loom.server.answers import json_bytes
from loom.server.routes import NDJSON, SSE, Param, Reply, RouteList
from loom.server.streams import StreamAnswer, body_part, wants_sse
from loom.server.v1.runs import query_of_call

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Send

    from loom.runtime.durable.change_batch import FeedBatch, FeedItem
    from loom.runtime.durable.change_feed import ChangeFeed, FeedReader
    from loom.server.call import Call

route = RouteList("runs")

_OF_LISTS = ("order", "include", "idle_longer_than")
"""What only lists have: the feed has no order, and time that goes by changes no run."""
_RETRY = b"retry: 1000\n\n"
"""The milliseconds after which a browser connects again."""

_PARAMS = (
    *(Param(name, told.type, told.about) for name, told in filter_parameters() if name not in _OF_LISTS),
    Param("after", str, "The `id` of the last message that was read; without it the feed begins now."),
    Param("Last-Event-ID", str, "The `id` of the last message that was read; wins over the query.", "header"),
)


@route(
    "GET",
    "/v1/changes",
    "followChanges",
    scope="read",
    summary="Follow the runs of a list as they change",
    description="Server-sent events, or lines of JSON if `Accept` names them first. `run`: a run that has changed, as "
    "lists show it; of several changes at once only the last is told. `gone`: it was deleted, or the filters do not "
    "mean it any more. `counts`: at the beginning, and when they change. `reset`: changes were missed, load the list "
    "again. A cursor holds on every server of the store. A repeated message is no error. On Temporal changes come as "
    "late as in lists, and not all of them.",
    params=_PARAMS,
    replies={
        200: Reply(
            "The changes; the feed does not end.", RunChange, is_stream=True, event_data=(Run, Gone, Counts, Reset)
        )
    },
    problems=("draining",),
)
async def changes(call: Call) -> Response:
    """`GET /v1/changes`."""
    call.check_query()
    query = query_of_call(call)
    after = call.request.headers.get("last-event-id", "").strip() or call.query("after") or None
    view = FeedView(query, call.principal.workflows, query.workflows)
    call.server.open_streams.check(call.principal.holder)
    return ChangeStream(call, view, after, sse=wants_sse(call.request.headers.get("accept", "")))


class ChangeStream(StreamAnswer):
    """The answer that feeds one reader of changes."""

    def __init__(self, call: Call, view: FeedView, after: str | None, *, sse: bool) -> None:
        super().__init__(SSE if sse else NDJSON, call.server.open_streams, call.principal.holder)
        self._changes: ChangeFeed = call.runtime.change_feed
        self._heartbeat = call.settings.heartbeat
        self._view = view
        self._after = after
        self._sse = sse
        self._reader: FeedReader | None = None

    @override
    async def prepare(self) -> None:
        """Mark the place first: a reader that loads its list once the feed is open has all that came before."""
        self._reader = await self._changes.open(self._view, self._after)

    @override
    def release(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @override
    async def feed(self, send: Send) -> None:
        """Write until the reader leaves. While it takes nothing, changes are coalesced for it."""
        reader = self._reader
        assert reader is not None
        await send(body_part(_RETRY if self._sse else b""))
        while True:
            batch = await reader.next(self._heartbeat)
            if batch is not None:
                await send(body_part(await self._written(batch)))
            elif self._sse:
                await send(body_part(b": heartbeat\nid: %b\n\n" % reader.cursor.encode()))
            # A reader that takes all at once lets `send` return at once: others have their turn between.
            await asyncio.sleep(0)

    async def _written(self, batch: FeedBatch) -> bytes:
        """Write a batch, once for all readers that get the same one."""
        block = batch.blocks.get(self._sse)
        if block is None:
            block = batch.blocks[self._sse] = await _block(batch, sse=self._sse)
        return block


async def _block(batch: FeedBatch, *, sse: bool) -> bytes:
    parts: list[tuple[str, bytes]] = [("reset", b"{}")] if batch.is_reset else []
    parts += [("gone" if item.run is None else "run", await _json(item)) for item in batch.items.values()]
    if batch.counts is not None:
        parts.append(("counts", json_bytes(batch.counts)))
    before, last = (batch.before.encode(), batch.cursor.encode())
    form = b"event: %b\nid: %b\ndata: %b\n\n" if sse else b'{"event":"%b","id":"%b","data":%b}\n'
    # Until the last message, the cursor before all of them holds.
    return b"".join(
        form % (event.encode(), last if number == len(parts) else before, data)
        for number, (event, data) in enumerate(parts, 1)
    )


async def _json(item: FeedItem) -> bytes:
    """Write a run, once for all batches that it is in."""
    if item.written is None:
        told: Any = item.run if item.run is not None else Gone(run_id=item.run_id)
        item.written = await aside_if_large(json_bytes, told)
    return item.written
