"""`GET /handlers`: the handlers that match, newest first. May import loom.runtime and loom.store."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.responses import Response

from loom.effects.threads import aside_if_large
from loom.runtime.durable.names import can_be_kept
from loom.runtime.views import cut_text
from loom.server.compat_handlers import Result, handler_data, handler_json, latest_run, result_of
from loom.server.compat_workflows import is_offered
from loom.server.cursors import read_cursor, write_cursor
from loom.server.problems import invalid
from loom.server.views import HANDLER, PAGE_BYTES, rows_of
from loom.store.errors import CorruptRecord, StoreError
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from loom.server.auth import Principal
    from loom.server.routing import Call
    from loom.store.records import RunRow, RunStatus

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
        """The same for the store. An unknown status matches nothing."""
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
    """The filters of a request. Empty values mean none."""
    query = call.request.query_params
    return Filters(
        frozenset(filter(None, query.getlist("status"))),
        frozenset(filter(None, query.getlist("workflow_name"))),
        call.flag("idle"),
        call.seconds("idle_duration_gt"),
    )


async def list_handlers(call: Call) -> Response:
    """The handlers that a request asks for, each with its latest run, up to a page's bytes."""
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
    """A handler, written out. One that cannot be shown says so in its own place, and the list goes on."""
    try:
        return await aside_if_large(handler_json, handler_data(row, await result_of(call.runtime, row)))
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, CorruptRecord):
            raise  # it is the store that fails, not the row
        _log.exception("Run %s cannot be shown in a list.", row.run_id)
        text = cut_text(f"The run cannot be shown: {type(error).__name__}: {error}")
        bare = msgspec.structs.replace(row, head=msgspec.structs.replace(row.head, waiters=b"[]"))
        return handler_json({**handler_data(bare, Result(unreadable=True)), "error": text, "active_waiters": None})


def _may_see(principal: Principal, row: RunRow) -> bool:
    return is_offered(row.workflow) and principal.sees(row.workflow)


async def _is_latest(call: Call, row: RunRow) -> bool:
    """Whether a handler's name stands for this run, not for a later one. Behind one that runs there is none."""
    if row.head.status == "running" or HANDLER not in row.tags:
        return True
    latest = await latest_run(call.runtime, row.tags[HANDLER])
    return latest is None or latest.run_id == row.run_id


async def _next_cursor(call: Call, query: RunQuery, last: RunRow, filters: Filters) -> str | None:
    """Where to go on; None if nothing more is stored."""
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
