"""A stored run as `/v1` shows it: its view, what marks it, and waiting for its end. May import loom.runtime."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from loom.effects.threads import aside_if_large
from loom.runtime.durable.names import HANDLER
from loom.runtime.views import event_value, listed_view, run_view, unshown_view
from loom.server.answers import json_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.datastructures import Headers

    from loom.runtime.durable.working import WorkingRuntime
    from loom.server.routing import Call
    from loom.store.ports import Store
    from loom.store.records import RunQuery, RunRow

__all__ = [
    "HANDLER",
    "PAGE_BYTES",
    "etag",
    "event_value",
    "is_known",
    "rows_of",
    "run_item",
    "run_view",
    "wait_for_end",
]

_FIRST_ROWS, _MOST_ROWS = 20, 200
"""How many rows of a list are read at once, before it is known what they weigh, and at most."""
PAGE_BYTES = 8 * 1024 * 1024
"""A page of a list ends before the item that would make it larger, unless that is its first one."""


def etag(row: RunRow) -> str:
    """What changes whenever the view of a run does: its last tick, its status, which a retry changes first, and
    whether it is in memory.
    """
    place = "memory" if row.owner is not None else "store"
    return f'"{row.head.ticks - 1}-{row.head.status}-{place}"'


def is_known(headers: Headers, mark: str) -> bool:
    """Whether whoever asks has what this mark stands for already, by `If-None-Match`."""
    given = [each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")]
    return mark in given or given == ["*"]


async def run_item(call: Call, row: RunRow, *, with_result: bool) -> msgspec.Raw:
    """A run in a list, written out. One that cannot be shown says so in its own place, and the list goes on."""
    view = await call.seen(await listed_view(call.runtime, row, with_result=with_result))
    try:
        return msgspec.Raw(await aside_if_large(json_bytes, view))
    except (ValueError, TypeError, RecursionError) as error:
        return msgspec.Raw(json_bytes(await call.seen(unshown_view(row, error))))


async def rows_of(store: Store, query: RunQuery, most: int) -> AsyncGenerator[RunRow]:
    """The first rows that match, in their order. What runs wait for may be large, so no more of it is read at once than
    a page can show, and a few rows.
    """
    size = min(_FIRST_ROWS, most)
    while size:
        rows = await store.find(msgspec.structs.replace(query, limit=size))
        for row in rows:
            yield row
        if len(rows) < size:
            return
        most -= size
        weight = sum(len(row.head.waiters) for row in rows) // size
        size = min(most, max(1, min(_MOST_ROWS, PAGE_BYTES // (weight or 1))))
        query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))


async def wait_for_end(runtime: WorkingRuntime, run_id: str, seconds: float) -> RunRow:
    """The row of a run at its end, or as it is after so many seconds."""
    waits = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while seconds:
                news = runtime.endings.subscribe(run_id)
                try:
                    if runtime.resident(run_id) is None:  # else no end of it can be stored that will not be told here
                        row = await runtime.row(run_id)
                        if row.head.status != "running":
                            return row
                    await runtime.news(news, waits)
                    # Where news may be missed, the future is given up after a while, and the store is asked.
                    ended = news.result() if news.done() and not news.cancelled() else None
                    if ended is not None:
                        return ended
                    waits += 1
                finally:
                    runtime.endings.forget(run_id, news)
    return await runtime.row(run_id)
