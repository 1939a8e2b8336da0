"""What the operations of a group come to, worked out before anything is written. Pure: facts in, results and rows out.

A group is cut into batches: operations that can be decided and written together, in few statements. Within a batch a
run is started once, and its owner acts on it once. Everything else, such as any number of events for one run, may
repeat. Operations that look at many runs stand alone. A plan goes through a batch in its order, from the rows that the
transaction has locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from loom.store.postgres.rows import commit_values, snapshot_values, words
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
    start_notifies,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom.store.operations import Operation, Result

Single = StartRun | PostMessage | CommitRun | ReleaseRun | ClaimRun | ParkRun
"""Operations on the run that they name."""
Wide = ClaimRuns | TryRun | AcquitRun | ForgetDeaths | PurgeRuns | ImportRun | SignHead | SetTags
"""Operations that look at many runs or none, and stand alone."""

_SINGLE = (StartRun, PostMessage, CommitRun, ReleaseRun, ClaimRun, ParkRun)
_BY_OWNER = (CommitRun, ReleaseRun, ClaimRun, ParkRun)
_WIDE = (ClaimRuns, TryRun, AcquitRun, ForgetDeaths, PurgeRuns, ImportRun, SignHead, SetTags)


class OperationBatch:
    """Operations that are written together."""

    def __init__(self) -> None:
        self.operations: list[Single] = []
        self.starts: dict[str, StartRun] = {}
        """The starts by run, also the ones that commits send."""
        self.run_ids: set[str] = set()
        """All runs that are touched, also the ones that commits send to."""
        self._acted_on: set[str] = set()

    def add(self, operation: Single) -> bool:
        """Add an operation; False if it must wait for an operation in the batch."""
        sent = operation.sent if isinstance(operation, CommitRun) else ()
        starts = [start for start in (operation, *sent) if isinstance(start, StartRun)]
        by_owner = isinstance(operation, _BY_OWNER)
        if by_owner and operation.run_id in self._acted_on:
            return False
        if any(start.run_id in self.starts for start in starts):
            return False
        self.operations.append(operation)
        for start in starts:
            self.starts.setdefault(start.run_id, start)
        self.run_ids.add(operation.run_id)
        self.run_ids.update(other.run_id for other in sent)
        if by_owner:
            self._acted_on.add(operation.run_id)
        return True


def batches(group: Sequence[Operation]) -> Iterator[OperationBatch | Wide]:
    """Cut a group into as few parts as possible, in order."""
    batch = OperationBatch()
    for operation in group:
        if isinstance(operation, _SINGLE):
            if not batch.add(operation):
                yield batch
                batch = OperationBatch()
                batch.add(operation)
            continue
        if not isinstance(operation, _WIDE):
            raise TypeError(f"Not an operation of a store: {operation!r}")
        if batch.operations:
            yield batch
            batch = OperationBatch()
        yield operation
    if batch.operations:
        yield batch


def plain_commits(group: Sequence[Operation]) -> Sequence[CommitRun] | None:
    """Return the group if all of it are plain commits (heads and chunks) of different runs, else None."""
    seen: set[str] = set()
    found: list[CommitRun] = []
    for operation in group:
        if not isinstance(operation, CommitRun) or not _is_plain(operation):
            return None
        seen.add(operation.run_id)
        found.append(operation)
    return found if len(seen) == len(found) else None


def _is_plain(commit: CommitRun) -> bool:
    return commit.head.status == "running" and not (
        commit.timers_set
        or commit.timers_gone
        or commit.messages_taken
        or commit.snapshot
        or commit.sent
        or commit.document
    )


Rows = list[tuple[Any, ...]]


class LockedRun:
    """A run whose row this transaction has locked."""

    __slots__ = ("document", "events", "ids", "inbox", "kept", "key", "owner", "status", "suspect", "ticks")

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
        self.inbox = 0
        """How many messages it has; counted only if an operation of the batch depends on it."""
        self.ids: set[str] = set()
        """The event ids named in the batch that the run has had."""

    def receiver(self, event_id: str | None) -> Receiver:
        """Return what the rules of messages ask of the run."""
        return Receiver(self.status, self.ticks, is_repeated=event_id is not None and event_id in self.ids)


class Facts:
    """What is stored of the runs that a batch touches."""

    def __init__(self) -> None:
        self.runs: dict[str, LockedRun] = {}
        """The runs that existed before the batch."""
        self.created: dict[str, int] = {}
        """The keys of the runs that this transaction has inserted, for the starts of the batch."""
        self.started: dict[str, Started] = {}
        """The results of starts whose run existed before."""


class Plan:
    """Results, and the rows to write for them, by table."""

    def __init__(self, facts: Facts) -> None:
        self.results: list[Result] = []
        self.notified: dict[str, None] = {}
        self.commits: Rows = []
        self.snapshots: Rows = []
        self.pruned: Rows = []
        self.timers_set: Rows = []
        self.timers_gone: Rows = []
        self.messages: Rows = []
        self.event_ids: Rows = []
        self.messages_taken: Rows = []
        self.owners: Rows = []
        self.poison: list[int] = []
        self.ended: list[int] = []
        self.messages_gone: list[int] = []
        """Ended runs that cannot be retried: no owner will take their messages."""
        self.reopened: Rows = []
        self.documents: dict[str, tuple[bytes, float]] = {}
        """Documents that starts and commits brought, by digest: text and time."""
        self.pinned: Rows = []
        """The runs that got a document from a commit, with its digest."""
        self._facts = facts
        self._runs = facts.runs
        self._unused = dict(facts.created)

    @property
    def undone(self) -> list[int]:
        """Return the keys of runs that were inserted for a commit that was refused."""
        return list(self._unused.values())

    def _start(self, asked: StartRun) -> Started:
        key = self._unused.pop(asked.run_id, None)
        if key is None:
            return self._facts.started.get(asked.run_id) or Started(False)
        run = self._runs[asked.run_id] = LockedRun(key, asked.owner, "running", 0, 0, 0, None)
        if asked.document is not None:
            self._keep_document(run, asked.document, asked.created_at)
        if start_notifies(asked.owner):
            self.notified[asked.run_id] = None
        if asked.message is not None:
            self._post(asked.message)
        return Started(True)

    def _keep_document(self, run: LockedRun, document: tuple[str, bytes], at: float) -> None:
        run.document, data = document
        self.documents.setdefault(run.document, (data, at))

    def _post(self, asked: PostMessage) -> Posted:
        run = self._runs.get(asked.run_id)
        if run is None:
            return NO_RUN
        refusal = refusal_of_message(asked, run.receiver(asked.event_id))
        refusal = refusal or refusal_of_full_inbox(asked, run.kept + run.inbox)
        if refusal is not None:
            return refusal
        if asked.reopens:
            run.status = "running"
            self.reopened.append((run.key, mac_of_reopened(asked)))
        run.inbox += 1
        self.messages.append((run.key, asked.at, asked.data))
        if asked.event_id is not None:
            run.ids.add(asked.event_id)
            self.event_ids.append((run.key, asked.event_id))
        self.notified[asked.run_id] = None
        return Posted("posted")

    def _commit(self, asked: CommitRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.owner != asked.fence:
            return False
        head = asked.head
        if not follows(asked.chunk, run.ticks, run.events):
            raise does_not_follow(asked)
        effects = effects_of_commit(asked, run.document)
        self.commits.append(commit_values(asked, effects.waits))
        run.status, run.kept, run.ticks, run.events = head.status, head.kept, head.ticks, head.events
        if effects.document is not None:
            self._keep_document(run, effects.document, head.updated_at)
            self.pinned.append((run.key, run.document))
        if asked.snapshot is not None:
            self.snapshots.append((run.key, *snapshot_values(asked.snapshot)))
        if asked.prune:
            self.pruned.append((run.key, asked.prune))
        if not effects.empties_inbox:
            run.inbox -= len(asked.messages_taken)
            self.messages_taken += [(run.key, number) for number in asked.messages_taken]
        if effects.ends:
            self._end(run, effects)
            self.notified[asked.run_id] = None
        self.timers_set += [(run.key, timer.seq, timer.due, timer.purpose) for timer in effects.timers_set]
        self.timers_gone += [(run.key, seq) for seq in effects.timers_gone]
        for sent in asked.sent:
            ACTIONS[type(sent)](self, sent)
        return True

    def _end(self, run: LockedRun, effects: CommitEffects) -> None:
        """End a run: it has no owner and no timers any more, and no messages unless it may be retried."""
        run.owner = None
        self.ended.append(run.key)
        if effects.empties_inbox:
            run.inbox = 0
            self.messages_gone.append(run.key)
            self.messages = [row for row in self.messages if row[0] != run.key]  # also what came within this batch

    def _release(self, asked: ReleaseRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is None or run.owner != asked.fence:
            return True
        if run.inbox:
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
    PostMessage: Plan._post,
    CommitRun: Plan._commit,
    ReleaseRun: Plan._release,
    ClaimRun: Plan._claim,
    ParkRun: Plan._park,
}


def decide(batch: OperationBatch, facts: Facts) -> Plan:
    """Decide the operations of a batch in their order."""
    plan = Plan(facts)
    for operation in batch.operations:
        plan.results.append(ACTIONS[type(operation)](plan, operation))
    return plan
