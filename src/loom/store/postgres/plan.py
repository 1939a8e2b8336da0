"""What the operations of a batch come to, worked out in their order from the rows that the transaction has locked.

Pure: facts in, results and rows to write out. May import the operations of loom.store and the rows beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.store.errors import StoreError
from loom.store.operations import ClaimRun, CommitRun, ParkRun, Posted, PostMail, ReleaseRun, Started, StartRun
from loom.store.postgres.rows import commit_values, snapshot_values, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.store.operations import Result
    from loom.store.postgres.batches import Batch

Rows = list[tuple[Any, ...]]


class LockedRun:
    """A run whose row nobody else can change now."""

    __slots__ = ("document", "events", "ids", "kept", "key", "mail", "owner", "status", "suspect", "ticks")

    def __init__(
        self,
        key: int,
        owner: int | None,
        status: str,
        kept: int,
        ticks: int,
        events: int,
        document: str | None,
        suspect: bool = False,
    ) -> None:
        self.key = key
        self.owner = owner
        self.status = status
        self.kept = kept
        self.ticks = ticks
        self.events = events
        self.document = document
        self.suspect = suspect
        """It is recovered only on probation."""
        self.mail = 0
        """How much mail it has, if anybody in the batch asks."""
        self.ids: set[str] = set()
        """Of the event ids that the batch names: those that it knows."""


class Facts:
    """What is stored of the runs that a batch touches."""

    def __init__(self) -> None:
        self.runs: dict[str, LockedRun] = {}
        """The runs that were there before."""
        self.created: dict[str, int] = {}
        """The keys of the runs that this transaction has put in, for the starts of the batch."""
        self.started: dict[str, Started] = {}
        """What the runs are that were there before and shall be started."""


class Plan:
    """Results, and the rows to write for them, by table."""

    def __init__(self, facts: Facts) -> None:
        self.results: list[Result] = []
        self.news: dict[str, None] = {}
        self.commits: Rows = []
        self.snapshots: Rows = []
        self.pruned: Rows = []
        self.timers_set: Rows = []
        self.timers_gone: Rows = []
        self.mail: Rows = []
        self.event_ids: Rows = []
        self.mail_taken: Rows = []
        self.owners: Rows = []
        self.poison: list[int] = []
        self.ended: list[int] = []
        self.mail_gone: list[int] = []
        """Of those, the runs that cannot be retried: nobody takes their mail any more."""
        self.reopened: Rows = []
        self.documents: dict[str, tuple[bytes, float]] = {}
        """What runs have got from their start or a commit, by digest: text and time."""
        self.pinned: Rows = []
        """The runs that have got one from a commit, with its digest."""
        self._facts = facts
        self._runs = facts.runs
        self._unused = dict(facts.created)

    @property
    def undone(self) -> list[int]:
        """The keys of the runs that were put in for a commit that was refused."""
        return list(self._unused.values())

    def _start(self, asked: StartRun) -> Started:
        key = self._unused.pop(asked.run_id, None)
        if key is None:
            return self._facts.started.get(asked.run_id) or Started(False)
        run = self._runs[asked.run_id] = LockedRun(key, asked.owner, "running", 0, 0, 0, None)
        if asked.document is not None:
            self._keep_document(run, asked.document, asked.created_at)
        if asked.owner is None:
            self.news[asked.run_id] = None
        if asked.mail is not None:
            self._post(asked.mail)
        return Started(True)

    def _keep_document(self, run: LockedRun, document: tuple[str, bytes], at: float) -> None:
        run.document, data = document
        self.documents.setdefault(run.document, (data, at))

    def _post(self, asked: PostMail) -> Posted:
        run = self._runs.get(asked.run_id)
        if run is None:
            return Posted("no_run")
        if asked.event_id is not None and asked.event_id in run.ids:
            return Posted("repeated")
        if run.status != ("failed" if asked.reopens else "running"):
            return Posted("finished", status=run.status)
        if asked.reopened is not None and asked.reopened[0] != run.ticks:
            return Posted("finished", status=run.status)
        kept = run.kept + run.mail
        if asked.limit is not None and kept >= asked.limit:
            return Posted("full", kept=kept)
        if asked.reopens:
            run.status = "running"
            self.reopened.append((run.key, asked.reopened[1] if asked.reopened is not None else None))
        run.mail += 1
        self.mail.append((run.key, asked.at, asked.data))
        if asked.event_id is not None:
            run.ids.add(asked.event_id)
            self.event_ids.append((run.key, asked.event_id))
        self.news[asked.run_id] = None
        return Posted("posted")

    def _commit(self, asked: CommitRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.owner != asked.fence:
            return False
        head, chunk = asked.head, asked.chunk
        if chunk is not None and (chunk.first_tick, chunk.first_cursor) != (run.ticks, run.events):
            raise does_not_follow(asked)
        self.commits.append(commit_values(asked))
        run.status, run.kept, run.ticks, run.events = head.status, head.kept, head.ticks, head.events
        if asked.document is not None and run.document is None:
            self._keep_document(run, asked.document, head.updated_at)
            self.pinned.append((run.key, run.document))
        if asked.snapshot is not None:
            self.snapshots.append((run.key, *snapshot_values(asked.snapshot)))
        if asked.prune:
            self.pruned.append((run.key, asked.prune))
        if head.status in ("running", "failed"):
            self._take_mail(run, asked)
        if head.status == "running":
            self._keep_timers(run, asked)
        else:
            self._end(run)
            self.news[asked.run_id] = None
        for sent in asked.sent:
            ACTIONS[type(sent)](self, sent)
        return True

    def _take_mail(self, run: LockedRun, asked: CommitRun) -> None:
        """The mail of a run that goes on, or may be retried."""
        run.mail -= len(asked.mail_taken)
        self.mail_taken += [(run.key, number) for number in asked.mail_taken]

    def _keep_timers(self, run: LockedRun, asked: CommitRun) -> None:
        """The timers of a run that goes on."""
        gone = set(asked.timers_gone)
        armed = {timer.seq: timer for timer in asked.timers_set if timer.seq not in gone}
        self.timers_set += [(run.key, timer.seq, timer.due, timer.purpose) for timer in armed.values()]
        self.timers_gone += [(run.key, seq) for seq in asked.timers_gone]

    def _end(self, run: LockedRun) -> None:
        """It has no owner and no timers any more, and no mail unless it may be retried."""
        run.owner = None
        self.ended.append(run.key)
        if run.status != "failed":
            run.mail = 0
            self.mail_gone.append(run.key)
            self.mail = [row for row in self.mail if row[0] != run.key]  # also what came within this batch

    def _release(self, asked: ReleaseRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.owner != asked.fence:
            return True
        if run.mail:
            return False
        self._give(run, None)
        return True

    def _claim(self, asked: ClaimRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None:
            return False
        if run.owner is None and run.status == "running" and (asked.suspected or not run.suspect):
            self._give(run, asked.fence)
        return run.owner == asked.fence

    def _park(self, asked: ParkRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.owner != asked.fence:
            return False
        self._give(run, None, asked.reason)
        if asked.is_poison:
            self.poison.append(run.key)
        return True

    def _give(self, run: LockedRun, owner: int | None, parked: str | None = None) -> None:
        run.owner = owner
        self.owners.append((run.key, owner, words(parked)))


ACTIONS: dict[type, Callable[[Plan, Any], Result]] = {
    StartRun: Plan._start,
    PostMail: Plan._post,
    CommitRun: Plan._commit,
    ReleaseRun: Plan._release,
    ClaimRun: Plan._claim,
    ParkRun: Plan._park,
}


def decide(batch: Batch, facts: Facts) -> Plan:
    """Go through a batch in its order."""
    plan = Plan(facts)
    for operation in batch.operations:
        plan.results.append(ACTIONS[type(operation)](plan, operation))
    return plan


def does_not_follow(commit: CommitRun) -> StoreError:
    """A commit that is written again, because nobody knew whether it had been, must not double its ticks."""
    chunk = commit.chunk
    place = "" if chunk is None else f" from tick {chunk.first_tick} and cursor {chunk.first_cursor}"
    return StoreError(
        f"Run {commit.run_id!r}: a chunk{place} does not follow on what its journal holds. Nothing was written."
    )
