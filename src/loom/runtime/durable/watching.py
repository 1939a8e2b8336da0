"""Who waits for news of a run: readers of its stream, and whoever awaits its end. May import asyncio."""

from __future__ import annotations

import asyncio


class Watchers:
    """Futures by run. Ask for one before you look, await it if there was nothing new: so no news is missed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """By run, in the order in which they came."""

    def subscribe(self, run_id: str) -> asyncio.Future[None]:
        """A future that is done at the next news of the run."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, {})[future] = None
        return future

    def forget(self, run_id: str, future: asyncio.Future[None]) -> None:
        """Nobody awaits it any more."""
        futures = self._waiting.get(run_id)
        if futures is not None:
            futures.pop(future, None)
            if not futures:
                del self._waiting[run_id]

    def wake(self, run_id: str) -> None:
        """There is news of the run."""
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """There may be news of any run."""
        for run_id in list(self._waiting):
            self.wake(run_id)
