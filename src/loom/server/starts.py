"""Who may begin a run now: none while the server stops or is short of memory, and each key only a few at a time.

A run counts for the key that has begun it, from its request on. It counts no more once it has ended, waits for input,
is paused or is parked: such a run needs no memory. Runs that other servers have begun do not count, nor what this
one began before its last restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from loom.server.problems import ApiProblem, problem_of
from loom.store.errors import MemoryExceeded

if TYPE_CHECKING:
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.call import Call

_LOOK_S = 1.0
"""How often the runs of a key that has reached its limit are looked at again."""


def check_open(call: Call) -> None:
    """Refuse what begins something new while the server is about to stop, or has no memory for it."""
    headers = {"Retry-After": str(call.settings.retry_after)}
    if call.server.draining:
        raise ApiProblem("draining", "The server is stopping.", headers=headers)
    try:
        call.runtime.memory.check()
    except MemoryExceeded as error:
        raise problem_of(error, call.settings.retry_after) or error from error


class Starts:
    """The runs of each key that are at work, as far as this server has begun them.

    A key counts with the one that it was rotated from.
    """

    def __init__(self, runtime: WorkerRuntime, most: int | None, retry_after: int) -> None:
        self._runtime = runtime
        self._most = most
        self._retry_after = retry_after
        self._runs: dict[str, set[str]] = {}
        self._reserved: Counter[str] = Counter()
        self._looked_at: dict[str, float] = {}

    async def reserve(self, call: Call, number: int = 1) -> None:
        """Let a request begin this many runs, or refuse it with 429. The places are its own until it is answered."""
        if self._most is None:
            return
        who = call.principal.lineage or call.principal.id
        if self._room(who) < number:
            await self._look(who)
        if self._room(who) < number:
            raise ApiProblem(
                "limited",
                f"The caller has {self._most - max(0, self._room(who))} runs at work, and may have {self._most}: begin "
                f"{'another one' if number == 1 else 'others'} when they have ended.",
                headers={"Retry-After": str(self._retry_after)},
            )
        call.reserved += number
        self._reserved[who] += number

    def settle(self, call: Call) -> None:
        """Count what a request has begun, in place of what it might have."""
        who = call.principal.lineage or call.principal.id
        self._reserved[who] -= call.reserved
        call.reserved = 0
        self._runs.setdefault(who, set()).update(call.begun)

    def _room(self, who: str) -> int:
        return (self._most or 0) - len(self._runs.get(who, ())) - self._reserved[who]

    async def _look(self, who: str) -> None:
        """Forget the runs of a key that are at work no more, at most once a second: a caller may ask more often."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at.get(who, float("-inf")) < _LOOK_S:
            return
        self._looked_at[who] = now
        for run_id in list(self._runs.get(who, ())):
            if not await self._is_at_work(run_id):
                self._runs[who].discard(run_id)

    async def _is_at_work(self, run_id: str) -> bool:
        row = await self._runtime.store.get(run_id)
        if row is None or row.head.status != "running":
            return False
        head = row.head
        return head.idle_since is None and not head.paused and head.parked is None
