"""Pages of lists: opaque cursors, and rows read in parts that weigh no more than a page.

A cursor marks a key, not an offset, and is taken back only in the form that it was given in.
"""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from loom.effects.off_loop import aside_if_large
from loom.runtime.render import listed_run, next_timers, unshown_run
from loom.server.answers import json_bytes
from loom.server.problems import ApiProblem, invalid
from loom.store.records import place_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from loom.server.call import Call
    from loom.store.ports import RunReads
    from loom.store.records import RunQuery, RunRow

T = TypeVar("T")


def write_cursor(*parts: Any) -> str:
    """Write a cursor that holds these values."""
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def read_cursor(cursor: str, kind: type[T]) -> T:
    """Read the values of a cursor, as a tuple of this type."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise not_given() from error


def not_given() -> ApiProblem:
    """Make the problem of a cursor that no server of this API wrote."""
    return invalid("The cursor is not one that this server has given for this list.")


_FIRST_ROWS, _MOST_ROWS = 20, 200
"""How many rows of a list are read at once, before it is known what they weigh, and at most."""
PAGE_BYTES = 8 * 1024 * 1024
"""A page of a list ends before the item that would make it larger, unless that is its first one."""


async def run_items(
    call: Call, query: RunQuery, most: int, *, with_result: bool
) -> AsyncGenerator[tuple[RunRow, msgspec.Raw]]:
    """Write the first runs that match, in their order, for a list."""
    async with aclosing(_row_batches(call.runtime.store, query, most)) as batches:
        async for rows in batches:
            timers = await next_timers(call.runtime, rows)
            for row in rows:
                yield row, await _run_item(call, row, with_result, timers)


async def _run_item(call: Call, row: RunRow, with_result: bool, timers: Mapping[str, float]) -> msgspec.Raw:
    """Write a run. One that cannot be shown says so in its own place, and the list goes on."""
    view = await call.seen(await listed_run(call.runtime, row, with_result=with_result, timers=timers))
    try:
        return msgspec.Raw(await aside_if_large(json_bytes, view))
    except (ValueError, TypeError, RecursionError) as error:
        return msgspec.Raw(json_bytes(await call.seen(unshown_run(row, error))))


async def rows_of(store: RunReads, query: RunQuery, most: int) -> AsyncGenerator[RunRow]:
    """Read the first rows that match, in their order."""
    async with aclosing(_row_batches(store, query, most)) as batches:
        async for rows in batches:
            for row in rows:
                yield row


async def _row_batches(store: RunReads, query: RunQuery, most: int) -> AsyncGenerator[list[RunRow]]:
    """Read the first rows that match, in their order, some at a time.

    What runs wait for may be large, so no more of it is read at once than a page can show, and a few rows.
    """
    size = min(_FIRST_ROWS, most)
    while size:
        rows = await store.find(msgspec.structs.replace(query, limit=size))
        if rows:
            yield rows
        if len(rows) < size:
            return
        most -= size
        weight = sum(len(row.head.waiters) for row in rows) // size
        size = min(most, max(1, min(_MOST_ROWS, PAGE_BYTES // (weight or 1))))
        query = msgspec.structs.replace(query, after=place_of(rows[-1], query))
