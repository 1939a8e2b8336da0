"""The lock between the writers of one store: tasks of any event loop, in any thread.

May import the standard library; asyncio only when somebody has to wait or to hold the lock across an await.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

# Guards the few instructions that change a lock's slots, never foreign code; one for all stores keeps a store small.
_guard = allocate_lock()

_PASSING = object()
"""The holder while a writer passes through without an await: no task has to be known for that."""


class _Waiter:
    """Who waits, and where it can be told that its turn has come."""

    __slots__ = ("future", "task")

    def __init__(self, task: asyncio.Task[Any] | None, future: asyncio.Future[None]) -> None:
        self.task = task
        self.future = future

    def wake(self) -> bool:
        """Tell the waiter, wherever it runs, that it holds the lock; False if it cannot hear."""
        import asyncio

        loop = self.future.get_loop()
        try:
            same_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            same_loop = False
        if same_loop:
            _settle(self.future)
            return True
        try:
            loop.call_soon_threadsafe(_settle, self.future)
        except RuntimeError:  # its loop is closed
            return False
        return True


class WriterLock:
    """A fair lock that belongs to no event loop and knows which task holds it."""

    __slots__ = ("_holder", "_waiters")

    def __init__(self) -> None:
        self._holder: object | None = None
        self._waiters: deque[_Waiter] | None = None

    def try_acquire(self) -> bool:
        """Take the lock for a writer that will not await; False if it is held."""
        with _guard:
            if self._holder is not None:
                return False
            self._holder = _PASSING
            return True

    async def acquire(self) -> None:
        """Take the lock, waiting in turn. A task that holds it already gets a `RuntimeError`."""
        import asyncio

        task = asyncio.current_task()
        with _guard:
            if self._holder is None:
                self._holder = task
                return
            if self._holder is task:
                raise RuntimeError("writer called inside edit_state: mutate the yielded state instead")
            waiter = _Waiter(task, asyncio.get_running_loop().create_future())
            if self._waiters is None:
                self._waiters = deque()
            self._waiters.append(waiter)
        try:
            await waiter.future
        except BaseException:
            self._abandon(waiter)
            raise

    def release(self) -> None:
        """Give the lock to the next in line that can hear of it, or to nobody."""
        while (waiter := self._next()) is not None:
            if waiter.wake():
                return

    def _next(self) -> _Waiter | None:
        with _guard:
            if not self._waiters:
                self._waiters = None
                self._holder = None
                return None
            waiter = self._waiters.popleft()
            self._holder = waiter.task
            return waiter

    def _abandon(self, waiter: _Waiter) -> None:
        """Leave the line after a cancellation; the lock may have been given just before."""
        with _guard:
            given = self._holder is waiter.task
            if not given and self._waiters and waiter in self._waiters:
                self._waiters.remove(waiter)
        if given:
            self.release()


def _settle(future: asyncio.Future[None]) -> None:
    """Wake the waiter, unless it was cancelled meanwhile: then it passes the lock on by itself."""
    if not future.done():
        future.set_result(None)
