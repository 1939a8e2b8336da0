"""Requests that wait for a run: until it ends, until nobody reads the answer any more, or until the server stops.

May import starlette.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

    from loom.server.routing import Call

T = TypeVar("T")


class Waits:
    """What the requests of one server wait for, as far as they have an answer without it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._is_stopping = False

    def add(self, task: asyncio.Future[Any]) -> None:
        """Give something up when the server stops."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._is_stopping:
            task.cancel()

    def end_all(self) -> None:
        """The server stops: whoever still waits is told how it is now, rather than that the connection broke."""
        self._is_stopping = True
        for task in list(self._tasks):
            task.cancel()


async def while_serving(call: Call, waiting: Coroutine[Any, Any, T]) -> T | None:
    """What is awaited; None if the server stops before."""
    wanted = asyncio.ensure_future(waiting)
    call.server.waits.add(wanted)
    await _wait(call.request, wanted)
    return wanted.result() if not wanted.cancelled() else None


async def while_connected(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """What is awaited, however long the server takes to stop."""
    wanted = asyncio.ensure_future(waiting)
    await _wait(request, wanted)
    return wanted.result()


async def _wait(request: Request, wanted: asyncio.Future[Any]) -> None:
    """Return once it is done. `ClientDisconnect` if the client leaves before, so that no answer is kept that it would
    not have got: should it come again, it waits again.
    """
    left = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait((wanted, left), return_when=asyncio.FIRST_COMPLETED)
        if wanted not in done:
            raise ClientDisconnect
    finally:
        for task in (wanted, left):
            task.cancel()
        await asyncio.gather(wanted, left, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
