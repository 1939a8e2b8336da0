"""Handlers of the compatible routes: names for the latest of their runs.

A handler begins, begins again after its end with the state of its last run, and is listed with what it waits for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import uuid
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from loom.api.times import moment
from loom.core.records import EventRecord
from loom.effects.off_loop import aside_if_large
from loom.runtime.durable.names import HANDLER, HANDLER_AGAIN, HANDLER_REQUEST, can_be_kept
from loom.runtime.durable.run_starter import start_spec
from loom.runtime.flow import Flow
from loom.runtime.render import cut_text, rendered_waiter
from loom.runtime.stored_run import last_published
from loom.server.answers import json_bytes
from loom.server.call import is_offered
from loom.server.caller_events import envelope, result_value
from loom.server.pages import PAGE_BYTES, read_cursor, rows_of, write_cursor
from loom.server.problems import invalid
from loom.server.waits import wait_for_end
from loom.steps.context import Context
from loom.steps.events import StopEvent
from loom.store.errors import CorruptRecord, RunNotFound, StoreError
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.api.compatible import Envelope, HandlerData, HandlerResult
    from loom.api.problems import RunStatus
    from loom.effects.event_codec import EventCodec
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Principal
    from loom.server.call import Call
    from loom.store.codec import StartSpec
    from loom.store.records import RunRow

# -- handlers and their runs ------------------------------------------------------------------------------------------


_LONG_S = 3600.0
_MAX_STEM = 180
"""The id of a run is no longer than 200 characters, whatever its number."""


class Result(NamedTuple):
    """What a completed run ended with, if that can be read."""

    event: StopEvent | None = None
    envelope: Envelope | None = None
    unreadable: bool = False


_NONE = Result()


def handler_of(row: RunRow) -> str:
    """Return the handler that a run belongs to. A run that was started by other means is its own."""
    return row.tags.get(HANDLER, row.run_id)


def number_of(row: RunRow) -> int:
    """Return the number of a run among its handler's runs, from 1."""
    number = row.tags.get(HANDLER_AGAIN, "")
    return int(number) if number.isdecimal() else 1


async def latest_run(runtime: WorkerRuntime, handler_id: str) -> RunRow | None:
    """Find the latest run of a handler; a run that belongs to none goes by its own id."""
    await runtime.ready()
    if not can_be_kept(handler_id):
        return None
    rows = await runtime.store.find(RunQuery(tags={HANDLER: handler_id}, limit=1))
    last = rows[0] if rows else await runtime.store.get(handler_id)
    # Not every store lists at once what another process has stored just now; by its id it is there.
    while last is not None and last.head.status != "running" and handler_of(last) == handler_id:
        later = (await run_after(runtime, last)).row
        if later is None:
            break
        last = later
    return last


class RunAfter(NamedTuple):
    """The run of a handler after another one."""

    number: int
    run_id: str
    row: RunRow | None
    """None: there is none yet."""


async def run_after(runtime: WorkerRuntime, last: RunRow) -> RunAfter:
    """Find the run of a handler after this one. Ids that look like it but belong to others are passed over."""
    handler_id, number = handler_of(last), number_of(last) + 1
    stem = handler_id if len(handler_id) <= _MAX_STEM else hashlib.sha256(handler_id.encode()).hexdigest()
    while (row := await runtime.store.get(f"{stem}~{number}")) is not None and handler_of(row) != handler_id:
        number += 1
    return RunAfter(number, f"{stem}~{number}", row)


async def until_ended(runtime: WorkerRuntime, run_id: str) -> RunRow:
    """Wait for the end of a run, however long that takes."""
    while True:
        row = await wait_for_end(runtime, run_id, _LONG_S)
        if row.head.status != "running":
            return row


async def result_of(runtime: WorkerRuntime, row: RunRow) -> Result:
    """Read the result of a run, which is the last event of its stream."""
    if row.head.status != "completed":
        return _NONE
    try:
        published = await last_published(runtime, row)
        if not isinstance(published, EventRecord):
            return Result(unreadable=True)
        read = partial(_result, runtime.codec_of(row))
        # Classes of authors have code of theirs, which belongs on the event loop.
        return read(published) if row.document is None else await aside_if_large(read, published)
    except (CorruptRecord, ValueError):
        # Its class is not known here, it is damaged, or a value of it has no JSON form: the run is over all the same.
        return Result(unreadable=True)


def _result(codec: EventCodec, published: EventRecord) -> Result:
    event = codec.event(published)
    return Result(event, envelope(event)) if isinstance(event, StopEvent) else Result(unreadable=True)


def handler_data(row: RunRow, result: Result = _NONE) -> HandlerData:
    """Render a handler as the models of the original client have it, with all their keys, and what it waits for."""
    head = row.head
    running = head.status == "running"
    return {
        "handler_id": handler_of(row),
        "workflow_name": row.workflow,
        "run_id": row.run_id,
        "status": head.status,
        "error": head.failed_with,
        "result": result.envelope,
        "result_unreadable": result.unreadable,
        "started_at": _iso(row.created_at),
        "updated_at": _iso(head.updated_at),
        "completed_at": _iso(row.ended_at),
        "idle_since": _iso(head.idle_since) if running else None,
        "active_waiters": [rendered_waiter(waiter) for waiter in json.loads(head.waiters)] if running else None,
    }


def unwrapped(data: HandlerData, result: Result) -> HandlerResult:
    """Replace the envelope of a result by the result itself."""
    return {**data, "result": result_value(result.event) if result.event is not None else None}


@overload
def _iso(seconds: float) -> str: ...
@overload
def _iso(seconds: float | None) -> str | None: ...
def _iso(seconds: float | None) -> str | None:
    """Write a time with its offset in digits, as the original does: not every `fromisoformat` reads a Z."""
    return moment(seconds).isoformat() if seconds is not None else None


# -- starting ---------------------------------------------------------------------------------------------------------


class HandlerBusy(Exception):
    """The handler cannot begin a run now; the text says why."""


class Beginning:
    """What a client has asked a workflow to begin with."""

    def __init__(self, code: Registration, inputs: Any, context: dict[str, Any] | None = None) -> None:
        self.code = code
        self._inputs = inputs
        self._context = context

    def spec(self) -> StartSpec:
        """Return what the run begins with.

        Of a context only the state counts: a run that it had begun stays where it is.
        """
        spec = start_spec(self.code, self.code.codec, self._inputs)
        staged = Context.from_dict(self.code.workflow, self._context)._staged if self._context else None
        if staged is None:
            return spec
        store, store_type = self.code.codec.store_values(staged)
        return replace(spec, store=store, store_type=store_type)


async def begin(runtime: WorkerRuntime, beginning: Beginning, handler_id: str | None, nonce: str | None) -> str:
    """Start a run for a handler and return the run's id, once it is stored.

    A handler that has ended begins again, in a run of its own, with the state that its last run left. Without a name
    it gets that of the request, if that has one, so that a request that is repeated finds its run.
    """
    await runtime.ready()
    name, spec = beginning.code.name, beginning.spec()
    if handler_id is None:
        handler_id = nonce or uuid.uuid4().hex
        await runtime.starter.store(name, handler_id, spec, {HANDLER: handler_id}, beginning.code)
        return handler_id
    tags = {HANDLER: handler_id} if nonce is None else {HANDLER: handler_id, HANDLER_REQUEST: nonce}
    last = await latest_run(runtime, handler_id)
    if last is None:
        return await _started(runtime, beginning, handler_id, spec, tags)
    if nonce is not None and last.tags.get(HANDLER_REQUEST) == nonce and last.workflow == name:
        return last.run_id
    _check_free(last, handler_id, name)
    if not spec.store and not isinstance(beginning.code.workflow, Flow):  # a flow has no state but that of its run
        try:
            state = await runtime.state_at(last.run_id)
        except RunNotFound:  # the handler was deleted since, so that this is its first run again
            return await begin(runtime, beginning, handler_id, nonce)
        spec = replace(spec, store=dict(state.store), store_type=state.store_type)
    after = await run_after(runtime, last)
    return await _started(runtime, beginning, after.run_id, spec, {**tags, HANDLER_AGAIN: str(after.number)})


async def _started(
    runtime: WorkerRuntime, beginning: Beginning, run_id: str, spec: StartSpec, tags: dict[str, str]
) -> str:
    """Start a run of this id. If another caller has started one since, it is refused, also if it began alike."""
    created = await runtime.starter.store(beginning.code.name, run_id, spec, tags, beginning.code)
    if not created:
        found, request = await runtime.row(run_id), tags.get(HANDLER_REQUEST)
        if request is None or found.tags.get(HANDLER_REQUEST) != request:
            raise HandlerBusy(f"The handler {tags[HANDLER]!r} is running.")
    return run_id


def _check_free(last: RunRow, handler_id: str, workflow: str) -> None:
    if last.workflow != workflow:
        # Which workflow has it may be none of the caller's business.
        raise HandlerBusy(f"The name {handler_id!r} is taken: choose another handler_id.")
    if handler_of(last) != handler_id:
        raise HandlerBusy(f"{handler_id!r} is a run of the handler {handler_of(last)!r}: choose another handler_id.")
    if last.head.status == "running":
        raise HandlerBusy(f"The handler {handler_id!r} is running.")


# -- listing ----------------------------------------------------------------------------------------------------------


MAX_HANDLERS = 10_000
"""How many are given at once to a client that does not say how many, as far as a page's bytes allow."""

_log = logging.getLogger("loom.server")

STATUSES: tuple[RunStatus, ...] = ("running", "completed", "failed", "cancelled")


class Filters(NamedTuple):
    """What a client asks for."""

    statuses: frozenset[str]
    workflows: frozenset[str]
    idle: bool | None
    idle_longer_than: float | None

    @property
    def digest(self) -> str:
        """Names these filters: a cursor goes on with the filters that it was made with."""
        text = json.dumps([sorted(self.statuses), sorted(self.workflows), self.idle, self.idle_longer_than])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def query(self, now: float, after: tuple[float, str] | None) -> RunQuery:
        """Make the query for the store. An unknown status matches nothing."""
        only_idle = self.idle is True or self.idle_longer_than is not None
        wanted = tuple(status for status in STATUSES if not self.statuses or status in self.statuses)
        return RunQuery(
            status=tuple(status for status in wanted if status == "running") if only_idle else wanted,
            workflow=tuple(sorted(self.workflows)) or None,
            idle=True if only_idle else self.idle,
            idle_before=now - self.idle_longer_than if self.idle_longer_than is not None else None,
            after=after,
        )


def filters_of(call: Call) -> Filters:
    """Read the filters of a request. Empty values mean none."""
    query = call.request.query_params
    return Filters(
        frozenset(filter(None, query.getlist("status"))),
        frozenset(filter(None, query.getlist("workflow_name"))),
        call.flag("idle"),
        call.seconds("idle_duration_gt"),
    )


async def list_handlers(call: Call) -> Response:
    """List the handlers that a request asks for, each with its latest run, up to a page's bytes."""
    filters = filters_of(call)
    limit = call.number("limit", least=1, most=MAX_HANDLERS) or MAX_HANDLERS
    runtime = call.runtime
    await runtime.ready()
    query = filters.query(runtime.now(), _read_cursor(call.query("cursor"), filters))
    found: list[bytes] = []
    size, last = 0, None
    async with aclosing(rows_of(runtime.store, query, sys.maxsize)) as rows:
        async for row in rows:
            if not _may_see(call.principal, row) or not await _is_latest(call, row):
                continue
            item = await _item(call, row)
            size += len(item)
            if last is not None and size > PAGE_BYTES:
                # Clients of the original do not follow the cursor: the log is where their operator learns of it.
                _log.warning(
                    "GET /handlers gave %d handlers, which have %d bytes, and a cursor: there are more.",
                    len(found),
                    size - len(item),
                )
                return _page(found, write_cursor(last.created_at, last.run_id, filters.digest))
            found.append(item)
            last = row
            if len(found) == limit:
                return _page(found, await _next_cursor(call, query, row, filters))
    return _page(found, None)


def _page(found: list[bytes], cursor: str | None) -> Response:
    body = b'{"handlers":[%b],"next_cursor":%b}' % (b",".join(found), json.dumps(cursor).encode())
    return Response(body, media_type="application/json")


async def _item(call: Call, row: RunRow) -> bytes:
    """Write a handler for a list. One that cannot be shown says so in its own place, and the list goes on."""
    try:
        return await aside_if_large(json_bytes, handler_data(row, await result_of(call.runtime, row)))
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, CorruptRecord):
            raise  # it is the store that fails, not the row
        _log.exception("Run %s cannot be shown in a list.", row.run_id)
        text = cut_text(f"The run cannot be shown: {type(error).__name__}: {error}")
        bare = msgspec.structs.replace(row, head=msgspec.structs.replace(row.head, waiters=b"[]"))
        return json_bytes({**handler_data(bare, Result(unreadable=True)), "error": text, "active_waiters": None})


def _may_see(principal: Principal, row: RunRow) -> bool:
    return is_offered(row.workflow) and principal.sees(row.workflow)


async def _is_latest(call: Call, row: RunRow) -> bool:
    """Tell whether a handler's name means this run, not a later one. After a running one there is none."""
    if row.head.status == "running" or HANDLER not in row.tags:
        return True
    latest = await latest_run(call.runtime, row.tags[HANDLER])
    return latest is None or latest.run_id == row.run_id


async def _next_cursor(call: Call, query: RunQuery, last: RunRow, filters: Filters) -> str | None:
    """Return where the next page begins; None if nothing more is stored."""
    behind = msgspec.structs.replace(query, after=(last.created_at, last.run_id), limit=1)
    if not await call.runtime.store.find(behind):
        return None
    return write_cursor(last.created_at, last.run_id, filters.digest)


def _read_cursor(cursor: str | None, filters: Filters) -> tuple[float, str] | None:
    if not cursor:
        return None
    created_at, run_id, digest = read_cursor(cursor, tuple[float, str, str])
    if digest != filters.digest or not can_be_kept(run_id):
        raise invalid("The cursor belongs to other filters.")
    return created_at, run_id
