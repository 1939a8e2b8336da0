"""What is stored of a run and beside runs, as plain data, and which runs a query means."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import msgspec

from loom.api.problems import NOBODYS_TURN, RunStatus, is_asleep, is_stuck, is_waiting
from loom.store.deaths import Deaths

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
    """The link of the chunk before it: see `loom.store.hash_chain`. None in chunks that are older than links."""


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
    """The digest made of it when it was written: see `loom.store.hash_chain`."""


class TimerRow(msgspec.Struct, frozen=True):
    """A timer that a run has armed."""

    seq: int
    due: float
    purpose: str


class InboxMessage(msgspec.Struct, frozen=True):
    """An input for a run that no commit has taken yet: an encoded tick, whose time is set when it is taken."""

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
    """Whether work of it is queued or executing, so that a run without an owner must be recovered."""
    waiters: bytes = b"[]"
    """What it waits for, as a JSON list, for people."""
    waiting_for: tuple[str, ...] = ()
    """The event types of its waiters: wire names and short names, without repetition."""
    kept: int = 0
    """How many early events it keeps for waiters to come."""
    paused: bool = False
    parked: str | None = None
    """Why it cannot go on with the code of this process; None if it can."""
    error: str | None = None
    """Of a failed run: what it failed with, in one line. Of a stuck run: the reason."""
    downtime: float = 0.0
    """The store's downtime when this was written: see `Member`."""
    link: bytes | None = None
    """The link of its last chunk: see `loom.store.hash_chain`."""
    mac: bytes | None = None
    """The signature of the row, made with a key: see `loom.store.hash_chain`. None without keys, and in rows that are
    older than such signatures."""

    @property
    def stuck(self) -> str | None:
        """Tell why nothing can move the run, if it is stuck: see `is_stuck`. Readers must have read the waiters."""
        waits, idle, parked = bool(self.waiting_for), self.idle_since is not None, self.parked is not None
        if not is_stuck(self.status, idle=idle, waits=waits, paused=self.paused, parked=parked):
            return None
        return self.error or NOBODYS_TURN

    @property
    def asleep(self) -> bool:
        """Tell whether only a timer will move the run: see `is_asleep`."""
        idle, parked = self.idle_since is not None, self.parked is not None
        return is_asleep(self.status, idle=idle, needs_worker=self.needs_worker, paused=self.paused, parked=parked)

    @property
    def waiting(self) -> bool:
        """Tell whether the run waits for an event from outside: see `is_waiting`."""
        return is_waiting(self.status, self.waiting_for)

    @property
    def idle_reason(self) -> str | None:
        """Tell why an idle run waits for nothing, also of one that is paused; None if it is not idle."""
        return self.error if self.status == "running" and self.idle_since is not None else None

    @property
    def failed_with(self) -> str | None:
        """Tell what a failed run failed with; of a running one on a cluster, why its state is unknown."""
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
    """The fence of its owner; None without one."""
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
    """In order, without gaps; from `load` only the ones after the snapshot."""
    inbox: tuple[InboxMessage, ...] = msgspec.field(default=(), name="mail")
    """Its messages from outside that no commit has taken yet. Exports call them `mail`."""
    timers: tuple[TimerRow, ...] = ()
    event_ids: tuple[str, ...] = ()
    document: bytes | None = None
    """The text of the definition whose digest its row has."""
    marked: Deaths | msgspec.UnsetType = msgspec.UNSET
    """From `load`: its `deaths`. They belong to this store and are never exported."""

    @property
    def size(self) -> int:
        """Return how many bytes the run is recovered from: its snapshot, and the chunks that follow."""
        return sum([len(chunk.data) for chunk in self.chunks], len(self.snapshot.data) if self.snapshot else 0)

    @property
    def deaths(self) -> Deaths | None:
        """Return the unclean deaths of processes at work on it since its last result; None if there were none."""
        return None if isinstance(self.marked, msgspec.UnsetType) else self.marked


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list: all conditions that are given must hold. Newest first, by (created_at, run_id).

    `place_of` gives the place of a row in the order asked for.
    """

    status: RunStatus | tuple[RunStatus, ...] | None = None
    """This one, or one of these. An empty tuple matches no run."""
    workflow: str | tuple[str, ...] | None = None
    """This one, or one of these."""
    idle: bool | None = None
    """True: `idle_since` is set; False: it is not."""
    idle_before: float | None = None
    """Idle since this time or longer."""
    waiting_for: str | None = None
    """An event type that the run waits for: its wire name or its short name."""
    tags: dict[str, str] = {}
    """All of these tags with these values."""
    parent: str | None = None
    paused: bool | None = None
    parked: bool | None = None
    stuck: bool | None = None
    """True: idle without a waiter, neither paused nor parked: see `is_stuck`."""
    asleep: bool | None = None
    """True: running, and only a timer will move it: see `is_asleep`."""
    waiting: bool | None = None
    """True: it waits for an event that a person or a program can send: see `is_waiting`."""
    id_prefix: str | None = None
    """What the id of the run begins with."""
    updated_after: float | None = None
    """Written later than this time."""
    created_after: float | None = None
    """Created later than this time."""
    created_before: float | None = None
    """Created earlier than this time."""
    oldest_first: bool = False
    """Oldest runs first instead."""
    by_update: bool = False
    """In the order of (updated_at, run_id) instead."""
    after: tuple[float, str] | None = None
    """Continue after this place, in the order asked for: see `place_of`."""
    limit: int = 100

    @property
    def statuses(self) -> tuple[RunStatus, ...] | None:
        """Return the values that match, each once; None for all."""
        return None if self.status is None else _each_once(self.status)

    @property
    def workflows(self) -> tuple[str, ...] | None:
        """Return the values that match, each once; None for all."""
        return None if self.workflow is None else _each_once(self.workflow)


def _each_once(wanted: NameT | tuple[NameT, ...]) -> tuple[NameT, ...]:
    return tuple(dict.fromkeys(wanted)) if isinstance(wanted, tuple) else (wanted,)


class Entry(msgspec.Struct, frozen=True):
    """A small value beside the runs, under a key that is unique within its kind."""

    kind: str
    key: str
    version: int
    """Greater than the version of every put before it, of any entry; from 1."""
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


class MemberState(msgspec.Struct, frozen=True):
    """A process that works on runs, as its store knows it. None: the store does not know."""

    name: str
    alive: bool
    """Whether its lease holds."""
    fence: int | None = None
    seen: float | None = None
    until: float | None = None
    """The end of its lease; None also where a lease has no end."""
    owned: int | None = None
    """How many runs it owns."""


class Member(msgspec.Struct, frozen=True):
    """A process that owns runs."""

    fence: int
    """Greater than every fence before it."""
    downtime: float
    """Seconds in which this store had no living member, in all its life. It grows only when a member joins."""


def place_of(row: RunRow, query: RunQuery) -> tuple[float, str]:
    """Return where a row stands in the list of a query. A next page begins `after` it."""
    return row.head.updated_at if query.by_update else row.created_at, row.run_id


def end_of_prefix(prefix: str) -> str:
    """Return a text that sorts after every id that begins with the prefix, and before all later ones."""
    return f"{prefix}\U0010ffff"


def matches(row: RunRow, query: RunQuery) -> bool:
    """Tell whether a row meets every condition of a query, for stores that look at rows one by one."""
    head = row.head
    return (
        (query.statuses is None or head.status in query.statuses)
        and (query.workflows is None or row.workflow in query.workflows)
        and (query.parent is None or row.parent == query.parent)
        and (query.paused is None or head.paused == query.paused)
        and (query.parked is None or (head.parked is not None) == query.parked)
        and (query.stuck is None or (head.stuck is not None) == query.stuck)
        and (query.asleep is None or head.asleep == query.asleep)
        and (query.waiting is None or head.waiting == query.waiting)
        and (query.waiting_for is None or query.waiting_for in head.waiting_for)
        and (query.id_prefix is None or row.run_id.startswith(query.id_prefix))
        and _time_matches(row, query)
        and _idle_matches(head.idle_since, query)
        and all(row.tags.get(key) == value for key, value in query.tags.items())
    )


def _time_matches(row: RunRow, query: RunQuery) -> bool:
    if query.created_after is not None and row.created_at <= query.created_after:
        return False
    if query.created_before is not None and row.created_at >= query.created_before:
        return False
    if query.updated_after is not None and row.head.updated_at <= query.updated_after:
        return False
    if query.after is None:
        return True
    place = place_of(row, query)
    return place > query.after if query.oldest_first else place < query.after


def _idle_matches(idle_since: float | None, query: RunQuery) -> bool:
    if query.idle is not None and (idle_since is not None) != query.idle:
        return False
    return query.idle_before is None or (idle_since is not None and idle_since <= query.idle_before)


MAX_NAME: Final = 200

ABSENT: Final = 0
"""The version to expect of a put that may only add an entry. Versions of entries are greater."""


def check_entry_names(kind: str, key: str) -> None:
    """Raise a `ValueError` if no store can keep an entry of this kind and key."""
    for what, name in (("The kind", kind), ("The key", key)):
        if not 0 < len(name) <= MAX_NAME:
            raise ValueError(f"{what} of an entry must have 1 to {MAX_NAME} characters, not {len(name)}.")
        if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
            raise ValueError(f"{what} {name!r} of an entry has characters that cannot be stored.")
