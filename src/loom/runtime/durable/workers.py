"""The processes that work on the runs of a store, as callers see them.

A store knows the members, their leases and how many runs each owns. What only a process itself knows, it tells with a
small entry under its fence. A reader joins it with the members, so that an entry alone makes no process alive.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

import loom
from loom.api.times import maybe_moment
from loom.api.workers import Worker
from loom.runtime.durable.names import OWN
from loom.store.errors import CorruptEntry, KeyUnavailable, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loom.store.ports import EntryStore, Store
    from loom.store.records import MemberState

_log = logging.getLogger("loom.durable")

WORKERS: Final = "worker"
"""The kind of the store's entries in which processes tell of themselves. The key is the fence."""
_KEPT_S = 3600.0
"""Seconds after which the entry of a process that died without a goodbye is deleted."""
_RENEWED_S = 600.0
"""Seconds after which a process writes its entry again though nothing has changed."""
_COUNTED_S = 10.0
"""Seconds in which no entry is written for another number of runs alone."""

_Number = Annotated[int, Meta(ge=0, le=2**53)]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the process itself knows, as fields of a `Worker`."""

    since: Annotated[datetime, Meta(tz=True)] | None
    workflows: list[str]
    runs_in_memory: _Number | None
    host: str
    pid: _Number
    version: str


def own_facts(since: float | None, names: Iterable[str], in_memory: int) -> WorkerFacts:
    """Return what this process knows of itself."""
    return WorkerFacts(
        since=maybe_moment(since),
        workflows=sorted(name for name in names if not name.startswith(OWN)),
        runs_in_memory=in_memory,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=loom.__version__,
    )


class OwnEntry:
    """The entry in which a process tells of itself. Runs go on without it, so no failure leaves this class."""

    def __init__(
        self, store: EntryStore, fence: int, facts: Callable[[], WorkerFacts | None], now: Callable[[], float]
    ) -> None:
        self._store = store
        self._key = str(fence)
        self._facts = facts
        self._now = now
        self._told: WorkerFacts | None = None
        """What was written last."""
        self._told_at = float("-inf")
        self._is_there = False
        """Whether there may be an entry."""
        self._is_failing = False

    async def tell(self) -> None:
        """Write what has changed. Call it often: most calls write nothing."""
        facts, now = self._facts(), self._now()
        if facts is None or 0 <= now - self._told_at < self._pause_s(facts):
            return
        try:
            data = msgspec.json.encode(facts)
            self._is_there = True  # also if the answer is lost
            await self._store.put_entry(WORKERS, self._key, data, expires_at=now + _KEPT_S)
        except (StoreError, ValueError) as error:
            if not self._is_failing:
                _log.warning("Other processes are not told what this one works for, until a try succeeds: %s", error)
            self._is_failing = True
        else:
            self._told, self._told_at, self._is_failing = facts, now, False

    def _pause_s(self, facts: WorkerFacts) -> float:
        """Return how many seconds must lie between the last write and one of these facts."""
        if self._told is None or replace(self._told, runs_in_memory=facts.runs_in_memory) != facts:
            return 0.0
        return _RENEWED_S if self._told == facts else _COUNTED_S

    async def drop(self) -> None:
        """Take back what was told: the process works no more. While the store fails the entry is left to expire."""
        if not self._is_there or self._is_failing:
            return
        try:
            await self._store.drop_entry(WORKERS, self._key)
        except StoreError as error:
            _log.warning("What this process told of itself stays until it expires: %s", error)


async def rendered_workers(store: Store, own: tuple[int | None, str] | None, known: WorkerFacts | None) -> list[Worker]:
    """Render the members of a store. `own` is the fence and the name of this process, and `known` what it knows."""
    found = []
    for member in await store.members():
        is_this = own is not None and own == (member.fence, member.name)
        worker = Worker(
            name=member.name,
            alive=member.alive,
            seen=maybe_moment(member.seen),
            until=maybe_moment(member.until),
            owned=member.owned,
            is_this=is_this,
            **fields_of(known if is_this else await _told_facts(store, member)),
        )
        found.append(worker)
    return found


async def _told_facts(store: EntryStore, member: MemberState) -> WorkerFacts | None:
    """Read what a member tells of itself; None if it tells nothing, or nothing that can be read."""
    if member.fence is None:
        return None
    try:
        entry = await store.entry(WORKERS, str(member.fence))
        facts = msgspec.json.decode(entry.data, type=WorkerFacts) if entry is not None else None
    except (CorruptEntry, KeyUnavailable, ValueError, RecursionError) as error:
        _log.warning("What the worker %r tells of itself cannot be read: %s", member.name, error)
        return None
    # A dead process has told what it worked for and where, but it holds nothing in memory any more.
    return facts if facts is None or member.alive else replace(facts, runs_in_memory=None)


def fields_of(facts: WorkerFacts | None) -> dict[str, Any]:
    """Return what a process tells of itself as fields of a `Worker`."""
    return asdict(facts) if facts is not None else {}
