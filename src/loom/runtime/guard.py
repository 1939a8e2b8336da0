"""Watches over the runs of an event loop: if the loop ends before them, they are told. May import asyncio.

Control loops have no task of their own, so nobody else would cancel them when `asyncio.run` is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.runtime.live import LiveRun


class Guard:
    """A task that lives as long as there are runs on its event loop."""

    __slots__ = ("_nothing_left", "_task", "loop", "runs")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.runs: set[LiveRun] = set()
        self._nothing_left: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._watch(), name="loom runs")

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

    async def _watch(self) -> None:
        try:
            await self._nothing_left
        except asyncio.CancelledError:
            runs = list(self.runs)
            for run in runs:
                run.abort()
            # The event loop waits for this task, and so for the runs to clean up.
            for run in runs:
                await run.wait_done()
            raise
