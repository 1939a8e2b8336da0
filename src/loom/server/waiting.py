"""Requests that wait for a run: until it ends, nobody reads the answer, the key is gone, or the server stops."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

from loom.server.problems import ApiProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.requests import Request

    from loom.server.routing import Call

T = TypeVar("T")


class Waits:
    """What the requests of one server wait for, by the ids of their callers."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Future[Any], tuple[str, bool]] = {}
        """Who waits, and whether the request has an answer without what it waits for."""
        self._barred: set[asyncio.Future[Any]] = set()
        """Waits that have ended with their key."""
        self._is_stopping = False
        self.on_open: Callable[[], None] = lambda: None
        """Called with every wait that begins."""

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def added(self, task: asyncio.Future[Any], holder: str, *, until_stop: bool) -> Iterator[None]:
        """Count a wait. `until_stop`: give it up when the server stops. 401 if the key was gone before it was over."""
        self._tasks[task] = (holder, until_stop)
        self.on_open()
        if self._is_stopping and until_stop:
            task.cancel()
        try:
            yield
            if task in self._barred:
                raise ApiProblem(
                    "unauthenticated",
                    "The key was revoked or has expired while this request waited.",
                    headers={"WWW-Authenticate": 'Bearer realm="loom"'},
                )
        finally:
            del self._tasks[task]
            self._barred.discard(task)

    def holders(self) -> list[str]:
        """Who waits."""
        return list({holder for holder, _ in self._tasks.values()})

    def end_for(self, holder: str) -> None:
        """The key of a caller is gone: what it waits for is told to it no more. The runs go on."""
        for task, (waits, _) in list(self._tasks.items()):
            if waits == holder and not task.done():
                self._barred.add(task)
                task.cancel()

    def end_all(self) -> None:
        """The server stops: whoever still waits is told how it is now, rather than that the connection broke."""
        self._is_stopping = True
        for task, (_, until_stop) in list(self._tasks.items()):
            if until_stop:
                task.cancel()


async def while_serving(call: Call, waiting: Coroutine[Any, Any, T]) -> T | None:
    """What is awaited; None if the server stops before."""
    wanted = asyncio.ensure_future(waiting)
    await _wait(call, wanted, until_stop=True)
    return wanted.result() if not wanted.cancelled() else None


async def while_connected(call: Call, waiting: Coroutine[Any, Any, T]) -> T:
    """What is awaited, however long the server takes to stop."""
    wanted = asyncio.ensure_future(waiting)
    await _wait(call, wanted, until_stop=False)
    return wanted.result()


async def _wait(call: Call, wanted: asyncio.Future[Any], *, until_stop: bool) -> None:
    """Return once it is done. `ClientDisconnect` if the client leaves before, so that no answer is kept that it would
    not have got: should it come again, it waits again.
    """
    with call.server.waits.added(wanted, call.principal.id, until_stop=until_stop):
        await _until_done(call.request, wanted)


async def _until_done(request: Request, wanted: asyncio.Future[Any]) -> None:
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
