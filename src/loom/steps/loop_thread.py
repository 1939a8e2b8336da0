"""An event loop on a thread of its own, for code that is not asynchronous. See docs/adr/0046.

What is asynchronous exists once. A sync face holds an async object and hands each of its calls to the thread:

    class SyncThing(SyncFace):
        get = calls(Thing.get)          # a coroutine function becomes a plain one
        list = iterates(Thing.list)     # an async iterator becomes a plain one

Signatures, types and docstrings come from the original.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator

    from loom.steps.handler import WorkflowHandler

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A daemon thread with an event loop. Any thread may hand work to it, also from within a running loop."""

    def __init__(self, name: str, what: str) -> None:
        self._what = what
        """The name of what uses the thread, for errors."""
        self._pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        # Its own, because asyncio's is ended by a thread of its own, which a process that ends cannot start.
        self._executor = ThreadPoolExecutor(thread_name_prefix=name)
        self.loop.set_default_executor(self._executor)
        self.thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._closing = threading.Lock()
        self._begun: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        """What ends the iterations that a caller has begun and not ended."""
        self._ending: set[asyncio.Task[None]] = set()
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of a coroutine. An interrupt from the keyboard cancels it."""
        problem = self._problem()
        if problem is not None:
            work.close()
            raise RuntimeError(problem)
        handed = _HandedOver(self.loop, work)
        try:
            self.loop.call_soon_threadsafe(handed.begin)
            return handed.outcome.result()
        finally:
            if not handed.outcome.done():
                self.loop.call_soon_threadsafe(handed.give_up)

    @property
    def is_here(self) -> bool:
        """Say whether the thread is one of this process: a forked process has none of its parent's threads."""
        return self._pid == os.getpid()

    def _problem(self) -> str | None:
        """Tell why nothing can be handed over: the caller would wait for ever, or stop the thread that it waits for."""
        if self.loop.is_closed():
            return f"{self._what} is closed."
        if not self.is_here:
            return f"{self._what} was opened before this process was forked: open one in each process."
        if threading.current_thread() is self.thread:
            return f"{self._what} cannot be waited for on its own thread: use `await` there, or a step without `async`."
        return None

    def items(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """Give what an async generator gives, one `anext` at a time: a slow reader slows its source."""
        # A reader that is interrupted leaves while the next item is still being given up: the lock keeps the order.
        turns = asyncio.Lock()
        closing = functools.partial(_close, source, turns)
        self._begun.add(closing)
        try:
            while True:
                try:
                    item = self.run(_next(source, turns))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if closing in self._begun:
                self._begun.discard(closing)
                self._end(closing())

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        # A forgotten iterator may be collected on any thread, and the loop's own must not wait for itself.
        if threading.current_thread() is self.thread:
            self._ending.add(task := self.loop.create_task(work))
            task.add_done_callback(self._ending.discard)
        else:
            self.run(work)

    def close(self, finish: Callable[[], Coroutine[Any, Any, None]], *, first: bool = False) -> None:
        """End what was begun, do `finish`, and end the thread. `first` does `finish` before tasks are cancelled."""
        with self._closing:
            if self.loop.is_closed():
                return
            if self.is_here:
                self.run(self._finish(finish, first))
                self.loop.call_soon_threadsafe(self.loop.stop)
                self.thread.join()
                self._executor.shutdown()
                self.loop.close()

    async def _finish(self, finish: Callable[[], Coroutine[Any, Any, None]], first: bool) -> None:
        if first:
            await finish()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        while self._begun:
            await self._begun.pop()()
        if not first:
            await finish()
        await self.loop.shutdown_asyncgens()


class _HandedOver(Generic[T]):
    """A coroutine on its way to the loop's thread.

    The loop begins it and gives it up in the order of its calls. So an interrupt cannot come between the beginning and
    the one who would cancel it, as it can with `run_coroutine_threadsafe`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.outcome: Future[T] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Run the coroutine. The loop calls it."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._tell)

    def give_up(self) -> None:
        """Cancel the coroutine; close it if the loop was never asked to begin it. The loop calls it."""
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def _tell(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.cancel()
            self.outcome.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


_starting = threading.Lock()
_shared: LoopThread | None = None


def run_to_end(begin: Callable[[], WorkflowHandler]) -> Any:
    """Begin a run on a thread that all such runs of a process share, and wait for its result."""
    global _shared  # noqa: PLW0603 - it is there for as long as the process
    with _starting:
        if _shared is None or not _shared.is_here:
            _shared = LoopThread("loom-run-sync", "The thread of run_sync")
    return _shared.run(_run_to_end(begin))


async def _run_to_end(begin: Callable[[], WorkflowHandler]) -> Any:
    handler = begin()
    try:
        return await handler
    except asyncio.CancelledError:  # the caller was interrupted
        await handler.cancel_run()
        raise


async def _next(source: AsyncGenerator[T, None], turns: asyncio.Lock) -> T:
    async with turns:
        return await anext(source)


async def _close(source: AsyncGenerator[T, None], turns: asyncio.Lock) -> None:
    async with turns:
        await source.aclose()


class SyncFace:
    """The sync face of an async object."""

    _inner: Any
    _loop_thread: LoopThread


def calls(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of the async object as one that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncFace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread = self._loop_thread
        return thread.run(cast("Coroutine[Any, Any, T]", getattr(self._inner, method.__name__)(*args, **kwargs)))

    return call


def iterates(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method of the async object that gives many things, as one for a plain `for`."""

    @functools.wraps(method)
    def iterate(self: SyncFace, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        # All of them are generators, which must be closed where they run.
        thread = self._loop_thread
        return thread.items(cast("AsyncGenerator[T, None]", getattr(self._inner, method.__name__)(*args, **kwargs)))

    return iterate
