"""What each operation makes of the tables of a store in memory.

Pure. May import immutables, msgspec, and the records, operations and tables beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from immutables import Map
from msgspec.structs import replace

from loom.store.deaths import after_death
from loom.store.errors import StoreError
from loom.store.memory_tables import EMPTY, Document, Journal, KeptRun, Tables, tick_after, without
from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    ParkRun,
    Posted,
    PostMail,
    PurgeRuns,
    ReleaseRun,
    SignHead,
    Started,
    StartRun,
    TryRun,
)
from loom.store.records import RunHead, RunRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, TimerRow


class Transaction:
    """Applies operations to tables of its own. What it raises leaves nothing behind."""

    def __init__(self, tables: Tables) -> None:
        self._runs = tables.runs
        self._last_mail = tables.last_mail
        self._documents = tables.documents
        self.news: dict[str, None] = {}
        """The runs that got mail, were started for anybody or have ended, in order."""

    def apply(self, group: Sequence[Operation]) -> list[Result]:
        """The results of the operations, in their order."""
        return [self._do(operation) for operation in group]

    def finish(self) -> Tables:
        """The tables after it."""
        return Tables(self._runs, self._last_mail, self._documents)

    def free(self, is_gone: Callable[[int], bool], has_died: Callable[[int], bool], now: float) -> None:
        """Take from members that are gone what they own, and mark what was at work in those that have died."""
        for run_id, run in self._runs.items():
            owner = run.row.owner
            if owner is not None and is_gone(owner):
                if has_died(owner) and run.row.head.parked is None and _has_work(run, now):
                    run = replace(run, deaths=after_death(run.deaths, now), died_with=owner)  # noqa: PLW2901 - marked
                self._keep(run_id, _owned(run, None))

    def save_document(self, digest: str, data: bytes, at: float) -> None:
        """Keep a document for good."""
        known = self._documents.get(digest)
        document = Document(data, at, pinned=True) if known is None else replace(known, pinned=True)
        self._documents = self._documents.set(digest, document)

    def _do(self, operation: Operation) -> Result:
        action = _ACTIONS.get(type(operation))
        if action is None:
            raise TypeError(f"Not an operation of a store: {operation!r}")
        result: Result = action(self, operation)
        return result

    def _keep(self, run_id: str, run: KeptRun) -> None:
        self._runs = self._runs.set(run_id, run)

    def _keep_document(self, digest: str, data: bytes, at: float) -> None:
        if digest not in self._documents:
            self._documents = self._documents.set(digest, Document(data, at))

    def _start(self, asked: StartRun) -> Started:
        known = self._runs.get(asked.run_id)
        if known is not None:
            return Started(False, known.row.workflow, known.start)
        row = RunRow(
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
        self._keep(asked.run_id, KeptRun(row, asked.start))
        if asked.document is not None:
            self._keep_document(*asked.document, asked.created_at)
        if asked.owner is None:
            self.news[asked.run_id] = None
        if asked.mail is not None:
            self._post(asked.mail)
        return Started(True)

    def _post(self, asked: PostMail) -> Posted:
        run = self._runs.get(asked.run_id)
        if run is None:
            return Posted("no_run")
        if asked.event_id is not None and asked.event_id in run.event_ids:
            return Posted("repeated")
        head = run.row.head
        if head.status != ("failed" if asked.reopens else "running"):
            return Posted("finished", status=head.status)
        if asked.reopened is not None and asked.reopened[0] != head.ticks:
            return Posted("finished", status=head.status)
        if asked.reopens:
            run = _reopened(run, asked.reopened[1] if asked.reopened is not None else None)
        kept = head.kept + len(run.mail)
        if asked.limit is not None and kept >= asked.limit:
            return Posted("full", kept=kept)
        self._last_mail += 1
        ids = run.event_ids if asked.event_id is None else run.event_ids.set(asked.event_id, None)
        self._keep(asked.run_id, replace(run, mail=run.mail.set(self._last_mail, asked.data), event_ids=ids))
        self.news[asked.run_id] = None
        return Posted("posted")

    def _commit(self, asked: CommitRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.row.owner != asked.fence:
            return False
        head, journal = asked.head, run.journal
        if not asked.waiting_changed:
            head = replace(head, waiters=run.row.head.waiters, waiting_for=run.row.head.waiting_for)
        if asked.chunk is not None:
            _check_follows(run.row, asked.chunk)
            journal = journal.append(asked.chunk)
        row = replace(run.row, head=head)
        if asked.prune:
            pruned = journal.pruned(asked.prune)
            if pruned.first > journal.first:
                row = replace(row, first_tick=tick_after(journal.chunks[pruned.first - 1]))
            journal = pruned
        if asked.document is not None and row.document is None:
            row = replace(row, document=asked.document[0])
            self._keep_document(*asked.document, head.updated_at)
        run = replace(
            run,
            row=row,
            journal=journal,
            snapshot=run.snapshot if asked.snapshot is None else asked.snapshot,
            timers=_timers(run.timers, asked),
            mail=without(run.mail, asked.mail_taken) if asked.mail_taken else run.mail,
        )
        if head.status != "running":
            run = _ended(run)
            self.news[asked.run_id] = None
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

    def _release(self, asked: ReleaseRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.row.owner != asked.fence:
            return True
        if run.mail:
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
        self._runs = without(self._runs, run_ids)
        self._drop_documents({digest for digest in digests if digest is not None})
        return len(gone)

    def _drop_documents(self, digests: set[str]) -> None:
        """Those of them that no run has any more, and nobody saved."""
        if digests:
            digests -= {run.row.document for run in self._runs.values()}
            pinned = {digest for digest, document in self._documents.items() if document.pinned}
            self._documents = without(self._documents, digests - pinned)

    def _import(self, asked: ImportRun) -> bool:
        stored = asked.run
        run_id = stored.row.run_id
        if run_id in self._runs:
            return False
        # The mail of other runs has its old numbers, so it gets new ones.
        first = self._last_mail + 1
        self._last_mail += len(stored.mail)
        self._keep(
            run_id,
            KeptRun(
                replace(stored.row, owner=None),
                stored.start,
                stored.snapshot,
                Journal(Map(enumerate(stored.chunks)), 0, len(stored.chunks)),
                Map({number: mail.data for number, mail in enumerate(stored.mail, first)}),
                Map({timer.seq: timer for timer in stored.timers}),
                Map(dict.fromkeys(stored.event_ids)),
            ),
        )
        if stored.row.document is not None and stored.document is not None:
            self._keep_document(stored.row.document, stored.document, stored.row.created_at)
        self.news[run_id] = None
        return True


_ACTIONS: dict[type, Callable[[Transaction, Any], Result]] = {
    StartRun: Transaction._start,
    PostMail: Transaction._post,
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
}


def _check_follows(row: RunRow, chunk: Chunk) -> None:
    """A commit that is written again, because nobody knew whether it had been, must not double its ticks."""
    if (chunk.first_tick, chunk.first_cursor) != (row.head.ticks, row.head.events):
        raise StoreError(
            f"Run {row.run_id!r}: a chunk from tick {chunk.first_tick} and cursor {chunk.first_cursor} does not follow "
            f"its journal of {row.head.ticks} ticks and {row.head.events} events. Nothing was written."
        )


def _signed_fields(row: RunRow) -> tuple[object, ...]:
    """What tells whether a row is as it was read: a link is another one only if ticks or events are more."""
    return row.workflow, row.document, row.head.status, row.head.ticks, row.head.events


def _owned(run: KeptRun, owner: int | None) -> KeptRun:
    return replace(run, row=replace(run.row, owner=owner))


def _has_work(run: KeptRun, now: float) -> bool:
    if run.row.head.needs_worker or run.mail:
        return True
    due = run.first_due()
    return due is not None and due <= now


def _timers(timers: Map[int, TimerRow], asked: CommitRun) -> Map[int, TimerRow]:
    if asked.timers_set:
        timers = timers.update({timer.seq: timer for timer in asked.timers_set})
    return without(timers, asked.timers_gone) if asked.timers_gone else timers


def _reopened(run: KeptRun, mac: bytes | None) -> KeptRun:
    """A failed run is running again, and a worker must take it up."""
    head = replace(run.row.head, status="running", needs_worker=True, error=None, mac=mac)
    return replace(run, row=replace(run.row, head=head, ended_at=None))


def _ended(run: KeptRun) -> KeptRun:
    """Nobody owns it, and nothing can happen to it any more. Mail of a failed one waits for a retry."""
    head = replace(run.row.head, waiters=b"[]", waiting_for=())
    row = replace(run.row, head=head, owner=None, ended_at=head.updated_at)
    return replace(run, row=row, mail=run.mail if head.status == "failed" else EMPTY, timers=EMPTY)
