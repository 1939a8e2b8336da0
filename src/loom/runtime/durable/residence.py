"""The residence of a run in one process, as data: its states, and a table of all changes between them. Pure.

A process holds a slot for each run that it is busy with. A slot says where the run is, and whether something has come
for the run that it has not been told of (`wanted`):

- *absent*: no slot at all. The store has the run, and nothing of it is held here.
- *starting*: a caller stores the run's start. A place in memory is reserved, and the caller sets the run in motion.
- *claiming*: a task finds out whether the run can be this process' own and has a place in memory.
- *loading*: the run is owned and has a place. The task that claimed it reads and replays what is stored.
- *active*: in memory, with something to do; or the process never releases runs.
- *idle*: in memory, and only input from outside or a timer can move it. After a while it leaves.
- *releasing*: in memory still, while the store is asked to release it. The store refuses that while it has messages.
- *draining*: gone from memory, while the last commit of its stay is on its way to the store.
- *parking*: gone from memory, while the store is told why it cannot go on.
- *stranded*: the store has failed it, and the process may own it. The next scan tries again.
- *queued*: it waits for a place in memory. The store may give it to another process, unless it waits for a place among
  the runs of its family.

A *fact* is what happened; an *action* is what follows from it. `transition` turns a slot and a fact into the next slot
and its actions. A fact that the table has no row for changes nothing. The shell in `active_runs` carries the actions
out. It tells one fact at a time, and stores the next slot before it acts, so actions may tell facts themselves.

While a slot is busy (starting, claiming, loading, releasing, draining, parking), one task or caller holds it. What
comes for the run then is noted in `wanted`, and told again as soon as the slot is not busy any more. Without that, an
event that arrives after its run was read from the store, and before it is in memory, would wait for the next one.

The picture in `docs/architecture.md` is drawn from the table. `tests/property/test_residence_laws.py` holds it to its
laws: acknowledged input always has a way to a load, no run is loaded twice at once, and an absent run holds nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

State = Literal[
    "absent", "starting", "claiming", "loading", "active", "idle", "releasing", "draining", "parking", "stranded",
    "queued",
]  # fmt: skip

Fact = Literal[
    "notified",  # something has come for it: a message, news, a due timer; or the scanner found that it needs a worker
    "scanned",  # the scanner looks at the store, and finds that the store works
    "start expected",  # a caller is about to store its start, and has reserved a place
    "start done",  # the caller that had reserved a place has stored its start, or could not, and has begun it or not
    "start unsure",  # the store failed a caller that has no place for it, and may have its start nevertheless
    "message expected",  # a caller posts a message, has reserved a place, and claims it in the same transaction
    "claimed",  # it is this process' own, and has a place
    "no room",  # there is no place for it in memory
    "begun",  # it is in memory, and about to be set in motion
    "begin failed",  # setting it in motion has failed
    "given up",  # it cannot be this process' own, or need not be
    "cannot go on",  # what is stored of it and the registered code do not fit, or an error of the engine
    "store failed",  # the store failed before it was in memory, or parked
    "parked",  # the store has the reason why it cannot go on
    "rested",  # nothing executes in it, and nothing is on its way to it
    "stirred",  # it has something to do
    "messages unread",  # the store failed while its messages were read
    "release wanted",  # it has rested for long enough, or others need its place
    "release refused",  # the store has messages for it
    "release failed",  # the store failed, and it is still this process' own
    "release unsure",  # the store failed, and nobody knows whose it is
    "release unsure mid-commit",
    "left",  # it was released, or is over
    "left mid-commit",
    "commit failed",  # the store failed while it committed
    "fenced",  # another process owns it: its commit was refused
    "commit settled",  # the commit that was in flight when it left is durable, or has failed
]  # fmt: skip

Action = Literal[
    "claim",  # begin a task that claims it, and loads it if it can
    "fetch",  # read its messages, and deliver them
    "track",  # note since when it is idle
    "untrack",  # it is not idle any more
    "dequeue",  # it waits for no place any more
    "forget",  # drop what is in memory of it
    "free",  # give its place back, if it has one, to a run that waits for one
]  # fmt: skip

IN_MEMORY: frozenset[State] = frozenset({"active", "idle", "releasing"})
"""The run is an object in memory, which takes a place."""
BUSY: frozenset[State] = frozenset({"starting", "claiming", "loading", "releasing", "draining", "parking"})
"""One task or caller holds the slot, and will tell a fact that ends that."""


class Slot(NamedTuple):
    """Where a run is in this process."""

    state: State
    wanted: bool = False
    """Something has come for the run that it has not been told of."""

    @property
    def is_stranded(self) -> bool:
        """Say whether the next scan has to try something again that the store has failed."""
        return self.state == "stranded" or (self.wanted and self.state in ("active", "idle"))


ABSENT = Slot("absent")


class Row(NamedTuple):
    """One row of the table: a slot in state `before` is in state `after` once `fact` has happened."""

    before: State
    fact: Fact
    after: State
    actions: tuple[Action, ...] = ()
    wants: bool = False
    """The run has to be told of something later: see `Slot.wanted`."""


_COMMITTING: tuple[State, ...] = ("active", "releasing")  # before an idle run commits, it has stirred
_HERE: tuple[State, ...] = ("active", "idle", "releasing")
_COMING: tuple[State, ...] = ("starting", "claiming", "loading", "draining", "parking")
_GONE: tuple[Action, ...] = ("forget", "free")

TABLE: tuple[Row, ...] = (
    # Something comes for it.
    Row("absent", "notified", "claiming", ("claim",)),
    Row("queued", "notified", "claiming", ("claim",)),
    Row("stranded", "notified", "claiming", ("claim",)),
    Row("stranded", "scanned", "claiming", ("claim",)),
    *[Row(busy, "notified", busy, wants=True) for busy in _COMING],
    Row("active", "notified", "active", ("fetch",)),
    Row("idle", "notified", "idle", ("fetch",)),
    Row("releasing", "notified", "releasing", ("fetch",), wants=True),
    # Its messages cannot be read; it may have left memory since they were asked for.
    Row("absent", "messages unread", "stranded"),
    *[Row(busy, "messages unread", busy, wants=True) for busy in _COMING],
    *[Row(here, "messages unread", here, wants=True) for here in _HERE],
    # It comes into memory.
    Row("absent", "start expected", "starting"),
    Row("absent", "message expected", "claiming"),
    Row("claiming", "claimed", "loading"),
    Row("claiming", "no room", "queued"),
    Row("starting", "begun", "active", ("dequeue",)),
    Row("loading", "begun", "active", ("dequeue",)),
    Row("active", "begin failed", "loading", ("forget",)),
    Row("idle", "begin failed", "loading", ("forget",)),
    # It does not.
    Row("starting", "start done", "absent", ("dequeue", "free")),
    Row("loading", "start done", "absent", ("dequeue", "free")),
    Row("claiming", "given up", "absent", ("dequeue", "free")),
    Row("loading", "given up", "absent", ("dequeue", "free")),
    Row("parking", "given up", "absent", ("dequeue", "free")),
    Row("absent", "start unsure", "stranded"),
    *[Row(busy, "start unsure", busy, wants=True) for busy in _COMING],
    Row("starting", "store failed", "stranded", ("free",)),
    Row("claiming", "store failed", "stranded", ("free",)),
    Row("loading", "store failed", "stranded", ("free",)),
    Row("parking", "store failed", "stranded", ("free",)),
    Row("claiming", "cannot go on", "parking"),
    Row("loading", "cannot go on", "parking"),
    Row("parking", "parked", "absent", ("dequeue", "free")),
    # It is in memory.
    Row("active", "rested", "idle", ("track",)),
    Row("idle", "rested", "idle", ("track",)),
    Row("idle", "stirred", "active", ("untrack",)),
    Row("releasing", "stirred", "releasing", wants=True),
    Row("active", "scanned", "active", ("fetch",)),
    Row("idle", "scanned", "idle", ("fetch",)),
    # It leaves.
    Row("active", "release wanted", "releasing"),
    Row("idle", "release wanted", "releasing", ("untrack",)),
    Row("releasing", "release refused", "active", ("fetch",)),
    Row("releasing", "release failed", "active", wants=True),
    Row("releasing", "release unsure", "stranded", _GONE),
    Row("releasing", "release unsure mid-commit", "draining", _GONE, wants=True),
    *[Row(here, "left", "absent", _GONE) for here in _HERE],
    *[Row(here, "cannot go on", "parking", _GONE) for here in _HERE],
    *[Row(here, "left mid-commit", "draining", _GONE) for here in _COMMITTING],
    *[Row(here, "commit failed", "stranded", _GONE) for here in _COMMITTING],
    *[Row(here, "fenced", "claiming", (*_GONE, "claim")) for here in _COMMITTING],
    Row("draining", "commit settled", "absent"),
)
"""Every change of a slot."""

_ROWS = {(row.before, row.fact): row for row in TABLE}
_TELLS: frozenset[Action] = frozenset({"claim", "fetch"})
"""Actions after which the run has been told of all that had come."""


@cache
def transition(slot: Slot, fact: Fact) -> tuple[Slot, tuple[Action, ...]]:
    """Return the next slot, and what is to be done, in order. There are few slots: each answer is worked out once."""
    row = _ROWS.get((slot.state, fact))
    if row is None:
        return slot, ()
    if row.wants:
        return Slot(row.after, wanted=True), row.actions
    if not slot.wanted or not _TELLS.isdisjoint(row.actions):
        return Slot(row.after), row.actions
    if row.after == "absent" or (row.before in BUSY and row.after not in BUSY):
        after, actions = transition(Slot(row.after), "notified")
        return after, (*row.actions, *(action for action in actions if action not in row.actions))
    return Slot(row.after, wanted=row.after != "stranded"), row.actions  # the next scan takes the stranded
