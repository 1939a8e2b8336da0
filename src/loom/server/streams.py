"""The streams of runs over HTTP, on both faces: what a request asks for, and the answer that serves it.

`/v1` and the compatible routes have the same cursors and the same reader; they differ in parameters and in what an
entry looks like. May import starlette, loom.core, loom.flows, loom.runtime and the rest of the server's frame.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from typing_extensions import override

from loom.core.records import EventRecord, Failure
from loom.core.reports import CancelledReport, FailedReport
from loom.flows.calls import FlowEnd
from loom.runtime.stream_ends import is_for_few
from loom.runtime.stream_entries import entry as own_entry
from loom.runtime.stream_entries import envelope, one_line, own_fields, shown
from loom.server.compat_events import fields_of
from loom.server.problems import invalid
from loom.server.routing import Route
from loom.server.stream_reading import StreamReader, has_ended_before
from loom.server.stream_sending import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.reports import Published
    from loom.effects.stored import StoredBodies
    from loom.runtime.stream_entries import Shown
    from loom.server.routing import Call
    from loom.server.stream_reading import Entry
    from loom.server.stream_sending import Form
    from loom.steps.events import Event
    from loom.store.records import RunRow

_SSE, _NDJSON = "text/event-stream", "application/x-ndjson"
_CURSOR = re.compile(r"-1|[0-9]{1,15}", re.ASCII)
_MAX_TYPES = 50


class _EventForm(ABC):
    """What both faces share: which entries a reader wants, and the frame around them."""

    _fields: Callable[[Event], dict[str, Any]] = staticmethod(own_fields)

    def __init__(self, convert: StoredBodies, *, sse: bool, internal: bool) -> None:
        self._convert = convert
        self._sse = sse
        self._internal = internal
        self.media_type = _SSE if sse else _NDJSON

    def entry(self, entry: Entry) -> bytes:
        """See `Form`."""
        if not self._internal and is_for_few(entry.published):
            return b""
        data = self._data(entry, shown(entry.published, self._convert, self._fields))
        if not data:
            return b""
        return b"id: %d\ndata: %b\n\n" % (entry.cursor, data) if self._sse else data + b"\n"

    @abstractmethod
    def _data(self, entry: Entry, event: Shown) -> bytes:
        """An event as one line; nothing if this reader does not want it."""

    def heartbeat(self, cursor: int) -> bytes:
        """See `Form`. Lines of JSON have no form for it."""
        del cursor
        return b": heartbeat\n\n" if self._sse else b""


class CompatibleForm(_EventForm):
    """Envelopes, as the compatible routes have them."""

    _fields = staticmethod(fields_of)

    def __init__(self, convert: StoredBodies, *, sse: bool, internal: bool, qualified_name: bool) -> None:
        super().__init__(convert, sse=sse, internal=internal)
        self._qualified_name = qualified_name

    @override
    def _data(self, entry: Entry, event: Shown) -> bytes:
        ending = _failed_flow(entry.published)
        told = shown(ending, self._convert, self._fields) if ending is not None else event
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
    """Entries with their cursor and time, as `/v1` has them; only those of some types, if any are named."""

    def __init__(self, convert: StoredBodies, *, sse: bool, internal: bool, types: frozenset[str]) -> None:
        super().__init__(convert, sse=sse, internal=internal)
        self._types = types

    @override
    def _data(self, entry: Entry, event: Shown) -> bytes:
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
        call.runtime.convert_of(row),
        sse=_flag(call, "sse", default=True),
        internal=_flag(call, "include_internal", default=False),
        qualified_name=_flag(call, "include_qualified_name", default=True),
    )
    return await _answer(call, row, form, _cursor(call, "after_sequence", "now"))


async def own_stream(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/stream`."""
    call.check_query("after", "internal", "type")
    types = frozenset(call.request.query_params.getlist("type"))
    if len(types) > _MAX_TYPES or "" in types:
        raise invalid(f"The parameter 'type' is the name of an event, and may be given {_MAX_TYPES} times.")
    row = await call.row()
    form = OwnForm(
        call.runtime.convert_of(row),
        sse=_wants_sse(call.request.headers.get("accept", "")),
        internal=_flag(call, "internal", default=False),
        types=types,
    )
    return await _answer(call, row, form, _cursor(call, "after", "-1"))


ROUTES = [Route("GET", "/v1/runs/{run_id}/stream", own_stream, "read")]


async def _answer(call: Call, row: RunRow, form: Form, after: int | None) -> Response:
    """The stream from behind a cursor, or from now on; 204 where nothing can come any more."""
    position = row.head.events if after is None else after + 1
    if await has_ended_before(call.runtime, row, position):
        return Response(status_code=204)
    # Last, for nothing is awaited between here and the moment where the stream counts.
    call.server.open_streams.check(call.principal.id)
    reader = StreamReader(call.runtime, row.run_id, position)
    return EventStream(reader, form, call.server.open_streams, call.principal.id, call.settings.heartbeat)


def _cursor(call: Call, name: str, default: str) -> int | None:
    """The cursor of the last entry that a reader has; None: it wants only what comes from now on."""
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


def _wants_sse(accept: str) -> bool:
    """Whether a reader gets server-sent events, which it does unless it asks for lines of JSON first."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    wanted = next((kind for kind in kinds if kind in (_SSE, _NDJSON, "application/ndjson")), _SSE)
    return wanted == _SSE
