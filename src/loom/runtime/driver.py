"""Drives a control loop without a task of its own.

A task would have to be woken through the event loop for every step, and it takes room in every run that waits. So the
loop's coroutine is advanced right here: when the adapter has news, or when whatever the coroutine awaits is done. It
runs in one context, the caller's at the start, as a task would.

A control loop awaits futures only, its adapter's or those of a commit. What needs a task around it, such as
`asyncio.timeout`, belongs into a task of its own behind such a future. May import asyncio.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from loom.runtime.memory_adapter import MemoryAdapter

T = TypeVar("T")


class Driver(Generic[T]):
    """Advances one coroutine to its end, and tells `on_end` its result or the exception that it raised."""

    __slots__ = (
        "_adapter", "_awaited", "_context", "_coroutine", "_is_due", "_is_parked", "_is_running", "_loop", "_on_end",
    )  # fmt: skip

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        adapter: MemoryAdapter,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[T | None, BaseException | None], None],
    ) -> None:
        self._coroutine: Coroutine[Any, Any, T] | None = coroutine
        self._adapter = adapter
        self._loop = loop
        self._on_end: Callable[[T | None, BaseException | None], None] | None = on_end
        self._context = contextvars.copy_context()
        self._awaited: asyncio.Future[Any] | None = None
        self._is_due = False
        self._is_parked = False
        self._is_running = False
        adapter.on_wake = self.wake

    def begin(self) -> None:
        """Take the first step when the event loop next turns."""
        self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._step)

    def wake(self, at_once: bool) -> None:
        """The adapter has news. Whoever has time for it lets the coroutine go on at once, within its own call."""
        if not self._is_parked:
            return  # it is busy, and looks for news by itself before it parks
        if at_once and not self._is_running:
            self._step()
        else:
            self._step_soon()

    def abort(self) -> None:
        """The event loop is about to end: let the coroutine clean up."""
        if self._coroutine is not None and not self._is_running:
            self._advance(self._coroutine.throw, asyncio.CancelledError())

    def _step(self, _done: asyncio.Future[Any] | None = None) -> None:
        """Go on, unless this call is a late one: meanwhile the coroutine may have ended, or wait for something else."""
        self._is_due = False
        awaited = self._awaited
        if self._coroutine is not None and not self._is_running and (awaited is None or awaited.done()):
            self._advance(self._coroutine.send, None)

    def _advance(self, resume: Callable[[Any], Any], value: Any) -> None:
        """Run the coroutine to its next wait, or to its end."""
        self._is_running, self._is_parked = True, False
        try:
            awaited = self._context.run(resume, value)
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:
            self._end(None, error)
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
        else:
            self._park(awaited)
        finally:
            self._is_running = False

    def _park(self, awaited: Any) -> None:
        """Wait for what the coroutine awaits. For the adapter's own wait, `wake` is enough."""
        self._awaited = awaited
        if awaited is None:
            self._step_soon()
            return
        awaited._asyncio_future_blocking = False
        if awaited is self._adapter.waiter:
            self._is_parked = True
        else:
            awaited.add_done_callback(self._step)

    def _end(self, result: T | None, error: BaseException | None) -> None:
        self._coroutine = self._awaited = None
        on_end, self._on_end = (
            self._on_end,
            None,
        )  # an error holds this driver, and the run that is told holds the error
        if on_end is not None:
            on_end(result, error)
