"""What is stored of a run, as plain data. May import msgspec."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

import msgspec

from loom.api.problems import NOBODYS_TURN, is_stuck
from loom.store.deaths import Deaths

RunStatus = Literal["running", "completed", "failed", "cancelled"]

NameT = TypeVar("NameT", bound=str)


class Chunk(msgspec.Struct, frozen=True):
    """What one commit added to a run's journal and stream, encoded together."""

    first_tick: int
    """The number of its first tick, from 0."""
    ticks: int
    first_cursor: int
    """The cursor of its first published event, from 0."""
    events: int
    data: bytes
    previous: bytes | None = None
    """The link of the chunk before it: see `loom.store.chain`. None if the run had no links then."""


class HeldRuns(NamedTuple):
    """Running runs of a workflow that do not move by themselves."""

    waiting: int = 0
    """Idle ones that are neither parked nor stuck: input from outside moves them."""
    parked: int = 0
    """Parked ones: they need other code."""
    stuck: int = 0
    """Stuck ones: see `is_stuck`."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a run after its first `ticks` ticks, encoded."""

    ticks: int
    data: bytes
    link: bytes | None = None
    """Made of it when it was written: see `loom.store.chain`."""


class TimerRow(msgspec.Struct, frozen=True):
    """A timer that a run has armed."""

    seq: int
    due: float
    purpose: str


class Mail(msgspec.Struct, frozen=True):
    """Something for a run from outside, on its way: an encoded tick, whose time is set when it is taken."""

    id: int
    data: bytes


class RunHead(msgspec.Struct, frozen=True):
    """The part of a run's row that its owner writes with every commit."""

    status: RunStatus
    ticks: int
    """How many ticks its journal has."""
    events: int
    """How many events its stream has."""
    updated_at: float
    idle_since: float | None = None
    needs_worker: bool = True
    """Something of it is queued or executing: if nobody owns it, somebody must take it up."""
    waiters: bytes = b"[]"
    """What it waits for, as a JSON list, for people."""
    waiting_for: tuple[str, ...] = ()
    """The event types of those waiters: wire names and short names, without repetition."""
    kept: int = 0
    """Early events that it keeps for waiters to come."""
    paused: bool = False
    parked: str | None = None
    """Why it cannot go on with the code at hand."""
    error: str | None = None
    """Of a failed run: what it failed with, in one line. Of a stuck run: the reason."""
    downtime: float = 0.0
    """The store's downtime when this was written: see `Member`."""
    link: bytes | None = None
    """The link of its last chunk: see `loom.store.chain`."""
    mac: bytes | None = None
    """The signature of the row, made with a key: see `loom.store.chain`. None without keys, and from before there were
    such signatures."""

    @property
    def stuck(self) -> str | None:
        """Tell why nothing can move the run, if it is stuck: see `is_stuck`. Readers must have read the waiters."""
        waits, idle, parked = bool(self.waiting_for), self.idle_since is not None, self.parked is not None
        if not is_stuck(self.status, idle=idle, waits=waits, paused=self.paused, parked=parked):
            return None
        return self.error or NOBODYS_TURN

    @property
    def idle_reason(self) -> str | None:
        """Tell why an idle run waits for nothing, also of one that is paused; None if it is not idle."""
        return self.error if self.status == "running" and self.idle_since is not None else None

    @property
    def failed_with(self) -> str | None:
        """What a failed run failed with; of one that goes on on a cluster, why nobody can say how it is."""
        return self.error if self.status != "running" or self.idle_since is None else None


class RunRow(msgspec.Struct, frozen=True):
    """A run as it is stored."""

    run_id: str
    workflow: str
    created_at: float
    head: RunHead
    tags: dict[str, str] = {}
    ended_at: float | None = None
    parent: str | None = None
    """The run that started it as its child."""
    parent_ref: int = 0
    """The number of the child within its parent."""
    forked_from: str | None = None
    owner: int | None = None
    """The fence of the member that has it in memory."""
    first_tick: int = 0
    """The first tick that was not pruned."""
    document: str | None = None
    """The digest of the definition that it keeps for life, from its start or from the first commit that brought one;
    None for a workflow in Python."""


class StoredRun(msgspec.Struct, frozen=True):
    """Everything that is stored of a run: for `load`, export and import."""

    row: RunRow
    start: bytes
    snapshot: Snapshot | None
    chunks: tuple[Chunk, ...]
    """In order, without gaps; from `load` only those behind the snapshot."""
    mail: tuple[Mail, ...] = ()
    timers: tuple[TimerRow, ...] = ()
    event_ids: tuple[str, ...] = ()
    document: bytes | None = None
    """The text of the definition whose digest its row has."""
    marked: Deaths | msgspec.UnsetType = msgspec.UNSET
    """From `load`: its `deaths`. They belong to this store and are never exported."""

    @property
    def size(self) -> int:
        """The bytes of what the run is recovered from: its snapshot, and the chunks that follow."""
        return sum([len(chunk.data) for chunk in self.chunks], len(self.snapshot.data) if self.snapshot else 0)

    @property
    def deaths(self) -> Deaths | None:
        """The unclean deaths of processes that were at work on it, if there were any since its last result."""
        return None if isinstance(self.marked, msgspec.UnsetType) else self.marked


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list: all conditions that are given must hold. Newest first, by (created_at, run_id)."""

    status: RunStatus | tuple[RunStatus, ...] | None = None
    """This one, or one of these: none at all, if the tuple is empty."""
    workflow: str | tuple[str, ...] | None = None
    """This one, or one of these."""
    idle: bool | None = None
    """True: `idle_since` is set; False: it is not."""
    idle_before: float | None = None
    """Idle since this time or longer."""
    waiting_for: str | None = None
    """An event type among those that the run waits for: its wire name or its short name."""
    tags: dict[str, str] = {}
    """All of these tags with these values."""
    parent: str | None = None
    paused: bool | None = None
    parked: bool | None = None
    stuck: bool | None = None
    """True: idle without a waiter, neither paused nor parked: see `is_stuck`."""
    created_after: float | None = None
    """Created later than this time."""
    created_before: float | None = None
    """Created earlier than this time."""
    oldest_first: bool = False
    """The other way round."""
    after: tuple[float, str] | None = None
    """Continue behind this (created_at, run_id), in the order asked for."""
    limit: int = 100

    @property
    def statuses(self) -> tuple[RunStatus, ...] | None:
        """Those that match, each once; None for all."""
        return None if self.status is None else _each_once(self.status)

    @property
    def workflows(self) -> tuple[str, ...] | None:
        """Those that match, each once; None for all."""
        return None if self.workflow is None else _each_once(self.workflow)


def _each_once(wanted: NameT | tuple[NameT, ...]) -> tuple[NameT, ...]:
    return tuple(dict.fromkeys(wanted)) if isinstance(wanted, tuple) else (wanted,)


class Entry(msgspec.Struct, frozen=True):
    """Something small that is no run, under a name that is unique within its kind."""

    kind: str
    key: str
    version: int
    """Greater than that of every put before it, of whatever entry; from 1."""
    data: bytes
    expires_at: float | None = None
    """From this time on it is as if it were not there."""


class Holder(msgspec.Struct, frozen=True):
    """Who moves a run now: a member that has it in memory, or a cluster."""

    name: str
    alive: bool = True
    """False if it is silent, and its lease is over or soon will be."""
    seen: float | None = None
    """The last sign of life, if the store knows."""
    until: float | None = None
    """The end of its lease; None where a lease has no end."""
    is_process: bool = True


class Member(msgspec.Struct, frozen=True):
    """A process that takes runs up."""

    fence: int
    """Greater than every fence before it."""
    downtime: float
    """How many seconds, in all its life, this store had no living member. It grows only when a member joins."""
