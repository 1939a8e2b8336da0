"""Processes over SQLite that die at a commit, under the virtual clock. May be used by all tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from typing_extensions import override

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.sqlite import SqliteStore
from loom.testing import FaultyStore
from loom.testing.faults import Crash

T = TypeVar("T")


class HeldStore(SqliteStore):
    """Virtual time stands still while its threads are at work, or the limits of loops would be reached by waiting."""

    @override
    async def apply(self, group: Any) -> Any:
        return await _held(super().apply(group))

    @override
    async def load(self, run_id: str) -> Any:
        return await _held(super().load(run_id))

    @override
    async def get(self, run_id: str) -> Any:
        return await _held(super().get(run_id))

    @override
    async def stream(self, run_id: str, cursor: int, limit: int) -> Any:
        return await _held(super().stream(run_id, cursor, limit))


async def _held(reading: Awaitable[T]) -> T:
    loop: Any = asyncio.get_running_loop()
    with loop.hold():
        return await reading


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody is left in a crashed process to ask what became of its tasks."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


async def lived(store: FaultyStore, flow: loom.Flow, work: Callable[[DurableRuntime], Awaitable[T]]) -> T | None:
    """One process that works for a flow: what its work came to, or None if it has died before."""
    asyncio.get_running_loop().set_exception_handler(_tell)
    crashed = asyncio.Event()
    store.on_crash = crashed.set
    runtime = loom.connect(store)
    runtime.register(flow)

    async def work_on_it() -> T:
        await runtime.__aenter__()
        return await work(runtime)

    working, dying = asyncio.create_task(work_on_it()), asyncio.create_task(crashed.wait())
    await asyncio.wait([working, dying], return_when=asyncio.FIRST_COMPLETED)
    for task in (working, dying):
        task.cancel()
    found, _ = await asyncio.gather(working, dying, return_exceptions=True)
    await runtime.close()
    if store.crashed:
        inner: Any = store.inner
        inner._fence = None  # the dead say no goodbye
        await inner.close()
        return None
    if isinstance(found, BaseException):
        raise found
    return found
