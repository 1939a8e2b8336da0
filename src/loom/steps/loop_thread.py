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
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager

    from loom.steps.handler import WorkflowHandler

P = ParamSpec("P")
T = TypeVar("T")

_CLEANUP_S = 2.0
"""How long the tasks of a loop that has died may take to clean up."""


class LoopThread:
    """A daemon thread with an event loop. Any thread may hand work to it, also from within a running loop."""

    def __init__(self, name: str, what: str, anew: str) -> None:
        self._what = what
        """The name of what uses the thread, for errors."""
        self._anew = anew
        """The call that makes another one, for errors."""
        self._pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        # Its own, because asyncio's is ended by a thread of its own, which a process that ends cannot start.
        self._executor = _Pool(name)
        self.loop.set_default_executor(self._executor)
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._closing = threading.Lock()
        # Reentrant: a forgotten iterator may be collected, and hands work over, wherever memory is asked for.
        self._lock = threading.RLock()
        self._is_closed = False
        """Callers are refused: `close` was called, or the thread has ended. Set under the lock."""
        self._has_ended = False
        """Whether no thread runs the loop any more. Set under the lock."""
        self._died_of: BaseException | None = None
        self._handed: set[_HandedOver[Any]] = set()
        """The futures that callers wait for. Once the thread has ended, nothing else would resolve them."""
        self._begun: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        """What ends the iterations that a caller has begun and not ended."""
        self._ending: set[asyncio.Task[None]] = set()
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of a coroutine. An interrupt from the keyboard cancels it."""
        problem = self._problem()
        if problem is not None:
            work.close()
            raise _Refused(problem)
        return self._wait_for(work, is_last=False)

    def _wait_for(self, work: Coroutine[Any, Any, T], *, is_last: bool) -> T:
        handed = _HandedOver(self.loop, work)
        try:
            with self._lock:
                if self._has_ended or (self._is_closed and not is_last):
                    handed.give_up()
                    raise _Refused(self._why_closed())
                self._handed.add(handed)
                self.loop.call_soon_threadsafe(handed.begin)
            with _replaced_in_pool():
                return handed.outcome.result()
        except CancelledError:
            if self._is_closed:
                raise _Refused(self._why_closed()) from None
            raise
        finally:
            with self._lock:
                self._handed.discard(handed)
                if not handed.outcome.done() and not self.loop.is_closed():
                    self.loop.call_soon_threadsafe(handed.give_up)

    def _serve(self) -> None:
        """Run the loop. Whatever ends it, callers that wait are told."""
        try:
            self.loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - `sys.exit` in a callback ends the loop; the callers are told
            self._died_of = error
        with self._lock:
            self._is_closed = self._has_ended = True
            waiting = list(self._handed)
        for handed in waiting:
            handed.fail(self._died_of or _Refused(self._why_closed()))
        if self._died_of is not None:
            self._cancel_rest()
            self._end_loop(waits=False)

    def _cancel_rest(self) -> None:
        """Let the tasks of a loop that has died clean up, as `asyncio.run` does."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with suppress(SystemExit, KeyboardInterrupt):  # the first one was told
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_CLEANUP_S))

    def _end_loop(self, *, waits: bool) -> None:
        self._executor.shutdown(wait=waits, cancel_futures=not waits)
        with self._lock:
            self.loop.close()

    @property
    def is_here(self) -> bool:
        """Say whether the thread is one of this process: a forked process has none of its parent's threads."""
        return self._pid == os.getpid()

    @property
    def is_open(self) -> bool:
        """Say whether the thread takes work."""
        return self.is_here and not self._is_closed

    def check_here(self) -> None:
        """Raise an error that says what to do, if the thread belongs to the process that this one was forked from."""
        if not self.is_here:
            raise _Refused(self._why_elsewhere())

    def _problem(self) -> str | None:
        """Tell why nothing can be handed over: the caller would wait for ever, or stop the thread that it waits for."""
        if not self.is_here:
            return self._why_elsewhere()
        if threading.current_thread() is self.thread:
            return f"{self._what} cannot be waited for on its own thread: use `await` there, or a step without `async`."
        return None if self.is_open else self._why_closed()

    def _why_elsewhere(self) -> str:
        return f"{self._what} was opened before this process was forked. Call {self._anew} in this process."

    def _why_closed(self) -> str:
        if self._died_of is not None:
            return f"{self._what} is closed: its thread was ended by {self._died_of!r}."
        return f"{self._what} is closed."

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
            with self._lock:
                ends = closing in self._begun and not self._is_closed  # else `close` ends it
                if ends:
                    self._begun.discard(closing)
            if ends:
                with suppress(_Refused):
                    self._end(closing())

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        # A forgotten iterator may be collected on any thread, and the loop's own must not wait for itself.
        if threading.current_thread() is self.thread:
            self._ending.add(task := self.loop.create_task(work))
            task.add_done_callback(self._ending.discard)
        else:
            self.run(work)

    def close(self, finish: Callable[[], Coroutine[Any, Any, None]], *, first: bool = False) -> None:
        """End what was begun, do `finish`, and end the thread. `first` does `finish` before tasks are cancelled.

        From the first moment on no call is taken: it would be handed to a loop that no thread runs any more.
        """
        if not self.is_here:
            return
        if threading.current_thread() is self.thread or _here.pool is self._executor:
            raise RuntimeError(f"{self._what} cannot be closed by a step: closing waits for the steps to end.")
        with self._closing:
            with self._lock:
                self._is_closed = True
            if self._has_ended:
                return
            done = False
            try:
                self._wait_for(self._finish(finish, first), is_last=True)
                done = True
            finally:
                with self._lock:
                    if not self.loop.is_closed():
                        self.loop.call_soon_threadsafe(self.loop.stop)
                self.thread.join()
                self._end_loop(waits=done)

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


class _Refused(RuntimeError):
    """A call that the thread does not take."""


class _Here(threading.local):
    """What a thread knows of itself."""

    pool: _Pool | None = None
    """The pool that the thread belongs to."""


_here = _Here()


class _Pool(ThreadPoolExecutor):
    """The threads of steps that are not `async`. One that waits for a loop is replaced for as long as it waits.

    Otherwise steps that wait for other runs could take all threads, and the steps they wait for would get none.
    """

    def __init__(self, name: str) -> None:
        super().__init__(thread_name_prefix=name, initializer=self._enter)
        self._counting = threading.Lock()

    def _enter(self) -> None:
        _here.pool = self

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Have room for one more thread, while the calling one only waits."""
        self._grow(1)
        try:
            self.submit(_nothing)  # makes the thread, for work that is in the queue already
            yield
        finally:
            self._grow(-1)

    def _grow(self, by: int) -> None:
        with self._counting:
            self._max_workers += by


def _nothing() -> None:
    pass


def _replaced_in_pool() -> AbstractContextManager[None]:
    pool = _here.pool
    return nullcontext() if pool is None else pool.replaced()


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
        if self.outcome.done():  # `fail` was first
            return
        if task.cancelled():
            self.outcome.cancel()
            self.outcome.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())

    def fail(self, error: BaseException) -> None:
        """Tell the caller that the loop does not run any more. The loop's thread calls it, when it ends."""
        if not self.outcome.done():
            self.outcome.set_exception(error)


_starting = threading.Lock()
_shared: LoopThread | None = None


def run_to_end(begin: Callable[[], WorkflowHandler]) -> Any:
    """Begin a run on a thread that all such runs of a process share, and wait for its result."""
    global _shared  # noqa: PLW0603 - it is there for as long as the process
    with _starting:
        if _shared is None or not _shared.is_open:
            _shared = LoopThread("loom-run-sync", "The thread of run_sync", "`run_sync`")
        shared = _shared
    return shared.run(_run_to_end(begin))


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
    """Make a coroutine method of the async object one that returns when it is done."""

    @functools.wraps(method)
    def call(self: SyncFace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread = self._loop_thread
        return thread.run(cast("Coroutine[Any, Any, T]", getattr(self._inner, method.__name__)(*args, **kwargs)))

    return call


def iterates(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Make a method of the async object that yields one for a plain `for`."""

    @functools.wraps(method)
    def iterate(self: SyncFace, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        # All of them are generators, which must be closed where they run.
        thread = self._loop_thread
        return thread.items(cast("AsyncGenerator[T, None]", getattr(self._inner, method.__name__)(*args, **kwargs)))

    return iterate
