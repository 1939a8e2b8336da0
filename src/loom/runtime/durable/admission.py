"""Whether there is room for a run: places in memory, the memory itself, and the family of the run.

`max_in_memory` limits all runs of a process, `num_concurrent_runs` those of one workflow, `max_memory` the bytes. A run
that waits for a child of the same workflow would hold the very place that the child needs. So a child may use the place
of the run that it descends from, one child at a time.

`max_descendants` limits the runs in memory that descend from one run: one run with thousands of children must not make
the runs of others wait.

A workflow that starts itself twice must come to an end. Nesting alone does not bound that: two children each, fifty
levels deep, are more runs than any store holds. So the open runs of a family are counted in the store, now and then;
between two counts, the last one tells how many more may start. Children of a run without a parent are free.

The limit of the memory is a watermark, not a wall: what is under way goes on and may need more. Work is taken again
below nine tenths of the limit, so that a process near it does not open and close its door all the time. A process that
cannot get there, because its memory is in fragments, takes one run at a time after a while. Otherwise it would stand
still for ever.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from loom.effects.context_calls import MAX_NESTING
from loom.effects.off_loop import aside
from loom.runtime.garbage import collect_all
from loom.steps.errors import ChildRunFailed
from loom.store.errors import MemoryExceeded
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping

    from loom.runtime.durable.active_run import ActiveRun
    from loom.runtime.durable.registration import Registration
    from loom.store.ports import OwnedStore, RunReads
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
        self._counted: Counter[Registration] = Counter()
        """Runs that have a place of their own, by their code."""
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
            own = limit - self._counted[code]
        if self._limit is not None:
            every = self._limit - len(self._places)
        return max(0, min(own, every, int(self._memory.has_room) if self._memory.is_over else _MANY))

    def take_place(self, run_id: str, code: Registration) -> None:
        """Let a run have a place: it comes into memory, or is there."""
        self._count(run_id, -1)
        self._places[run_id] = code
        self._count(run_id, 1)

    def _count(self, run_id: str, change: int) -> None:
        """Count a run with its code, or no more, if it has a place of its own."""
        code = self._places.get(run_id)
        if code is not None and run_id not in self._lenders:
            self._counted[code] += change

    def place_of(self, run_id: str) -> Registration:
        """Return the code of a run that has a place."""
        return self._places[run_id]

    def free_place(self, run_id: str) -> bool:
        """Take back the place of a run that leaves, or does not come; False if it has none.

        A run that used its place has that from now on, be it the run's own or lent to it.
        """
        self._count(run_id, -1)
        if self._places.pop(run_id, None) is None:
            return False
        lender = self._lenders.pop(run_id, None)
        for borrower in [borrower for borrower, other in self._lenders.items() if other == run_id]:
            if lender is None:
                del self._lenders[borrower]
                self._count(borrower, 1)
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
            self._count(run_id, -1)
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


class FamilyPlaces:
    """Bounds how many runs that descend from one run are in memory, so that they leave time and memory to others.

    Runs come in the order in which they asked. Runs in memory may wait for children that have no place. So one run may
    go beyond the limit, then one that descends from it, and so on: a family always makes progress.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        """The most runs of one family in memory; None: any number. The first run of all does not count."""
        self._roots: dict[str, str] = {}
        """The first run of all, by a run that has a place or waits for one."""
        self._members: dict[str, set[str]] = {}
        """Runs that have a place, by the first run of all."""
        self._beyond: dict[str, list[str]] = {}
        """Runs among them that are beyond the limit. Each but the first descends from the one before."""
        self._waiting: dict[str, dict[str, tuple[str, ...]]] = {}
        """Runs without a place, with the runs that they descend from, by the first run of all."""
        self._children: dict[str, dict[str, None]] = {}
        """Runs without a place, by their parents."""

    def take(self, run_id: str, ancestors: tuple[str, ...], *, at_once: bool = False) -> bool:
        """Give a run a place; else let it wait for one.

        `ancestors` are the runs that it descends from, its parent first. `at_once` gives it a place beyond the limit.
        """
        root = ancestors[-1]
        members = self._members.setdefault(root, set())
        self._roots[run_id] = root
        if run_id not in members:
            if self._is_at_limit(root) and not at_once:
                if not self._may_go_beyond(ancestors):
                    self._waiting.setdefault(root, {})[run_id] = ancestors
                    self._children.setdefault(ancestors[0], {})[run_id] = None
                    return False
                self._beyond.setdefault(root, []).append(run_id)
            members.add(run_id)
        self._leave_queue(run_id, root)
        return True

    def free(self, run_id: str) -> str | None:
        """Take back the place of a run, and return the run of its family that may come in its place."""
        root = self._roots.pop(run_id, None)
        if root is None:
            return None
        self._leave_queue(run_id, root)
        self._members[root].discard(run_id)
        beyond = self._beyond.get(root, [])
        was_last = bool(beyond) and beyond[-1] == run_id
        if run_id in beyond:
            beyond.remove(run_id)
        following = self._next(root, beyond, was_last)
        if following is not None:
            self._leave_queue(following, root)  # the next place is for another one
        elif not self._members[root] and root not in self._waiting:
            del self._members[root]
            self._beyond.pop(root, None)
        return following

    def _next(self, root: str, beyond: list[str], last_has_changed: bool) -> str | None:
        """Find the run that may come now. At the limit that is news only if the line beyond it has become shorter."""
        waiting = self._waiting.get(root)
        if not waiting or (self._is_at_limit(root) and not last_has_changed):
            return None
        if not self._is_at_limit(root) or not beyond:
            return next(iter(waiting))
        for child in self._children.get(beyond[-1], ()):
            return child
        return next((run_id for run_id, ancestors in waiting.items() if beyond[-1] in ancestors), None)

    def is_full(self, run_id: str) -> bool:
        """Say whether runs of the family of this one wait for its place."""
        return self._roots.get(run_id) in self._waiting

    def relatives(self, run_id: str) -> list[str]:
        """Return the runs in memory of the family of a run that waits, if it is the first one that does."""
        root = self._roots.get(run_id, "")
        return list(self._members[root]) if len(self._waiting.get(root, ())) == 1 else []

    def _is_at_limit(self, root: str) -> bool:
        return self._limit is not None and len(self._members[root]) >= self._limit

    def _may_go_beyond(self, ancestors: tuple[str, ...]) -> bool:
        beyond = self._beyond.get(ancestors[-1])
        return not beyond or beyond[-1] in ancestors

    def _leave_queue(self, run_id: str, root: str) -> None:
        waiting = self._waiting.get(root)
        ancestors = waiting.pop(run_id, None) if waiting is not None else None
        if ancestors is None:
            return
        if not waiting:
            del self._waiting[root]
        siblings = self._children[ancestors[0]]
        del siblings[run_id]
        if not siblings:
            del self._children[ancestors[0]]


T = TypeVar("T")

MAX_OPEN = 10_000
"""Open runs that descend from one run. At this number, no run among them may start another."""
_STEP = 20
"""At least the limit divided by this is started between two counts, so that counting stays rare."""
_REFUSES_S = 1.0
"""A family that is full is not counted again for so long."""
_REMEMBERED = 10_000


class Families:
    """Says whether a run that descends from another may start a child, and whether it may come into memory."""

    def __init__(self, store: OwnedStore, clock: Callable[[], float], in_memory: int | None) -> None:
        self._store, self._clock = store, clock
        self.places = FamilyPlaces(in_memory)
        self._parents: dict[str, str | None] = {}
        """The parents of runs that descend from others."""
        self._left: dict[str, int] = {}
        """Children that may be started before the family is counted again, by its first run."""
        self._full_until: dict[str, float] = {}
        self._counting = asyncio.Lock()

    def admission(self, row: RunRow) -> Awaitable[None] | None:
        """What has to be awaited before a run starts a child: `ChildRunFailed` if its family is full. None: nothing."""
        return None if row.parent is None else self._admit(row)

    async def _admit(self, row: RunRow) -> None:
        root = (await self.ancestors(row))[-1]
        if self._left.get(root, 0) <= 0:
            async with self._counting:
                if self._left.get(root, 0) <= 0:
                    await self._count(root)
        self._left[root] = self._left.get(root, 1) - 1

    async def _count(self, root: str) -> None:
        """Count a family, or refuse."""
        limit = MAX_OPEN
        if self._full_until.get(root, 0.0) <= self._clock():
            found = await self._store.descendants(root, limit)
            if found < limit:
                self._keep(self._left, root, max(limit - found, limit // _STEP, 1))
                return
            self._keep(self._full_until, root, self._clock() + _REFUSES_S)
        raise ChildRunFailed(f"More than {limit:,} open runs descend from the run {root!r}.", root, "FamilyLimit")

    async def take_place(self, row: RunRow, is_to_end: Callable[[str], Awaitable[bool]]) -> bool:
        """Give a run a place in memory among its family; else let it wait for one. One that is to end never waits."""
        ancestors = await self.ancestors(row)
        if not ancestors or self.places.take(row.run_id, ancestors):
            return True
        return await is_to_end(row.run_id) and self.places.take(row.run_id, ancestors, at_once=True)

    async def ancestors(self, row: RunRow) -> tuple[str, ...]:
        """Return the runs that a run descends from: its parent first, the first run of the family last."""
        found: list[str] = []
        parent = row.parent
        while parent is not None and len(found) <= MAX_NESTING:
            found.append(parent)
            if parent not in self._parents:
                above = await self._store.get(parent)
                self._keep(self._parents, parent, above.parent if above is not None else None)
            parent = self._parents[parent]
        return tuple(found)

    @staticmethod
    def _keep(kept: dict[str, T], key: str, value: T) -> None:
        """Remember something, and forget the oldest if there is too much."""
        kept.pop(key, None)
        kept[key] = value
        if len(kept) > _REMEMBERED:
            del kept[next(iter(kept))]


# The memory of the process.


LOWER = 0.9
"""The share of the limit below which work is taken again."""
_FRESH_S = 0.1
_TIDY_EVERY_S = 10.0
_TIDY_WHOLE_EVERY_S = 60.0
"""How often garbage among old containers is collected above the limit: that stops the process for longer."""
_STANDS_STILL_S = 30.0
"""After how long above the limit runs are let in one by one. By then garbage was given back several times."""
_ARENAS = 2
"""Heaps of the C library, which else makes up to eight for each core and fills none of them."""
_M_ARENA_MAX = -8
_MIB = 1024 * 1024


def resident_bytes() -> int:
    """The memory of this process that is in RAM. Without `/proc`, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows knows neither
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class MemoryLimit:
    """The memory of a process against its limit. All but `tidy` may be called from any thread."""

    def __init__(self, limit: int | None, read: Callable[[], int] = resident_bytes) -> None:
        self.limit = limit
        """In bytes; None: there is none, and nothing is ever over it."""
        self.is_over = False
        """Whether the last look found the process above its limit, and none since below the lower mark."""
        self.refused = 0
        """Starts that were refused."""
        self.times_over = 0
        self._read = read
        self._looked_at = self._tidied_at = self._tidied_whole_at = float("-inf")
        self._over_since = float("inf")
        self._alone: str | None = None
        """The run that was let in last above the limit, while it is in memory."""
        if limit is not None:
            _use_few_heaps()

    def used(self) -> int:
        """Bytes in use now."""
        return self._read()

    def look(self) -> bool:
        """See whether there is too little memory for more work. What was read within a tenth of a second counts."""
        now = monotonic()
        if self.limit is not None and now - self._looked_at >= _FRESH_S:
            self._looked_at = now
            mark = self.limit * LOWER if self.is_over else self.limit
            is_over = self._read() > mark
            if is_over and not self.is_over:
                self.times_over += 1
                self._over_since = now
            self.is_over = is_over
        return self.is_over

    @property
    def has_room(self) -> bool:
        """Whether a run may be begun or come into memory, as far as the last look tells."""
        if not self.is_over:
            return True
        return self._alone is None and monotonic() - self._over_since >= _STANDS_STILL_S

    def let_in(self, run_id: str) -> None:
        """Note that a run has come into memory. Above the limit no other one comes before it has left."""
        if self.is_over:
            self._alone = run_id

    def see(self, in_memory: Container[str]) -> None:
        """Note which runs are in memory now."""
        if self._alone is not None and self._alone not in in_memory:
            self._alone = None

    def check(self) -> None:
        """Refuse to start a run for which there is no memory: `MemoryExceeded`."""
        if self.look() and not self.has_room:
            self.refused += 1
            raise MemoryExceeded(self.words)

    @property
    def words(self) -> str:
        """Why nothing is begun, in a sentence."""
        limit = self.limit or 0
        return (
            f"The process uses {self._read() / _MIB:,.0f} MiB of memory and may use {limit / _MIB:,.0f}: it begins no "
            f"run until it is below {limit * LOWER / _MIB:,.0f} MiB."
        )

    async def tidy(self) -> None:
        """Give back what nobody uses, at most every ten seconds: cyclic garbage, and what the allocator keeps."""
        now = monotonic()
        if now - self._tidied_at >= _TIDY_EVERY_S:
            self._tidied_at = now
            is_thorough = now - self._tidied_whole_at >= _TIDY_WHOLE_EVERY_S
            if is_thorough:
                self._tidied_whole_at = now
            await aside("replay", partial(_give_back, is_thorough))
            self._looked_at = float("-inf")


def _use_few_heaps() -> None:
    """Have the threads share heaps, so that the memory that one of them frees is of use to the others."""
    import ctypes  # few processes have a limit of memory

    option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if option is not None:
        option(_M_ARENA_MAX, _ARENAS)


def _give_back(is_thorough: bool) -> None:
    import ctypes

    if is_thorough:
        collect_all()
    else:
        gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # only glibc has it
        trim(0)
