"""Two processes that meet at the same row, in an order that is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import asyncpg

from loom.store.postgres.connections import parse_address


async def blocked(url: str, other: asyncpg.Connection, work: Awaitable[object]) -> asyncio.Future[object]:
    """Something under way, as soon as it waits for what the other connection holds."""
    task = asyncio.ensure_future(work)
    waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
    watcher = await asyncpg.connect(parse_address(url).url)
    try:
        while not await watcher.fetchval(waiting, other.get_server_pid()):
            assert not task.done(), "it did not wait"
            await asyncio.sleep(0.005)
    finally:
        await watcher.close()
    return task
