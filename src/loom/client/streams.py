"""The events of a run as they come, and the changes of runs, across broken connections: no gap, no repeated event.

The cursor is the number of the last event that was seen. A stream that breaks is opened again after it. A stream that
ends is over only if the run is: something between server and client may have cut it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from loom.api.changes import typed_change
from loom.api.refusals import Problem
from loom.api.runs import Run, StreamEvent
from loom.client.errors import ClientError
from loom.client.exchange import passing, read, segment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from loom.api.changes import RunChange
    from loom.client.exchange import Exchange

# -- server-sent events -----------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """One message. A heartbeat has an id, perhaps, but no data."""

    id: str | None
    data: str | None
    event: str | None = None
    """Its name, if it has one."""


class Messages:
    """Takes bytes as they come, and gives the messages that are complete.

    Lines end with a line feed. Other characters that break lines in texts do not do so here: JSON may hold them.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id: str | None = None
        self._data: list[str] = []
        self._event: str | None = None
        self._begun = False

    def feed(self, received: bytes) -> Iterator[Message]:
        """Return the messages that end within these bytes."""
        searched = len(self._rest)
        self._rest += received
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0:
            line = self._rest[begin:end].decode("utf-8").removesuffix("\r")
            begin = end + 1
            if line:
                self._take(line)
            elif self._begun:
                yield self._complete()
        del self._rest[:begin]

    def _take(self, line: str) -> None:
        self._begun = True
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        elif field == "event":
            self._event = value

    def _complete(self) -> Message:
        message = Message(self._id, "\n".join(self._data) if self._data else None, self._event)
        self._id, self._data, self._event, self._begun = None, [], None, False
        return message


# -- the stream of a run ----------------------------------------------------------------------------------------------


SILENCE = 60.0
"""After how many seconds without a sign a stream counts as broken. Servers send a heartbeat every 25 seconds."""

_NOTHING_MORE = 204


class Reconnection:
    """Waits between the connections of one stream, and gives up where that is of no use."""

    def __init__(self, exchange: Exchange) -> None:
        self._retries = exchange.retries
        self._failures = 0

    def has_read(self) -> None:
        """Note that a connection has brought something."""
        self._failures = 0

    async def pause(self, error: ClientError | None) -> None:
        """Wait before the next connection, or raise the error."""
        self._failures += 1
        retries = self._retries
        delay = retries.delay(self._failures)
        if error is not None:
            delay = max(delay, error.retry_after or 0.0)
            if not passing(error) or self._failures >= retries.stream_attempts or delay > retries.patience:
                raise error
        await asyncio.sleep(delay)


class Reader:
    """Reads the stream of one run."""

    def __init__(
        self, exchange: Exchange, run_id: str, *, after: int, internal: bool, types: Sequence[str], silence: float
    ) -> None:
        self._exchange = exchange
        self._run_id = run_id
        self._path = f"/v1/runs/{segment(run_id)}"
        self._filter = {"internal": internal or None, "type": list(types) or None}
        self._silence = silence
        self._cursor = after
        self._again = Reconnection(exchange)
        self._ended = False
        """Whether the run was over before the stream was opened: what it brings then is all there is."""
        self._last_is_terminal = False
        self._over = False

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """Read all events after the cursor, until the run is over."""
        while not self._over:
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
                await self._after_a_clean_end()
            except ClientError as error:
                await self._again.pause(error)

    async def _connection(self) -> AsyncGenerator[StreamEvent]:
        """Read what one connection brings."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._cursor >= 0:
            headers["Last-Event-ID"] = str(self._cursor)
        params = {"after": self._cursor, **self._filter}
        call = read(f"{self._path}/stream", params=params, headers=headers, run_id=self._run_id)
        async with self._exchange.stream(call, self._silence) as response:
            if response.status_code == _NOTHING_MORE:
                self._over = True
                return
            messages = Messages()
            async for received in response.aiter_bytes():
                for message in messages.feed(received):
                    self._again.has_read()
                    event = self._advance(message)
                    if event is not None:
                        self._last_is_terminal = event.terminal
                        yield event

    def _advance(self, message: Message) -> StreamEvent | None:
        """Move the cursor. Heartbeats move it too, across events that were filtered out."""
        event = _event(message.data) if message.data is not None else None
        if event is not None:
            seq = event.seq
        elif message.id is not None and message.id.isdecimal():
            seq = int(message.id)
        else:
            return None
        if seq <= self._cursor:
            return None
        self._cursor = seq
        return event

    async def _after_a_clean_end(self) -> None:
        if self._over or self._ended or self._last_is_terminal:
            self._over = True
            return
        run = await self._exchange.ask(read(self._path, run_id=self._run_id), Run)
        self._ended = run.finished
        if not self._ended:
            await self._again.pause(None)


def _event(data: str) -> StreamEvent:
    try:
        return msgspec.json.decode(data, type=StreamEvent, strict=False)
    except msgspec.DecodeError as error:
        detail = f"The stream has brought something that is no event: {error}"
        raise ClientError(Problem(code="unexpected-answer", status=200, detail=detail)) from error


# -- the changes of runs ----------------------------------------------------------------------------------------------


async def follow_changes(
    exchange: Exchange, params: Mapping[str, Any], after: str | None, silence: float
) -> AsyncGenerator[RunChange]:
    """Read the changes of runs across broken connections, for ever."""
    again = Reconnection(exchange)
    cursor = after
    while True:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        call = read("/v1/changes", params={**params, "after": cursor}, headers=headers)
        try:
            async with exchange.stream(call, silence) as response:
                messages = Messages()
                async for received in response.aiter_bytes():
                    for message in messages.feed(received):
                        again.has_read()
                        cursor = message.id or cursor
                        change = _change(message)
                        if change is not None:
                            yield change
            await again.pause(None)
        except ClientError as error:
            await again.pause(error)


def _change(message: Message) -> RunChange | None:
    if message.data is None or message.event is None:
        return None
    try:
        return typed_change(message.event, message.id, message.data)
    except msgspec.DecodeError as error:
        detail = f"The feed has brought something that is no change: {error}"
        raise ClientError(Problem(code="unexpected-answer", status=200, detail=detail)) from error
