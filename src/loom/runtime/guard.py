"""Watches over the runs of an event loop: if the loop ends before them, they are told.

Control loops have no task of their own, so nobody else would cancel them when `asyncio.run` is over. It also knows what
was at work when an event loop came to an end that nobody had asked for.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.runtime.live import LiveRun


AtWork = list[tuple[float, str]]
"""Steps whose bodies are at work, each with when it began."""

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_interrupted: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AtWork] = weakref.WeakKeyDictionary()
"""What was at work when everything on an event loop was cancelled."""


def at_work(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the steps whose bodies are at work on an event loop, or were when everything on it was cancelled.

    Those that began last come first: what has just happened is most likely their doing.
    """
    found = {*_interrupted.get(loop, ())}
    for guard in _guards:
        if guard.loop is loop:
            found.update(guard.at_work())
    return [name for _, name in sorted(found, reverse=True)]


class Guard:
    """A task that lives as long as there are runs on its event loop."""

    __slots__ = ("__weakref__", "_nothing_left", "_task", "loop", "runs")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.runs: set[LiveRun] = set()
        self._nothing_left: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._watch(), name="loom runs")
        _guards.add(self)

    @property
    def loop_ends(self) -> bool:
        """Whether everything on the event loop is being cancelled: nothing new should begin there."""
        return self._task.cancelling() > 0

    def add(self, run: LiveRun) -> None:
        """Watch over a run."""
        self.runs.add(run)

    def remove(self, run: LiveRun) -> bool:
        """A run has ended. Whether there is nothing left to watch over."""
        self.runs.discard(run)
        if self.runs:
            return False
        if not self._nothing_left.done() and not self.loop.is_closed():
            self._nothing_left.set_result(None)
        return True

    def at_work(self) -> AtWork:
        """Name the steps whose bodies are at work, each with when it began."""
        return [entry for run in self.runs for entry in run.at_work()]

    async def _watch(self) -> None:
        try:
            await self._nothing_left
        except asyncio.CancelledError:
            _interrupted[self.loop] = self.at_work()
            runs = list(self.runs)
            for run in runs:
                run.abort()
            # The event loop waits for this task, and so for the runs to clean up.
            for run in runs:
                await run.wait_done()
            raise
