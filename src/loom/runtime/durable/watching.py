"""Who waits for news of a run: readers of its stream, and whoever awaits its end. May import asyncio and records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loom.core.records import EventRecord

if TYPE_CHECKING:
    from loom.core.reports import Published
    from loom.store.records import RunRow

News = asyncio.Future["RunRow | None"]
"""Done at the next news of a run. If that is its end in this process, it has the row that was stored then."""


class Watchers:
    """Futures by run. Ask for one before you look, await it if there was nothing new: so no news is missed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, dict[News, None]] = {}
        """By run, in the order in which they came."""

    def subscribe(self, run_id: str) -> News:
        """A future that is done at the next news of the run."""
        future: News = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, {})[future] = None
        return future

    def forget(self, run_id: str, future: News) -> None:
        """Nobody awaits it any more."""
        futures = self._waiting.get(run_id)
        if futures is not None:
            futures.pop(future, None)
            if not futures:
                del self._waiting[run_id]

    def wake(self, run_id: str, ended: RunRow | None = None) -> None:
        """There is news of the run."""
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(ended)

    def wake_all(self) -> None:
        """There may be news of any run."""
        for run_id in list(self._waiting):
            self.wake(run_id)


class RecentEnds:
    """What the last runs have ended with here, for those who waited for it: they need not read what was just written.

    It is found by the row of the run, so it is what the store would give: an event on a stream never changes.
    """

    MOST, HEAVIEST = 256, 16 * 1024

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, int, EventRecord]] = {}

    def keep(self, row: RunRow, last: Published | None) -> None:
        """Note the last event of a run, unless it is large, or not as its stored form would be."""
        if not isinstance(last, EventRecord) or not isinstance(last.body, str) or len(last.body) > self.HEAVIEST:
            return
        self._kept[row.run_id] = (row.created_at, row.head.events, last)
        if len(self._kept) > self.MOST:
            del self._kept[next(iter(self._kept))]

    def find(self, row: RunRow) -> EventRecord | None:
        """The last event of a run, if it is at hand."""
        created_at, events, last = self._kept.get(row.run_id, (None, None, None))
        return last if (created_at, events) == (row.created_at, row.head.events) else None
