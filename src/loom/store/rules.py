"""The rules of starts, messages and commits: which are refused, and what the others change. Pure.

Every store that owns its rows asks here, and then writes in its own way: memory to immutable tables, SQLite by bulk
statements, PostgreSQL by one plan per batch. A store passes what it has read of a run; nothing here reads or writes.

Two rules are also written as SQL, where a look at the row before the write would cost a round trip or a statement. They
say the same, and the conformance suite compares them: that a commit is refused without the fence of the run's owner or
if its chunk does not follow (SQLite's view `commits`, PostgreSQL's `COMMIT_RUNS`), and that a start is refused if its
id is taken (`ON CONFLICT DO NOTHING`).

`loom.store.deaths` has the rules of unclean deaths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom.store.errors import StoreError
from loom.store.operations import Posted
from loom.store.records import RunHead, RunRow

if TYPE_CHECKING:
    from loom.store.operations import CommitRun, PostMessage, SetTags, StartRun
    from loom.store.records import Chunk, TimerRow

# -- starts -----------------------------------------------------------------------------------------------------------


def row_of_start(asked: StartRun) -> RunRow:
    """Return the row that an accepted start makes."""
    return RunRow(
        asked.run_id,
        asked.workflow,
        asked.created_at,
        RunHead("running", 0, 0, asked.created_at, downtime=asked.downtime, mac=asked.mac),
        tags=dict(asked.tags),
        parent=asked.parent,
        parent_ref=asked.parent_ref,
        owner=asked.owner,
        document=asked.document[0] if asked.document is not None else None,
    )


def start_notifies(owner: int | None) -> bool:
    """Tell whether a start or an import notifies: an owner knows of its run without."""
    return owner is None


def replaced_tags(asked: SetTags, tags: dict[str, str]) -> dict[str, str]:
    """Return the tags that a run has after its tags were replaced."""
    return {**{name: value for name, value in tags.items() if name in asked.keeps}, **asked.tags}


# -- messages ---------------------------------------------------------------------------------------------------------


class Receiver(NamedTuple):
    """What a store has read of the run that a message is for."""

    status: str
    ticks: int
    is_repeated: bool
    """Whether the run has had a message of the same event id."""


NO_RUN = Posted("no_run")
"""The refusal of a message for a run that does not exist."""


def refusal_of_message(asked: PostMessage, receiver: Receiver) -> Posted | None:
    """Return why a message is refused; None if it is accepted, unless `refusal_of_full_inbox` refuses it.

    A repeated event id is known also after the end of the run: the repetition is a success.
    """
    if receiver.is_repeated:
        return Posted("repeated")
    if receiver.status != ("failed" if asked.reopens else "running"):
        return Posted("finished", status=receiver.status)
    if asked.reopened is not None and asked.reopened[0] != receiver.ticks:
        return Posted("finished", status=receiver.status)
    return None


def refusal_of_full_inbox(asked: PostMessage, held: int) -> Posted | None:
    """Return the refusal of a message with a limit; `held` counts early events and messages of the run."""
    if asked.limit is not None and held >= asked.limit:
        return Posted("full", kept=held)
    return None


def mac_of_reopened(asked: PostMessage) -> bytes | None:
    """Return the signature of a failed run's row when a message lets it run again; None without one."""
    return asked.reopened[1] if asked.reopened is not None else None


# -- commits ----------------------------------------------------------------------------------------------------------


class CommitEffects(NamedTuple):
    """What an allowed commit changes, beside numbers, flags, chunk and snapshot, which are written as they are."""

    ends: bool
    """Whether the run ends. Then it has no owner, no timers and no waiters any more, and it notifies."""
    empties_inbox: bool
    """Whether its messages go. Messages of a failed run wait for a retry, except the ones that the commit has taken."""
    waits: tuple[bytes, tuple[str, ...]] | None
    """Waiters and event types to store; None if the stored ones stay."""
    timers_set: tuple[TimerRow, ...]
    timers_gone: tuple[int, ...]
    document: tuple[str, bytes] | None
    """Digest and text that the run gets; None if it has a document already, or the commit brings none."""


NO_WAITS: tuple[bytes, tuple[str, ...]] = (b"[]", ())
"""What an ended run waits for."""


def effects_of_commit(asked: CommitRun, document: str | None) -> CommitEffects:
    """Return what a commit changes in a run that has this document."""
    head = asked.head
    brought = asked.document if document is None else None
    if head.status != "running":
        return CommitEffects(True, head.status != "failed", NO_WAITS, (), (), brought)
    waits = (head.waiters, head.waiting_for) if asked.waiting_changed else None
    return CommitEffects(False, False, waits, _armed(asked), asked.timers_gone, brought)


def _armed(asked: CommitRun) -> tuple[TimerRow, ...]:
    """Return the timers that a commit leaves set, each once. A timer that it sets and deletes is gone."""
    if not asked.timers_set:
        return ()
    gone = set(asked.timers_gone)
    return tuple({timer.seq: timer for timer in asked.timers_set if timer.seq not in gone}.values())


def follows(chunk: Chunk | None, ticks: int, events: int) -> bool:
    """Tell whether a chunk follows a journal of this many ticks and events.

    A commit that is written again, because its outcome was unknown, must not double its ticks.
    """
    return chunk is None or (chunk.first_tick, chunk.first_cursor) == (ticks, events)


def does_not_follow(asked: CommitRun, journal: tuple[int, int] | None = None) -> StoreError:
    """Return the error of a chunk that does not follow; `journal` is how many ticks and events are stored, if known."""
    chunk = asked.chunk
    place = "" if chunk is None else f" from tick {chunk.first_tick} and cursor {chunk.first_cursor}"
    found = f"its journal of {journal[0]} ticks and {journal[1]} events" if journal else "on what its journal holds"
    return StoreError(f"Run {asked.run_id!r}: a chunk{place} does not follow {found}. Nothing was written.")
