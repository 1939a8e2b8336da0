"""Tasks that nobody waits for. What goes wrong in one of them is told to the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Iterator

_log = logging.getLogger("loom.durable")


class Background:
    """The tasks of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        """Oldest first: what happens to them all shall happen in an order that can be repeated."""
        return iter(list(self._tasks))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Begin a task."""
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("Something went wrong in the background.", exc_info=error)
