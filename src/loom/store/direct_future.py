"""A future that can call one function in place, without a turn of the event loop.

A future of asyncio calls back in the next turn of the event loop. A commit crosses three of them on its way back: the
thread that writes tells the store, the store tells the committer, and the committer tells the run. Each turn costs a
look at all sockets. With nothing to do in between, the three are one call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class DirectFuture(asyncio.Future[T]):
    """A future whose maker answers it with `give` or `refuse`, and for whose answer one caller may be called in place.

    Whatever else asyncio does with a future works as ever, such as tasks that await it, and `cancel`.
    """

    _direct: Callable[[Any], object] | None = None

    def call_directly(self, callback: Callable[[Any], object]) -> None:
        """Call a function within `give` or `refuse`. After a cancellation it is called in the next turn."""
        self._direct = callback
        self.add_done_callback(callback)

    def give(self, result: T) -> None:
        """Answer with a result, unless the caller has cancelled. Runs on the event loop."""
        if not self.done():
            callback = self._take_callback()
            self.set_result(result)
            if callback is not None:
                callback(self)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, unless the caller has cancelled. It is not logged if no caller asks for it."""
        if not self.done():
            callback = self._take_callback()
            self.set_exception(error)
            self.exception()
            if callback is not None:
                callback(self)

    def _take_callback(self) -> Callable[[Any], object] | None:
        callback, self._direct = self._direct, None
        if callback is not None:
            self.remove_done_callback(callback)
        return callback


def call_when_done(future: asyncio.Future[Any], callback: Callable[[Any], object]) -> None:
    """Call a function when a future is done, in place if the future can."""
    if isinstance(future, DirectFuture):
        future.call_directly(callback)
    else:
        future.add_done_callback(callback)
