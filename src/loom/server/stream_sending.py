"""Open streams: how a reader is fed, and how all of them are broken when the server stops.

A stream that reached its end is ended. One that did not is broken: the connection closes in the middle of the answer,
for a client takes a clean end for the end of the run. May import starlette and the server's other stream modules.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
from starlette.responses import Response
from typing_extensions import override

from loom.core.records import EventRecord
from loom.effects.threads import OFF_LOOP_BYTES, aside
from loom.effects.weight import is_heavier
from loom.server.problems import ApiProblem
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Message, Receive, Scope, Send

    from loom.server.stream_reading import Entry, StreamReader
    from loom.store.records import Chunk

_log = logging.getLogger("loom.server")

_BLOCK = 32 * 1024
"""So much is written at once; then the reader must take it before more is made."""


class Form(Protocol):
    """How entries are written on one stream."""

    media_type: str

    def entry(self, entry: Entry) -> bytes:
        """An entry, or nothing if this reader does not want it."""
        ...

    def heartbeat(self, cursor: int) -> bytes:
        """A sign of life behind the entry with this cursor."""
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
        """Refuse a stream that would be one too many for whoever asks, or that would be broken at once."""
        headers = {"Retry-After": str(self._retry_after)}
        if self._is_stopping:
            raise ApiProblem("draining", "The server is stopping and opens no streams.", headers=headers)
        if len(self._tickets.get(holder, ())) >= self._limit:
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


class EventStream(Response):
    """The answer that feeds one reader from the store."""

    def __init__(
        self, reader: StreamReader, form: Form, streams: OpenStreams, holder: str, heartbeat: float = 25.0
    ) -> None:
        self._reader = reader
        self._form = form
        self._streams = streams
        self._holder = holder
        self._heartbeat = heartbeat
        self.status_code = 200
        self.media_type = form.media_type
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.opened(self._holder) as ticket:
            listening = asyncio.create_task(_until_gone(receive, ticket))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                if scope["method"] != "HEAD":
                    await self._feed(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except asyncio.CancelledError:
                if not ticket.is_broken:
                    raise
                # To return without the last message is how an ASGI application breaks a connection.
                assert ticket.task is not None
                ticket.task.uncancel()
            except StoreError as error:
                _log.warning("A stream was broken: %s", error)
            finally:
                listening.cancel()

    async def _feed(self, send: Send) -> None:
        """Write until the stream is over. Only what a reader takes at once is in memory for it."""
        reader, loop = self._reader, asyncio.get_running_loop()
        await send(_body(b""))  # the headers go out, though nothing may happen for long
        written_at = loop.time()
        while not reader.is_over:
            page = await reader.page(max(0.0, written_at + self._heartbeat - loop.time()))
            if await self._write(page, send):
                written_at = loop.time()
            elif loop.time() >= written_at + self._heartbeat:
                if beat := self._form.heartbeat(reader.position - 1):
                    await send(_body(beat))
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
                    await send(_body(bytes(block)))
                    block, wrote = bytearray(), True
                    # A reader that takes all at once lets `send` return at once: others have their turn between.
                    await asyncio.sleep(0)
            if self._reader.is_over:
                break
        if block:
            await send(_body(bytes(block)))
        return wrote or bool(block)


async def _written(form: Form, entry: Entry) -> bytes:
    """Write an entry as a reader gets it. What flows have made may be large, and has no code of an author in it."""
    published = entry.published
    made = published.body if isinstance(published, EventRecord) else None
    if isinstance(made, msgspec.Struct) and is_heavier((made,), OFF_LOOP_BYTES):
        return await aside("convert", form.entry, entry)
    return form.entry(entry)


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _until_gone(receive: Receive, ticket: _Ticket) -> None:
    """Wait until the reader has left. Nothing else tells it while there is nothing to write."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except ApiProblem as problem:
        _log.info("A stream was broken: %s", problem.detail)  # what was to come with the request never came
    ticket.break_off()
