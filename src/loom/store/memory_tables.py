"""The tables of a store in memory, as immutable data, and what each operation makes of them. Pure.

A transaction makes new tables, which share with the ones before everything that it leaves alone. So a group that fails
has changed nothing, and a reader sees one moment for as long as it looks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from loom.core.persistent import Map
from loom.store.deaths import Deaths, after_death
from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    ParkRun,
    Posted,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    SetTags,
    SignHead,
    Started,
    StartRun,
    TryRun,
)
from loom.store.records import Chunk, InboxMessage, RunRow, Snapshot, StoredRun, TimerRow
from loom.store.rules import (
    NO_RUN,
    CommitEffects,
    Receiver,
    does_not_follow,
    effects_of_commit,
    follows,
    mac_of_reopened,
    refusal_of_full_inbox,
    refusal_of_message,
    replaced_tags,
    row_of_start,
    start_notifies,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from loom.store.operations import Operation, Result

EMPTY: Map[Any, Any] = Map()


def _without(table: Map[Any, Any], keys: Collection[Any]) -> Map[Any, Any]:
    """Return a table without these keys, if it has them."""
    if not keys:
        return table
    left = table.mutate()
    for key in keys:
        left.pop(key, None)
    return left.finish()


class Journal(msgspec.Struct, frozen=True):
    """The chunks of a run in order, numbered; chunks before `first` were pruned."""

    chunks: Map[int, Chunk] = EMPTY
    first: int = 0
    after: int = 0

    def append(self, chunk: Chunk) -> Journal:
        """Return the journal with one more chunk at its end."""
        return Journal(self.chunks.set(self.after, chunk), self.first, self.after + 1)

    def pruned(self, ticks: int) -> Journal:
        """Return the journal without the chunks that lie wholly within the first `ticks` ticks."""
        first = self._first_after(ticks)
        return Journal(_without(self.chunks, range(self.first, first)), first, self.after)

    def from_tick(self, tick: int, limit: int | None = None) -> tuple[Chunk, ...]:
        """Return chunks, beginning with the one that holds this tick."""
        first = self._first_after(tick)
        after = self.after if limit is None else min(self.after, first + limit)
        return tuple(self.chunks[number] for number in range(first, after))

    def from_cursor(self, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        numbers = range(self.first, self.after)
        first = bisect_right(numbers, cursor, key=lambda number: _cursor_after(self.chunks[number]))
        found: list[Chunk] = []
        for number in numbers[first:]:
            if len(found) >= limit:
                break
            if self.chunks[number].events:
                found.append(self.chunks[number])
        return found

    def _first_after(self, ticks: int) -> int:
        """Return the number of the first chunk that has a tick after the first `ticks` ones."""
        numbers = range(self.first, self.after)
        return self.first + bisect_right(numbers, ticks, key=lambda number: _tick_after(self.chunks[number]))


def _tick_after(chunk: Chunk) -> int:
    """Return the number of the tick after a chunk."""
    return chunk.first_tick + chunk.ticks


def _cursor_after(chunk: Chunk) -> int:
    return chunk.first_cursor + chunk.events


class KeptRun(msgspec.Struct, frozen=True):
    """All that is stored of a run."""

    row: RunRow
    start: bytes
    snapshot: Snapshot | None = None
    journal: Journal = Journal()
    inbox: Map[int, bytes] = EMPTY
    timers: Map[int, TimerRow] = EMPTY
    event_ids: Map[str, None] = EMPTY
    deaths: Deaths | None = None
    died_with: int = 0
    """The fence of the member that it was marked for last."""

    @property
    def is_suspect(self) -> bool:
        """Say whether it is recovered only on probation."""
        return self.deaths is not None and self.deaths.suspect

    @property
    def claimable(self) -> bool:
        """Tell whether a member that looks for work may claim it."""
        return self.row.owner is None and self.row.head.status == "running" and self.row.head.parked is None

    def first_due(self) -> float | None:
        """Return when its first timer is due; None without timers."""
        return min((timer.due for timer in self.timers.values()), default=None)

    def messages(self, after: int = 0) -> tuple[InboxMessage, ...]:
        """Return its messages after an id, in order."""
        return tuple(InboxMessage(number, self.inbox[number]) for number in sorted(self.inbox) if number > after)

    def stored(self, *, whole: bool, document: bytes | None = None) -> StoredRun:
        """Return a record of all of it, or of what is needed to recover it. The document's text is in another table."""
        after = -1 if whole or self.snapshot is None else self.snapshot.ticks
        return StoredRun(
            self.row,
            self.start,
            self.snapshot,
            self.journal.from_tick(after),
            self.messages(),
            tuple(self.timers[seq] for seq in sorted(self.timers)),
            tuple(sorted(self.event_ids)) if whole else (),
            document,
            msgspec.UNSET if whole or self.deaths is None else self.deaths,
        )


class KeptDocument(msgspec.Struct, frozen=True):
    """The text of a definition, which runs have by its digest."""

    data: bytes
    created_at: float
    pinned: bool = False
    """Whether it stays when no run has it."""


class Tables(msgspec.Struct, frozen=True):
    """The whole database."""

    runs: Map[str, KeptRun] = EMPTY
    last_message: int = 0
    documents: Map[str, KeptDocument] = EMPTY

    def stored(self, run_id: str, *, whole: bool) -> StoredRun | None:
        """Return a run as a record: all of it, or what is needed to recover it."""
        run = self.runs.get(run_id)
        return run.stored(whole=whole, document=self.text(run.row.document)) if run is not None else None

    def text(self, digest: str | None) -> bytes | None:
        """Return the text of a document; None if there is none."""
        document = self.documents.get(digest) if digest is not None else None
        return document.data if document is not None else None


class Transaction:
    """Applies operations to tables of its own. If it raises, nothing has changed."""

    def __init__(self, tables: Tables) -> None:
        self._runs = tables.runs
        self._last_message = tables.last_message
        self._documents = tables.documents
        self.notified: dict[str, None] = {}
        """The runs that got a message, were started without an owner or have ended, in order."""
        self.changed: dict[tuple[str, str], None] = {}
        """The runs, with their workflows, whose rows were written or deleted, in order of their last changes."""

    def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Do operations in their order. Return their results."""
        return [self._do(operation) for operation in group]

    def finish(self) -> Tables:
        """Return the tables after it."""
        return Tables(self._runs, self._last_message, self._documents)

    def free(self, is_gone: Callable[[int], bool], has_died: Callable[[int], bool], now: float) -> None:
        """Free the runs of members that are gone, and mark the ones that members were at work on when they died."""
        for run_id, run in self._runs.items():
            owner = run.row.owner
            if owner is not None and is_gone(owner):
                if has_died(owner) and run.row.head.parked is None and _has_work(run, now):
                    run = replace(run, deaths=after_death(run.deaths, now), died_with=owner)  # noqa: PLW2901 - marked
                self._keep(run_id, _owned(run, None))

    def save_document(self, digest: str, data: bytes, at: float) -> None:
        """Keep a document for good."""
        known = self._documents.get(digest)
        document = KeptDocument(data, at, pinned=True) if known is None else replace(known, pinned=True)
        self._documents = self._documents.set(digest, document)

    def _do(self, operation: Operation) -> Result:
        action = _ACTIONS.get(type(operation))
        if action is None:
            raise TypeError(f"Not an operation of a store: {operation!r}")
        result: Result = action(self, operation)
        return result

    def _keep(self, run_id: str, run: KeptRun) -> None:
        known = self._runs.get(run_id)
        if known is None or known.row is not run.row:
            self._note(run.row)
        self._runs = self._runs.set(run_id, run)

    def _note(self, row: RunRow) -> None:
        self.changed.pop((row.run_id, row.workflow), None)
        self.changed[row.run_id, row.workflow] = None

    def _keep_document(self, digest: str, data: bytes, at: float) -> None:
        if digest not in self._documents:
            self._documents = self._documents.set(digest, KeptDocument(data, at))

    def _start(self, asked: StartRun) -> Started:
        known = self._runs.get(asked.run_id)
        if known is not None:
            return Started(False, known.row.workflow, known.start)
        self._keep(asked.run_id, KeptRun(row_of_start(asked), asked.start))
        if asked.document is not None:
            self._keep_document(*asked.document, asked.created_at)
        if start_notifies(asked.owner):
            self.notified[asked.run_id] = None
        if asked.message is not None:
            self._post(asked.message)
        return Started(True)

    def _post(self, asked: PostMessage) -> Posted:
        run = self._runs.get(asked.run_id)
        if run is None:
            return NO_RUN
        refusal = refusal_of_message(asked, _receiver(run, asked.event_id))
        refusal = refusal or refusal_of_full_inbox(asked, run.row.head.kept + len(run.inbox))
        if refusal is not None:
            return refusal
        if asked.reopens:
            run = _reopened(run, mac_of_reopened(asked))
        self._last_message += 1
        ids = run.event_ids if asked.event_id is None else run.event_ids.set(asked.event_id, None)
        self._keep(asked.run_id, replace(run, inbox=run.inbox.set(self._last_message, asked.data), event_ids=ids))
        self.notified[asked.run_id] = None
        return Posted("posted")

    def _commit(self, asked: CommitRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.row.owner != asked.fence:
            return False
        row, journal = run.row, run.journal
        if not follows(asked.chunk, row.head.ticks, row.head.events):
            raise does_not_follow(asked, (row.head.ticks, row.head.events))
        effects = effects_of_commit(asked, row.document)
        if asked.chunk is not None:
            journal = journal.append(asked.chunk)
        row = _committed_row(row, asked, effects)
        if asked.prune:
            pruned = journal.pruned(asked.prune)
            if pruned.first > journal.first:
                row = replace(row, first_tick=_tick_after(journal.chunks[pruned.first - 1]))
            journal = pruned
        if effects.document is not None:
            self._keep_document(*effects.document, asked.head.updated_at)
        if effects.ends:
            self.notified[asked.run_id] = None
        run = replace(
            run,
            row=row,
            journal=journal,
            snapshot=run.snapshot if asked.snapshot is None else asked.snapshot,
            timers=EMPTY if effects.ends else _timers(run.timers, effects),
            inbox=EMPTY if effects.empties_inbox else _without(run.inbox, asked.messages_taken),
        )
        self._keep(asked.run_id, run)
        for sent in asked.sent:
            self._do(sent)
        return True

    def _sign(self, asked: SignHead) -> bool:
        run, head = self._runs.get(asked.row.run_id), asked.row.head
        if run is None or run.row.head.mac is not None or _signed_fields(run.row) != _signed_fields(asked.row):
            return False
        row = replace(run.row, head=replace(run.row.head, mac=head.mac))
        self._keep(row.run_id, replace(run, row=row))
        return True

    def _set_tags(self, asked: SetTags) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None:
            return False
        row = replace(run.row, tags=replaced_tags(asked, run.row.tags))
        self._keep(asked.run_id, replace(run, row=row))
        return True

    def _release(self, asked: ReleaseRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.row.owner != asked.fence:
            return True
        if run.inbox:
            return False
        self._keep(asked.run_id, _owned(run, None))
        return True

    def _claim(self, asked: ClaimRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None:
            return False
        if run.row.owner is None and run.row.head.status == "running" and (asked.suspected or not run.is_suspect):
            self._keep(asked.run_id, _owned(run, asked.fence))
            return True
        return run.row.owner == asked.fence

    def _claim_many(self, asked: ClaimRuns) -> list[str]:
        workflows = set(asked.workflows)
        ready = [
            run
            for run in self._runs.values()
            if run.claimable and not run.is_suspect and run.row.workflow in workflows and _has_work(run, asked.now)
        ]
        ready.sort(key=lambda run: (run.row.head.updated_at, run.row.run_id))
        for run in ready[: asked.limit]:
            self._keep(run.row.run_id, _owned(run, asked.fence))
        return [run.row.run_id for run in ready[: asked.limit]]

    def _park(self, asked: ParkRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.row.owner != asked.fence:
            return False
        head = replace(run.row.head, parked=asked.reason)
        run = replace(run, row=replace(run.row, head=head, owner=None))
        if asked.is_poison:
            run = replace(run, deaths=replace(run.deaths, suspect=False, trial=None) if run.deaths else None)
            for run_id, other in self._runs.items():
                if other.deaths is not None and not other.deaths.own:
                    self._keep(run_id, replace(other, deaths=None))
        self._keep(asked.run_id, run)
        return True

    def _try(self, asked: TryRun) -> list[str]:
        suspects = [run for run in self._runs.values() if run.is_suspect]
        if any(run.deaths and run.deaths.trial == run.row.owner == asked.fence for run in suspects):
            return []
        ready = [
            (-(run.deaths.own if run.deaths else 0), -run.row.head.updated_at, run.row.run_id)
            for run in suspects
            if run.claimable and run.row.workflow in asked.workflows and _has_work(run, asked.now)
        ]
        for _, _, run_id in sorted(ready)[:1]:
            run = self._runs[run_id]
            assert run.deaths is not None
            deaths = replace(run.deaths, trial=asked.fence, at=asked.now)
            self._keep(run_id, replace(_owned(run, asked.fence), deaths=deaths))
            return [run_id]
        return []

    def _acquit(self, asked: AcquitRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.deaths is None or run.deaths.trial != asked.fence:
            return False
        self._keep(asked.run_id, replace(run, deaths=replace(run.deaths, suspect=False, trial=None, at=asked.now)))
        return True

    def _forget(self, asked: ForgetDeaths) -> int:
        if asked.run_id is None:
            gone = [run for run in self._runs.values() if run.deaths is not None and run.died_with == asked.fence]
        else:
            run = self._runs.get(asked.run_id)
            if run is not None and asked.unparks and run.row.owner == asked.fence:
                head = replace(run.row.head, parked=None, needs_worker=True)
                run = replace(run, row=replace(run.row, head=head))
                self._keep(asked.run_id, run)
            gone = [run] if run is not None and run.deaths is not None else []
        for run in gone:
            self._keep(run.row.run_id, replace(run, deaths=None))
        return len(gone)

    def _purge(self, asked: PurgeRuns) -> int:
        if asked.run_id is None and asked.ended_before is None:
            return 0
        gone = [
            (run.row.ended_at, run_id)
            for run_id, run in self._runs.items()
            if run.row.ended_at is not None
            and (asked.run_id is None or run_id == asked.run_id)
            and (asked.ended_before is None or run.row.ended_at < asked.ended_before)
        ]
        gone = sorted(gone)[: asked.limit]
        run_ids = [run_id for _, run_id in gone]
        digests = [self._runs[run_id].row.document for run_id in run_ids]
        for run_id in run_ids:
            self._note(self._runs[run_id].row)
        self._runs = _without(self._runs, run_ids)
        self._drop_documents({digest for digest in digests if digest is not None})
        return len(gone)

    def _drop_documents(self, digests: set[str]) -> None:
        """Delete documents that no run has any more, unless they were saved."""
        if digests:
            digests -= {run.row.document for run in self._runs.values()}
            pinned = {digest for digest, document in self._documents.items() if document.pinned}
            self._documents = _without(self._documents, digests - pinned)

    def _import(self, asked: ImportRun) -> bool:
        stored = asked.run
        run_id = stored.row.run_id
        if run_id in self._runs:
            return False
        # The old numbers may belong to messages of other runs here.
        first = self._last_message + 1
        self._last_message += len(stored.inbox)
        self._keep(
            run_id,
            KeptRun(
                replace(stored.row, owner=None),
                stored.start,
                stored.snapshot,
                Journal(Map(enumerate(stored.chunks)), 0, len(stored.chunks)),
                Map({number: message.data for number, message in enumerate(stored.inbox, first)}),
                Map({timer.seq: timer for timer in stored.timers}),
                Map(dict.fromkeys(stored.event_ids)),
            ),
        )
        if stored.row.document is not None and stored.document is not None:
            self._keep_document(stored.row.document, stored.document, stored.row.created_at)
        self.notified[run_id] = None
        return True


_ACTIONS: dict[type, Callable[[Transaction, Any], Result]] = {
    StartRun: Transaction._start,
    PostMessage: Transaction._post,
    CommitRun: Transaction._commit,
    ReleaseRun: Transaction._release,
    ClaimRun: Transaction._claim,
    ClaimRuns: Transaction._claim_many,
    ParkRun: Transaction._park,
    TryRun: Transaction._try,
    AcquitRun: Transaction._acquit,
    ForgetDeaths: Transaction._forget,
    PurgeRuns: Transaction._purge,
    ImportRun: Transaction._import,
    SignHead: Transaction._sign,
    SetTags: Transaction._set_tags,
}


def _receiver(run: KeptRun, event_id: str | None) -> Receiver:
    head = run.row.head
    return Receiver(head.status, head.ticks, is_repeated=event_id is not None and event_id in run.event_ids)


def _committed_row(row: RunRow, asked: CommitRun, effects: CommitEffects) -> RunRow:
    """Return the row of a run after a commit."""
    head, ended = asked.head, effects.ends
    waiters, waiting_for = effects.waits or (row.head.waiters, row.head.waiting_for)
    return replace(
        row,
        head=replace(head, waiters=waiters, waiting_for=waiting_for),
        document=row.document if effects.document is None else effects.document[0],
        owner=None if ended else row.owner,
        ended_at=head.updated_at if ended else row.ended_at,
    )


def _signed_fields(row: RunRow) -> tuple[object, ...]:
    """Return the fields that tell whether a row is as it was read: a link changes only with ticks or events."""
    return row.workflow, row.document, row.head.status, row.head.ticks, row.head.events


def _owned(run: KeptRun, owner: int | None) -> KeptRun:
    return replace(run, row=replace(run.row, owner=owner))


def _has_work(run: KeptRun, now: float) -> bool:
    if run.row.head.needs_worker or run.inbox:
        return True
    due = run.first_due()
    return due is not None and due <= now


def _timers(timers: Map[int, TimerRow], effects: CommitEffects) -> Map[int, TimerRow]:
    if effects.timers_set:
        timers = timers.update({timer.seq: timer for timer in effects.timers_set})
    return _without(timers, effects.timers_gone)


def _reopened(run: KeptRun, mac: bytes | None) -> KeptRun:
    """Return a failed run as running again, in need of a worker."""
    head = replace(run.row.head, status="running", needs_worker=True, error=None, mac=mac)
    return replace(run, row=replace(run.row, head=head, ended_at=None))
