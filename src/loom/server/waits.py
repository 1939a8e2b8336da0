"""Requests that wait for a run: until it ends, its client leaves, the key is gone, or the server stops.

`KeyWatch` looks up the keys of open streams and waiting requests, so that a revoked key ends them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

from loom.server.addresses import holds_address
from loom.server.auth import holder_parts
from loom.server.problems import ApiProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.requests import Request

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.addresses import Addresses
    from loom.server.auth import Keys
    from loom.server.call import Call
    from loom.server.sessions import Sessions
    from loom.server.streams import OpenStreams
    from loom.store.records import RunRow

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
        """End all waits, as the server stops: callers are told how it is now, not that the connection broke."""
        self._is_stopping = True
        for task, (_, until_stop) in list(self._tasks.items()):
            if until_stop:
                task.cancel()


async def wait_for_end(runtime: WorkerRuntime, run_id: str, seconds: float) -> RunRow:
    """Return the row of a run at its end, or as it is after this many seconds."""
    waits = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while seconds:
                news = runtime.endings.subscribe(run_id)
                try:
                    if runtime.active_run(run_id) is None:  # else no end of it can be stored that will not be told here
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
    with call.server.waits.added(wanted, call.principal.holder, until_stop=until_stop):
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


KEYS_S = 0.5
"""How often the keys of open streams and waits are looked up: a caller who lost one is out within a second."""

_log = logging.getLogger("loom.server")


class KeyWatch:
    """Breaks the streams and ends the waits of keys that were revoked or have expired, and of sessions that ended.

    It works only while there are streams or waits. So it also works in an application of the user's, which does not
    tell it when it begins and ends.
    """

    def __init__(
        self, keys: Keys, sessions: Sessions, addresses: Addresses, streams: OpenStreams, waits: Waits
    ) -> None:
        self._keys = keys
        self._addresses = addresses
        self._sessions = sessions
        self._streams = streams
        self._waits = waits
        self._task: asyncio.Task[None] | None = None
        streams.on_open = waits.on_open = self._begin

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            # In a context of its own: the one of the request belongs to the request.
            self._task = asyncio.get_running_loop().create_task(self.watch(), name="loom keys", context=Context())

    def _holders(self) -> list[str]:
        return list(dict.fromkeys((*self._streams.holders(), *self._waits.holders())))

    async def watch(self) -> None:
        """Look the keys up until nothing is open."""
        while self._holders():
            await asyncio.sleep(KEYS_S)
            for holder in self._holders():
                try:
                    if not await self._is_good(holder):
                        self._streams.break_for(holder)
                        self._waits.end_for(holder)
                except Exception as error:  # noqa: BLE001 - whatever it is, the streams of others are still looked after
                    _log.warning("Whether the key of a request is still good is not known: %s", error)

    async def _is_good(self, holder: str) -> bool:
        key_id, session = holder_parts(holder)
        if holds_address(key_id):
            return await self._addresses.is_good(key_id, session)
        return await self._keys.is_good(key_id) and (not session or await self._sessions.is_open(session))
