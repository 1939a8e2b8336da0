"""Pages of runs. Names and values of filters are those that are known here; anything else is refused.

May import the server's frame and loom.store.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from loom.runtime.durable.names import can_be_kept
from loom.server.answers import JsonAnswer
from loom.server.cursors import read_cursor, write_cursor
from loom.server.problems import invalid
from loom.server.routing import Route, check_id
from loom.server.views import PAGE_BYTES, rows_of, run_item
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.routing import Call
    from loom.server.shapes import Page
    from loom.store.records import RunStatus

_STATUSES = ("running", "completed", "failed", "cancelled")
_FILTERS = (
    "status", "workflow", "idle", "idle_longer_than", "waiting_for", "created_after", "created_before", "tag",
    "parent_id", "paused", "parked", "stuck", "order", "include", "limit", "cursor",
)  # fmt: skip
_ORDERS = ("-created_at", "created_at")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)


async def list_runs(call: Call) -> Response:
    """`GET /v1/runs`."""
    call.check_query(*_FILTERS)
    limit, with_result = call.page_size(), _wants_result(call)
    query = _query(call)
    mark = _mark(call, query)
    query = msgspec.structs.replace(query, after=_position(call.query("cursor"), mark))
    items: list[msgspec.Raw] = []
    size, cursor, last = 0, None, None
    if query.status == () or query.workflow == ():
        return _page(items, cursor)
    async with aclosing(rows_of(call.runtime.store, query, limit + 1)) as rows:
        async for row in rows:
            item = await run_item(call, row, with_result=with_result) if len(items) < limit else None
            size += len(bytes(item)) if item is not None else 0
            if item is None or (items and size > PAGE_BYTES):
                cursor = write_cursor(mark, last.created_at, last.run_id) if last is not None else None
                break
            items.append(item)
            last = row
    return _page(items, cursor)


def _page(items: list[msgspec.Raw], cursor: str | None) -> Response:
    page: Page[Any] = {"items": items, "next_cursor": cursor}
    return JsonAnswer(page)


def _wants_result(call: Call) -> bool:
    wanted = [part for each in call.request.query_params.getlist("include") for part in each.split(",")]
    for part in wanted:
        if part != "result":
            raise invalid(f"The parameter 'include' has no {part[:100]!r}: use result.")
    return bool(wanted)


def _query(call: Call) -> RunQuery:
    given = call.request.query_params
    statuses = given.getlist("status")
    for status in statuses:
        if status not in _STATUSES:
            raise invalid(f"The status {status[:100]!r} is not known: use {', '.join(_STATUSES)}.")
    longer, idle = call.seconds("idle_longer_than"), call.flag("idle")
    if longer is not None and idle is False:
        raise invalid("idle_longer_than means runs that are idle, and idle=false those that are not.")
    wanted = cast("tuple[RunStatus, ...]", tuple(statuses)) or None
    if longer is not None or idle:
        idle, wanted = True, ("running",) if not statuses or "running" in statuses else ()
    given_order = call.query("order")
    order = given_order if given_order is not None else _ORDERS[0]
    if order not in _ORDERS:
        raise invalid(f"The order {order[:100]!r} is not known: use created_at or -created_at.")
    parent = call.query("parent_id")
    return RunQuery(
        status=wanted,
        workflow=_workflows(call),
        idle=idle,
        # More than so long: what became idle at that very moment is not meant.
        idle_before=call.runtime.now() - longer if longer is not None else None,
        waiting_for=_name(call.query("waiting_for"), "waiting_for"),
        tags=_tags(given.getlist("tag")),
        parent=check_id("parent_id", parent) if parent is not None else None,
        paused=call.flag("paused"),
        parked=call.flag("parked"),
        stuck=call.flag("stuck"),
        created_after=_time(call, "created_after"),
        created_before=_time(call, "created_before"),
        oldest_first=order == "created_at",
    )


def _workflows(call: Call) -> tuple[str, ...] | None:
    """Those that are asked for, as far as the key may see them."""
    asked = [
        name for name in (_name(each, "workflow") for each in call.request.query_params.getlist("workflow")) if name
    ]
    allowed = call.principal.workflows
    if allowed is None:
        return tuple(asked) or None
    return tuple(name for name in asked if name in allowed) if asked else tuple(sorted(allowed))


def _name(value: str | None, what: str) -> str | None:
    if value is not None and not can_be_kept(value):
        raise invalid(f"The parameter {what!r} must be a name.")
    return value


def _tags(given: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given:
        name, found, value = each.partition("=")
        if not found or not can_be_kept(name) or (value and not can_be_kept(value)):
            raise invalid("The parameter 'tag' has the form name=value.")
        tags[name] = value
    return tags


def _time(call: Call, name: str) -> float | None:
    value = call.query(name)
    if value is None:
        return None
    try:
        # A plus sign that nobody has escaped arrives as a space.
        text = value.replace(" ", "+")
        return datetime.fromisoformat(text).timestamp() if _TIME.fullmatch(text) else _no_time(name)
    except (ValueError, OverflowError):
        return _no_time(name)


def _no_time(name: str) -> float:
    raise invalid(f"The parameter {name!r} must be a time such as 2026-01-01T00:00:00Z.")


def _mark(call: Call, query: RunQuery) -> str:
    """What a cursor is bound to: filters, order, and what the key may see. That time goes by changes nothing."""
    bound: list[Any] = [
        msgspec.to_builtins(msgspec.structs.replace(query, idle_before=None)),
        call.query("idle_longer_than"),
    ]
    return hashlib.sha256(msgspec.json.encode(bound, order="deterministic")).hexdigest()[:16]


def _position(cursor: str | None, mark: str) -> tuple[float, str] | None:
    if cursor is None:
        return None
    found, created_at, run_id = read_cursor(cursor, tuple[str, float, str])
    if found != mark or not can_be_kept(run_id):
        raise invalid("The cursor belongs to a list with other filters or another order.")
    return created_at, run_id


ROUTES = (Route("GET", "/v1/runs", list_runs, "read"),)
