"""The streams of runs over HTTP, on both faces: read from the store, sent to readers, broken when the server stops.

A reader has a position and nothing else: what it has not asked for yet stays in the store, however slow it is. A stream
that reached its end is ended. One that did not is broken: the connection closes in the middle of the answer, for a
client takes a clean end for the end of the run.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta
from starlette.responses import Response
from typing_extensions import override

from loom.api.runs import StreamEvent
from loom.core.records import CancelledReport, EventRecord, FailedReport, Failure
from loom.effects.off_loop import OFF_LOOP_BYTES, aside, is_heavier
from loom.flows.calls import FlowEnd
from loom.runtime.streams import entry as own_entry
from loom.runtime.streams import envelope, is_internal, is_last, one_line, own_fields, shown
from loom.server.auth import holder_parts
from loom.server.caller_events import fields_of
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import LAST_EVENT_ID, Cursor, Param, Reply, RouteList
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Message, Receive, Scope, Send

    from loom.core.records import Published
    from loom.effects.stored_codec import StoredEventCodec
    from loom.runtime.durable.readers import Decoded, News
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.streams import Shown
    from loom.server.call import Call
    from loom.steps.events import Event
    from loom.store.records import Chunk, RunRow

route = RouteList("runs")

# -- reading ----------------------------------------------------------------------------------------------------------


_FIRST_CHUNKS = 4
_MAX_CHUNKS = 32
_PAGE_BYTES = 256 * 1024


class StreamedEntry(NamedTuple):
    """One entry of a stream."""

    cursor: int
    at: float
    """The time of the commit that brought it."""
    published: Published


async def has_ended_before(runtime: WorkerRuntime, row: RunRow, position: int) -> bool:
    """Tell whether nothing can come at this position or after it: the stream ended before it."""
    if row.head.status != "running" and position >= row.head.events:
        return True
    if position == 0:
        return False
    chunks = await runtime.store.stream(row.run_id, position - 1, 1)
    for chunk in chunks:
        index = position - 1 - chunk.first_cursor
        return index >= 0 and is_last((await runtime.decoded.decode(row.run_id, chunk)).published[index])
    return False


class StreamReader:
    """One reader of one run's stream."""

    def __init__(self, runtime: WorkerRuntime, run_id: str, position: int) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self._limit = _FIRST_CHUNKS
        self._waits = 0
        self._ended_at = 0.0
        self.position = position
        """The cursor of the next entry."""
        self.is_over = False
        """The stream has ended, and everything of it was read."""

    async def page(self, patience: float) -> list[Chunk]:
        """Read the next chunks. None come if the stream is over, or if nothing came for `patience` seconds.

        The caller goes through their `entries` before the next call.
        """
        runtime, run_id = self._runtime, self._run_id
        # Before the look, so that what comes between the look and the waiting is heard of.
        news = runtime.watchers.subscribe(run_id)
        try:
            chunks = await runtime.store.stream(run_id, self.position, self._limit)
            if chunks:
                self._waits = 0
                self._limit = _next_limit(chunks)
                if not chunks[-1].ticks:  # of an ended run some stores keep only the last event
                    self._ended_at = (await runtime.row(run_id)).head.updated_at
            elif not await self._ended():
                await self._wait(news, patience)
        finally:
            runtime.watchers.forget(run_id, news)
        return chunks

    async def _wait(self, news: News, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._runtime.news(news, self._waits)
        except TimeoutError:
            return  # it is time for a sign of life
        self._waits += 1

    async def _ended(self) -> bool:
        row = await self._runtime.row(self._run_id)
        self.is_over = row.head.status != "running" and self.position >= row.head.events
        return self.is_over

    async def entries(self, chunk: Chunk) -> Iterator[StreamedEntry]:
        """Iterate over the entries of a chunk from the reader's position on, which moves with them."""
        return self._entries(chunk.first_cursor, await self._runtime.decoded.decode(self._run_id, chunk))

    def _entries(self, first_cursor: int, decoded: Decoded) -> Iterator[StreamedEntry]:
        at = decoded.at if decoded.at is not None else self._ended_at
        self.position = max(self.position, first_cursor)  # what lies before it may have been pruned
        for entry in islice(decoded.published, self.position - first_cursor, None):
            self.position += 1
            # Behind a failure something may come, if the run is retried: then only the row tells the end.
            self.is_over = is_last(entry)
            yield StreamedEntry(self.position - 1, at, entry)
            if self.is_over:
                return


def _next_limit(chunks: list[Chunk]) -> int:
    """Return how many chunks to ask for, so that a page has a bounded size even where events are large."""
    size = sum(len(chunk.data) for chunk in chunks)
    return max(1, min(_MAX_CHUNKS, len(chunks) * _PAGE_BYTES // max(size, 1)))


# -- sending ----------------------------------------------------------------------------------------------------------


_log = logging.getLogger("loom.server")

_BLOCK = 32 * 1024
"""So much is written at once; then the reader must take it before more is made."""


class Form(Protocol):
    """How entries are written on one stream."""

    media_type: str

    def entry(self, entry: StreamedEntry) -> bytes:
        """Write an entry, or nothing if this reader does not want it."""
        ...

    def heartbeat(self, cursor: int) -> bytes:
        """Write a sign of life after the entry with this cursor."""
        ...


class _Ticket:
    """One open stream."""

    __slots__ = ("is_broken", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task: asyncio.Task[object] | None = task
        self.is_broken = False

    def break_off(self) -> None:
        """Stop it wherever it is, also while it waits for a reader that takes nothing."""
        if self.task is not None and not self.is_broken:
            self.is_broken = True
            self.task.cancel()


class OpenStreams:
    """The streams of one server."""

    def __init__(self, limit: int, retry_after: int = 1) -> None:
        self._limit = limit
        self._retry_after = retry_after
        self._tickets: dict[str, set[_Ticket]] = {}
        self._is_stopping = False
        self.on_open: Callable[[], None] = lambda: None
        """Called with every stream that is opened."""

    def __len__(self) -> int:
        return sum(len(tickets) for tickets in self._tickets.values())

    def check(self, holder: str) -> None:
        """Refuse a stream that would be one too many for its holder, or that would be broken at once."""
        headers = {"Retry-After": str(self._retry_after)}
        if self._is_stopping:
            raise ApiProblem("draining", "The server is stopping and opens no streams.", headers=headers)
        key_id = holder_parts(holder)[0]
        held = sum(len(tickets) for each, tickets in self._tickets.items() if holder_parts(each)[0] == key_id)
        if held >= self._limit:
            detail = f"This key has {self._limit} open streams, and may not have more: close some."
            raise ApiProblem("limited", detail, headers=headers)

    @contextmanager
    def opened(self, holder: str) -> Iterator[_Ticket]:
        """Count a stream while the current task feeds it."""
        task = asyncio.current_task()
        assert task is not None
        ticket = _Ticket(task)
        tickets = self._tickets.setdefault(holder, set())
        tickets.add(ticket)
        self.on_open()
        try:
            if self._is_stopping:
                ticket.break_off()
            yield ticket
        finally:
            ticket.task = None
            tickets.discard(ticket)
            if not tickets and self._tickets.get(holder) is tickets:
                del self._tickets[holder]

    def break_all(self) -> None:
        """The server stops: break every stream, so that its reader goes on elsewhere or later."""
        self._is_stopping = True
        for holder in self.holders():
            self.break_for(holder)

    def holders(self) -> list[str]:
        """Who has open streams."""
        return list(self._tickets)

    def break_for(self, holder: str) -> None:
        """Break the streams of one holder."""
        for ticket in list(self._tickets.get(holder, ())):
            ticket.break_off()


class StreamAnswer(Response):
    """An answer that is written as it comes, until its reader leaves or the server breaks it off."""

    def __init__(self, media_type: str, streams: OpenStreams, holder: str) -> None:
        self._streams = streams
        self._holder = holder
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.opened(self._holder) as ticket:
            listening = asyncio.create_task(_until_gone(receive, ticket))
            begun = False
            try:
                await self.prepare()
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                if scope["method"] != "HEAD":
                    await self.feed(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except asyncio.CancelledError:
                if not ticket.is_broken:
                    raise
                # To return without the last message is how an ASGI application breaks a connection.
                assert ticket.task is not None
                ticket.task.uncancel()
            except StoreError as error:
                if not begun:
                    raise  # the caller gets a problem
                _log.warning("A stream was broken: %s", error)
            finally:
                listening.cancel()
                self.release()

    async def prepare(self) -> None:
        """Do what must be done before the reader hears that the stream is open."""

    def release(self) -> None:
        """Let go of what `prepare` has made, if it has come so far."""

    @abstractmethod
    async def feed(self, send: Send) -> None:
        """Write the body, piece by piece. `StoreError` breaks the stream."""


class EventStream(StreamAnswer):
    """The answer that feeds one reader from the store."""

    def __init__(
        self, reader: StreamReader, form: Form, streams: OpenStreams, holder: str, heartbeat: float = 25.0
    ) -> None:
        super().__init__(form.media_type, streams, holder)
        self._reader = reader
        self._form = form
        self._heartbeat = heartbeat

    @override
    async def feed(self, send: Send) -> None:
        """Write until the stream is over. Only what a reader takes at once is in memory for it."""
        reader, loop = self._reader, asyncio.get_running_loop()
        await send(body_part(b""))  # the headers go out, though nothing may happen for long
        written_at = loop.time()
        while not reader.is_over:
            page = await reader.page(max(0.0, written_at + self._heartbeat - loop.time()))
            if await self._write(page, send):
                written_at = loop.time()
            elif loop.time() >= written_at + self._heartbeat:
                if beat := self._form.heartbeat(reader.position - 1):
                    await send(body_part(beat))
                written_at = loop.time()
            # A store in memory and a reader that takes everything would leave no turn to others.
            await asyncio.sleep(0)

    async def _write(self, page: list[Chunk], send: Send) -> bool:
        """Write the entries of a page; whether there was any for this reader."""
        block, wrote = bytearray(), False
        while page:
            # What was written is let go of: a reader that takes nothing may wait here for hours.
            for entry in await self._reader.entries(page.pop(0)):
                block += await _written(self._form, entry)
                if len(block) >= _BLOCK:
                    await send(body_part(bytes(block)))
                    block, wrote = bytearray(), True
                    # A reader that takes all at once lets `send` return at once: others have their turn between.
                    await asyncio.sleep(0)
            if self._reader.is_over:
                break
        if block:
            await send(body_part(bytes(block)))
        return wrote or bool(block)


async def _written(form: Form, entry: StreamedEntry) -> bytes:
    """Write an entry as a reader gets it. What flows have made may be large, and has no code of an author in it."""
    published = entry.published
    made = published.body if isinstance(published, EventRecord) else None
    if isinstance(made, msgspec.Struct) and is_heavier((made,), OFF_LOOP_BYTES):
        return await aside("convert", form.entry, entry)
    return form.entry(entry)


def body_part(data: bytes) -> Message:
    """Make a message with a piece of a body that goes on."""
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _until_gone(receive: Receive, ticket: _Ticket) -> None:
    """Wait until the reader has left. Nothing else tells it while there is nothing to write."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except ApiProblem as problem:
        _log.info("A stream was broken: %s", problem.detail)  # what was to come with the request never came
    ticket.break_off()


# -- what a request asks for ------------------------------------------------------------------------------------------


_SSE, _NDJSON = "text/event-stream", "application/x-ndjson"
_CURSOR = re.compile(r"-1|[0-9]{1,15}", re.ASCII)
_MAX_TYPES = 50


class _EventForm(ABC):
    """What both faces share: which entries a reader wants, and the frame around them."""

    _fields: Callable[[Event], dict[str, Any]] = staticmethod(own_fields)

    def __init__(self, codec: StoredEventCodec, *, sse: bool, internal: bool) -> None:
        self._codec = codec
        self._sse = sse
        self._internal = internal
        self.media_type = _SSE if sse else _NDJSON

    def entry(self, entry: StreamedEntry) -> bytes:
        """See `Form`."""
        if not self._internal and is_internal(entry.published):
            return b""
        data = self._data(entry, shown(entry.published, self._codec, self._fields))
        if not data:
            return b""
        return b"id: %d\ndata: %b\n\n" % (entry.cursor, data) if self._sse else data + b"\n"

    @abstractmethod
    def _data(self, entry: StreamedEntry, event: Shown) -> bytes:
        """An event as one line; nothing if this reader does not want it."""

    def heartbeat(self, cursor: int) -> bytes:
        """See `Form`. Lines of JSON have no form for it."""
        del cursor
        return b": heartbeat\n\n" if self._sse else b""


class CompatibleForm(_EventForm):
    """Envelopes, as the compatible routes have them."""

    _fields = staticmethod(fields_of)

    def __init__(self, codec: StoredEventCodec, *, sse: bool, internal: bool, qualified_name: bool) -> None:
        super().__init__(codec, sse=sse, internal=internal)
        self._qualified_name = qualified_name

    @override
    def _data(self, entry: StreamedEntry, event: Shown) -> bytes:
        ending = _failed_flow(entry.published)
        told = shown(ending, self._codec, self._fields) if ending is not None else event
        return one_line(envelope(told, qualified_name=self._qualified_name))


def _failed_flow(published: Published) -> FailedReport | CancelledReport | None:
    """How a flow ended that did not succeed, in the words for other workflows: its outputs alone would look like a
    result to clients that know nothing of flows.
    """
    end = published.body if isinstance(published, EventRecord) else None
    if not isinstance(end, FlowEnd) or end.status == "Succeeded":
        return None
    if end.status == "Cancelled":
        return CancelledReport()
    failed = (name for name, action in end.actions.items() if action.get("status") in ("Failed", "TimedOut"))
    message = (end.error or {}).get("message") or end.status
    return FailedReport(next(failed, ""), Failure("FlowFailed", str(message)))


class OwnForm(_EventForm):
    """Entries with their cursor and time, as `/v1` has them; only of some types, if any are named."""

    def __init__(self, codec: StoredEventCodec, *, sse: bool, internal: bool, types: frozenset[str]) -> None:
        super().__init__(codec, sse=sse, internal=internal)
        self._types = types

    @override
    def _data(self, entry: StreamedEntry, event: Shown) -> bytes:
        if self._types and not event.is_any(self._types):
            return b""
        return one_line(own_entry(event, entry.cursor, entry.at))

    @override
    def heartbeat(self, cursor: int) -> bytes:
        """The cursor without data: it moves also across what this reader does not get."""
        return b"id: %d\n\n" % cursor if self._sse and cursor >= 0 else super().heartbeat(cursor)


async def compatible_stream(call: Call, row: RunRow) -> Response:
    """`GET /events/{handler_id}` for the run that the handler id means now."""
    form = CompatibleForm(
        call.runtime.codec_of(row),
        sse=_flag(call, "sse", default=True),
        internal=_flag(call, "include_internal", default=False),
        qualified_name=_flag(call, "include_qualified_name", default=True),
    )
    return await _answer(call, row, form, _cursor(call, "after_sequence", "now"))


@route(
    "GET",
    "/v1/runs/{run_id}/stream",
    "streamRun",
    scope="read",
    summary="Read the events of a run as they come",
    description="Server-sent events, or lines of JSON if `Accept` names them first.",
    params=(
        Param("after", Cursor | Literal["now"], "The cursor behind which to begin: -1, the beginning, if not said."),
        Param("internal", bool, "With the engine's own events too."),
        Param("type", list[Annotated[str, Meta(min_length=1)]], "Only events of these types, by name."),
        LAST_EVENT_ID,
    ),
    replies={
        200: Reply("The events; the stream ends with the run.", StreamEvent, is_stream=True),
        204: Reply("The stream has ended before this cursor."),
    },
    problems=("draining",),
)
async def own_stream(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/stream`."""
    call.check_query()
    types = frozenset(call.request.query_params.getlist("type"))
    if len(types) > _MAX_TYPES or "" in types:
        raise invalid(f"The parameter 'type' is the name of an event, and may be given {_MAX_TYPES} times.")
    row = await call.row()
    form = OwnForm(
        call.runtime.codec_of(row),
        sse=wants_sse(call.request.headers.get("accept", "")),
        internal=_flag(call, "internal", default=False),
        types=types,
    )
    return await _answer(call, row, form, _cursor(call, "after", "-1"))


async def _answer(call: Call, row: RunRow, form: Form, after: int | None) -> Response:
    """Answer with the stream after a cursor, or from now on; 204 where nothing can come any more."""
    position = row.head.events if after is None else after + 1
    if await has_ended_before(call.runtime, row, position):
        return Response(status_code=204)
    # Last, for nothing is awaited between here and the moment where the stream counts.
    call.server.open_streams.check(call.principal.holder)
    reader = StreamReader(call.runtime, row.run_id, position)
    return EventStream(reader, form, call.server.open_streams, call.principal.holder, call.settings.heartbeat)


def _cursor(call: Call, name: str, default: str) -> int | None:
    """Read the cursor of the last entry that a reader has; None: it wants only what comes from now on."""
    resumed = call.request.headers.get("last-event-id", "").strip()
    given = resumed or call.query(name) or default
    if given == "now":
        return None
    if _CURSOR.fullmatch(given) is None:
        what = "The header Last-Event-ID" if resumed else f"The parameter {name!r}"
        raise invalid(f"{what} must be -1, the id of an event, or now.")
    return int(given)


def _flag(call: Call, name: str, *, default: bool) -> bool:
    given = call.flag(name)
    return default if given is None else given


def wants_sse(accept: str) -> bool:
    """Whether a reader gets server-sent events, which it does unless it asks for lines of JSON first."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    wanted = next((kind for kind in kinds if kind in (_SSE, _NDJSON, "application/ndjson")), _SSE)
    return wanted == _SSE
