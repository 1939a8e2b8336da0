"""How many open runs may descend from one run: a workflow that starts itself twice must come to an end.

Nesting alone does not bound that: two children each, fifty levels deep, are more runs than any store holds. Children of
a run that nobody started from a run are free, so a wide tree of one level costs nothing here. Deeper ones are counted
in the store, now and then: who may start more is worked out from the last count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from loom.effects.child_runs import MAX_NESTING
from loom.steps.errors import ChildRunFailed
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.store.ports import Store
    from loom.store.records import RunRow

T = TypeVar("T")

MAX_OPEN = 10_000
"""Open runs that descend from one run. When there are so many, no run among them may start another."""
_STEP = 20
"""At least one part in so many of the limit is started between two counts, so that counting stays rare."""
_REFUSES_S = 1.0
"""A family that is full is not counted again for so long."""
_REMEMBERED = 10_000


class Families:
    """Says whether a run that descends from another may start a child."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._roots: dict[str, str] = {}
        """The first run of all, by a run that descends from it."""
        self._left: dict[str, int] = {}
        """Children that may be started before the family is counted again, by its first run."""
        self._full_until: dict[str, float] = {}
        self._counting = asyncio.Lock()

    def admission(self, row: RunRow) -> Awaitable[None] | None:
        """What has to be awaited before a run starts a child: `ChildRunFailed` if its family is full. None: nothing."""
        return None if row.parent is None else self._admit(row)

    async def _admit(self, row: RunRow) -> None:
        root = await self._root(row)
        if self._left.get(root, 0) <= 0:
            async with self._counting:
                if self._left.get(root, 0) <= 0:
                    await self._count(root)
        self._left[root] = self._left.get(root, 1) - 1

    async def _count(self, root: str) -> None:
        """Count a family, or refuse."""
        limit = MAX_OPEN
        if self._full_until.get(root, 0.0) <= self._clock():
            found = await self._open(root, limit)
            if found < limit:
                self._keep(self._left, root, max(limit - found, limit // _STEP, 1))
                return
            self._keep(self._full_until, root, self._clock() + _REFUSES_S)
        raise ChildRunFailed(f"More than {limit:,} open runs descend from the run {root!r}.", root, "FamilyLimit")

    async def _open(self, root: str, limit: int) -> int:
        """Open runs that descend from a run, counted up to a limit."""
        count, above = 0, [root]
        while above and count < limit:
            query = RunQuery(parent=above.pop(), status="running", limit=limit - count)
            rows = await self._store.find(query)
            count += len(rows)
            above += [row.run_id for row in rows]
        return count

    async def _root(self, row: RunRow) -> str:
        """The first run of a family."""
        passed, root, parent = [row.run_id], row.run_id, row.parent
        while parent is not None and len(passed) <= MAX_NESTING:
            if parent in self._roots:
                root = self._roots[parent]
                break
            root = parent
            passed.append(parent)
            above = await self._store.get(parent)
            parent = above.parent if above is not None else None
        for run_id in passed:
            self._keep(self._roots, run_id, root)
        return root

    @staticmethod
    def _keep(kept: dict[str, T], key: str, value: T) -> None:
        """Remember something, and forget the oldest if there is too much."""
        kept.pop(key, None)
        kept[key] = value
        if len(kept) > _REMEMBERED:
            del kept[next(iter(kept))]
