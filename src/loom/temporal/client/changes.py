"""Looks for changed runs on a cluster, as far as it can be seen from outside.

A cluster keeps no order of changes: its lists tell which runs are open and which have closed, a little late, and only
a run itself knows its last change. So a look asks the runs that moved lately and, in turns, some of the others. Where
many runs are open, a change of one that was at rest may be seen late; every end is seen with the list.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from loom.runtime.lru_cache import LruCache
from loom.store.changes import MOST_CHANGES, ChangedRun, Look

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.store.records import RunRow
    from loom.temporal.client.reads import RunReader
    from loom.temporal.client.visibility import Visibility

_PAUSE_S: Final = 2.0
_LATE_S: Final = 30.0
"""Lists follow the runs within this time, and clocks differ by less."""
_KEPT_S: Final = 600.0
"""A position that is older is not gone on from."""
_LIVELY, _IN_TURN = 15, 5
"""How many runs a look asks that moved lately, and how many others."""
_KNOWN = 10_000


class TemporalChanges:
    """See `ChangeReader`. A position is a time: what a look after it tells of may have been told before."""

    pause = _PAUSE_S

    def __init__(self, visibility: Visibility, reader: RunReader, after: str | None) -> None:
        self._visibility = visibility
        self._reader = reader
        self._known: LruCache[str, RunRow] = LruCache(_KNOWN)
        """The rows as they were told or seen last; the one that was asked longest ago comes first."""
        self._since: float | None = None
        self._after = after

    async def look(self) -> Look:
        """See `ChangeReader`."""
        now = time.time()
        if self._since is None:
            since = _time(self._after) if self._after is not None else now
            if since is None or not now - _KEPT_S < since <= now + _LATE_S:
                self._since = now
                return Look(str(now), [], is_whole=False)
            self._since = since
        ended, is_open = await self._listed(now - _LATE_S)
        asked = [*(run_id for run_id in ended if self._is_running(run_id)), *self._chosen(is_open)]
        rows = await asyncio.gather(*(self._reader.observe(run_id, closed=run_id in ended) for run_id in asked))
        changed = [*self._deleted()]
        for run_id, observed in zip(asked, rows, strict=True):
            known = self._known.peek(run_id)
            if observed is None:
                self._known.drop(run_id)
                changed += [ChangedRun(run_id, known.workflow, None)] if known is not None else []
                continue
            self._known.put(run_id, observed.row)
            moved = observed.row.head.updated_at >= self._since - _LATE_S if known is None else known != observed.row
            changed += [ChangedRun(run_id, observed.row.workflow, observed.row)] if moved else []
        return Look(str(now), changed)

    async def _listed(self, ended_since: float) -> tuple[set[str], set[str]]:
        """Return the runs that have closed since a time, and those that are open: the newest that the list brings."""
        ended, is_open = set[str](), {row.run_id for row in self._reader.lately()}
        async for candidate in self._visibility.open_or_ended_since(ended_since):
            (ended if candidate.closed else is_open).add(candidate.run_id)
            if len(is_open) + len(ended) >= MOST_CHANGES:
                break
        return ended - is_open, is_open

    def _is_running(self, run_id: str) -> bool:
        known = self._known.peek(run_id)
        return known is None or known.head.status == "running"

    def _chosen(self, is_open: set[str]) -> Iterable[str]:
        """Choose the open runs to ask: new ones and lively ones, and some of the others in their turn."""
        in_turn = [run_id for run_id, _ in self._known.items() if run_id in is_open]
        unknown = sorted(is_open.difference(in_turn))
        lively = sorted(in_turn, key=self._changed_at, reverse=True)
        return dict.fromkeys([*unknown[:_LIVELY], *lively[: max(0, _LIVELY - len(unknown))], *in_turn[:_IN_TURN]])

    def _changed_at(self, run_id: str) -> float:
        known = self._known.peek(run_id)
        return known.head.updated_at if known is not None else 0.0

    def _deleted(self) -> list[ChangedRun]:
        """Return the runs that this process has deleted since the last look."""
        gone = [row for run_id, row in self._known.items() if self._reader.is_hidden(run_id)]
        for row in gone:
            self._known.drop(row.run_id)
        return [ChangedRun(row.run_id, row.workflow, None) for row in gone]


def _time(position: str) -> float | None:
    try:
        return float(position) if len(position) < 32 else None  # noqa: PLR2004 - longer than any time
    except ValueError:
        return None
