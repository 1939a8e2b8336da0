"""The client for code that is not asynchronous. May import the rest of loom.client.

It is the same client, which runs on an event loop in a thread of its own: there is one place for what is tried again,
how streams go on, and what is waited for. See docs/adr/0031.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from typing_extensions import override

from loom.client.connection import TIMEOUT, Client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
    from types import TracebackType

    import httpx2

    from loom.client.retries import Retries

P = ParamSpec("P")
T = TypeVar("T")


def _calls(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """A method of the client as one that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    return call


def _iterates(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    """A method of the client that gives many things, as one for a plain `for`."""

    @functools.wraps(method)
    def iterate(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        # All of them are generators, which must be closed where they run.
        return self._items(cast("AsyncGenerator[T, None]", method(self._client, *args, **kwargs)))

    return iterate


class SyncClient:
    """A Loom server, from afar and without `await`: the methods of `Client`, with the same arguments.

    ::

        with loom.SyncClient("http://127.0.0.1:8080", api_key=key) as client:
            run = client.start("my", {"topic": "x"})
            for event in client.stream(run.run_id): ...

    It may be used by several threads, and inside of a program that has a running event loop.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = Client(url, api_key, timeout=timeout, retries=retries, transport=transport)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loom-client", daemon=True)
        self._closing = threading.Lock()
        self._begun: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        """What ends the iterations that somebody has begun and not ended."""
        self._ending: set[asyncio.Task[None]] = set()
        self._thread.start()

    start = _calls(Client.start)
    get = _calls(Client.get)
    wait = _calls(Client.wait)
    list = _iterates(Client.list)
    history = _iterates(Client.history)
    state = _calls(Client.state)
    loops = _calls(Client.loops)
    actions = _calls(Client.actions)
    replay = _calls(Client.replay)
    stream = _iterates(Client.stream)
    send_event = _calls(Client.send_event)
    cancel = _calls(Client.cancel)
    pause = _calls(Client.pause)
    resume = _calls(Client.resume)
    retry = _calls(Client.retry)
    fork = _calls(Client.fork)
    delete = _calls(Client.delete)

    definitions = _calls(Client.definitions)
    definition = _calls(Client.definition)
    versions = _calls(Client.versions)
    put_definition = _calls(Client.put_definition)
    delete_definition = _calls(Client.delete_definition)
    validate = _calls(Client.validate)
    graph = _calls(Client.graph)
    mermaid = _calls(Client.mermaid)
    schema = _calls(Client.schema)
    schedules = _calls(Client.schedules)
    get_schedule = _calls(Client.get_schedule)
    schedule = _calls(Client.schedule)
    pause_schedule = _calls(Client.pause_schedule)
    resume_schedule = _calls(Client.resume_schedule)
    delete_schedule = _calls(Client.delete_schedule)
    invoke = _calls(Client.invoke)
    health = _calls(Client.health)
    request = _calls(Client.request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the thread."""
        with self._closing:
            if self._loop.is_closed():
                return
            self._run(self._finish())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @override
    def __repr__(self) -> str:
        return repr(self._client).replace("Client", type(self).__name__, 1)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("The client is closed.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # if somebody has interrupted the waiting; else it is done

    def _items(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        # Whoever is interrupted leaves while the next item is still being given up: the lock keeps the order.
        turns = asyncio.Lock()
        closing = functools.partial(_close, source, turns)
        self._begun.add(closing)
        try:
            while True:
                try:
                    item = self._run(_next(source, turns))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if closing in self._begun:
                self._begun.discard(closing)
                self._end(closing())

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        # What nobody holds any more may be collected on any thread, and the loop's own must not wait for itself.
        if threading.current_thread() is self._thread:
            self._ending.add(task := self._loop.create_task(work))
            task.add_done_callback(self._ending.discard)
        else:
            self._run(work)

    async def _finish(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        while self._begun:
            await self._begun.pop()()
        await self._loop.shutdown_asyncgens()
        await self._client.close()


async def _next(source: AsyncGenerator[T, None], turns: asyncio.Lock) -> T:
    async with turns:
        return await anext(source)


async def _close(source: AsyncGenerator[T, None], turns: asyncio.Lock) -> None:
    async with turns:
        await source.aclose()
