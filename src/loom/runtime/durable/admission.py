"""Places in memory, and how many runs may descend from one run.

`max_in_memory` limits all runs of a process, `num_concurrent_runs` those of one workflow, `max_memory` the bytes. A run
that waits for a child of the same workflow would hold the very place that the child needs. So a child may use the place
of the run that it descends from, one child at a time.

A workflow that starts itself twice must come to an end. Nesting alone does not bound that: two children each, fifty
levels deep, are more runs than any store holds. So the open runs of a family are counted in the store, now and then;
between two counts, the last one tells how many more may start. Children of a run without a parent are free.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from loom.effects.context_calls import MAX_NESTING
from loom.steps.errors import ChildRunFailed
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loom.runtime.durable.active_run import ActiveRun
    from loom.runtime.durable.memory_limit import MemoryLimit
    from loom.runtime.durable.registration import Registration
    from loom.store.ports import RunReads
    from loom.store.records import RunRow


_MANY = 10_000
"""More runs than ever come into memory at once."""
_CHILDREN = 100
"""The most children of one run, and of all, that are looked for at a time."""


class AdmissionQueue:
    """Hands out the places of one process, in the order in which runs came."""

    def __init__(self, runs: Mapping[str, ActiveRun], store: RunReads, limit: int | None, memory: MemoryLimit) -> None:
        self._runs = runs
        """The runs in memory."""
        self._store = store
        self._limit = limit
        """The most runs in memory; None: any number."""
        self._memory = memory
        self._places: dict[str, Registration] = {}
        """Runs that have a place, in memory or on their way there, with their code."""
        self._lenders: dict[str, str] = {}
        """Runs that use the place of another one, and do not count."""
        self._waiting: dict[Registration, dict[str, tuple[str, ...]]] = {}
        """Runs without a place by their code, so that none waits for the limit of another workflow; each with the runs
        of the same workflow that it descends from."""

    # -- places -------------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Say whether all places are taken."""
        return self._limit is not None and len(self._places) >= self._limit

    def room_for(self, code: Registration) -> int:
        """Return how many more runs of a workflow may be in memory."""
        limit = code.definition.limits.concurrent_runs
        own = every = _MANY
        if limit is not None:
            lenders = self._lenders
            own = limit - sum(taken is code and run_id not in lenders for run_id, taken in self._places.items())
        if self._limit is not None:
            every = self._limit - len(self._places)
        return max(0, min(own, every, int(self._memory.has_room) if self._memory.is_over else _MANY))

    def take_place(self, run_id: str, code: Registration) -> None:
        """Let a run have a place: it comes into memory, or is there."""
        self._places[run_id] = code

    def place_of(self, run_id: str) -> Registration:
        """Return the code of a run that has a place."""
        return self._places[run_id]

    def free_place(self, run_id: str) -> bool:
        """Take back the place of a run that leaves, or does not come; False if it has none.

        A run that used its place has that from now on, be it the run's own or lent to it.
        """
        if self._places.pop(run_id, None) is None:
            return False
        lender = self._lenders.pop(run_id, None)
        for borrower in [borrower for borrower, other in self._lenders.items() if other == run_id]:
            if lender is None:
                del self._lenders[borrower]
            else:
                self._lenders[borrower] = lender
        return True

    async def admit(self, row: RunRow, code: Registration) -> bool:
        """Give a run a place, its own or that of a run that it descends from; else let it wait for one."""
        run_id = row.run_id
        ancestors = await self._ancestors(row) if row.parent is not None and not self.room_for(code) else ()
        if not self.room_for(code):
            lender = self._lender(code, ancestors)
            if lender is None:
                self._waiting.setdefault(code, {})[run_id] = ancestors
                return False
            self._lenders[run_id] = lender
        self.take_place(run_id, code)
        return True

    # -- runs that wait -----------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def drop(self, run_id: str) -> None:
        """Let a run wait no more. If it has a place now, runs of other workflows come before runs of its own."""
        place = self._places.get(run_id)
        for code in [code for code, waiting in self._waiting.items() if code is place or run_id in waiting]:
            self._drop(run_id, code)

    def next(self) -> str | None:
        """Take the first run that there is room for, or that another lends its place to; None if there is none."""
        for code, waiting in self._waiting.items():
            has_room = bool(self.room_for(code))
            for run_id, ancestors in waiting.items():
                if has_room or (ancestors and self._lender(code, ancestors) is not None):
                    self._drop(run_id, code)
                    return run_id
        return None

    def _drop(self, run_id: str, code: Registration) -> None:
        waiting = self._waiting.pop(code, {})
        waiting.pop(run_id, None)
        if waiting:
            self._waiting[code] = waiting  # the runs of other workflows are first now

    # -- families -----------------------------------------------------------------------------------------------------

    def _lender(self, code: Registration, ancestors: tuple[str, ...]) -> str | None:
        """Find the run in memory that can lend its place to a run of the same workflow that descends from it."""
        if not self.is_full and not self._memory.is_over:
            for run_id in ancestors:
                run = self._runs.get(run_id)
                if run is not None and run.code is code and not self._is_lent(run_id):
                    return run_id
        return None

    def _is_lent(self, run_id: str) -> bool:
        """Say whether another run uses the place of this one."""
        return run_id in self._lenders.values()

    async def _ancestors(self, row: RunRow) -> tuple[str, ...]:
        """Return the runs of the same workflow that a run descends from, the nearest first."""
        found: list[str] = []
        parent = row.parent
        while parent is not None and len(found) < MAX_NESTING:
            run = self._runs.get(parent)
            above = run.row if run is not None else await self._store.get(parent)
            if above is None:
                break
            if above.workflow == row.workflow:
                found.append(parent)
            parent = above.parent
        return tuple(found)

    async def children_without_place(self, code: Registration) -> list[str]:
        """Find runs without an owner that could use the place of a run of the same workflow that is in memory here."""
        found: list[str] = []
        for run_id, run in list(self._runs.items()):
            if run.code is code and run.has_children and not self._is_lent(run_id):
                above = [run_id]
                while above and len(found) < _CHILDREN:
                    query = RunQuery(parent=above.pop(), status="running", limit=_CHILDREN)
                    for row in await self._store.find(query):
                        if row.workflow != run.row.workflow:
                            above.append(row.run_id)
                        elif row.owner is None and row.head.needs_worker:
                            found.append(row.run_id)
        return found


T = TypeVar("T")

MAX_OPEN = 10_000
"""Open runs that descend from one run. At this number, no run among them may start another."""
_STEP = 20
"""At least the limit divided by this is started between two counts, so that counting stays rare."""
_REFUSES_S = 1.0
"""A family that is full is not counted again for so long."""
_REMEMBERED = 10_000


class Families:
    """Says whether a run that descends from another may start a child."""

    def __init__(self, store: RunReads, clock: Callable[[], float]) -> None:
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
