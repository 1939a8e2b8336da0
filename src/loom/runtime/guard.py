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

    __slots__ = ("_loop", "_nothing_left", "_runs", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._runs: set[LiveRun] = set()
        self._nothing_left: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, run: LiveRun) -> None:
        """Watch over a run."""
        self._runs.add(run)
        if self._nothing_left is None:
            self._nothing_left = self._loop.create_future()
            self._task = self._loop.create_task(self._watch(self._nothing_left), name="loom runs")

    def remove(self, run: LiveRun) -> bool:
        """A run has ended by itself. Whether there is nothing left to watch over."""
        self._runs.discard(run)
        if self._runs:
            return False
        if self._nothing_left is not None and not self._nothing_left.done():
            self._nothing_left.set_result(None)
        return True

    async def _watch(self, nothing_left: asyncio.Future[None]) -> None:
        try:
            await nothing_left
        except asyncio.CancelledError:
            for run in list(self._runs):
                run.abort()
            raise
