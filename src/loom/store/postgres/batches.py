"""Cutting a group into batches: operations that can be decided and written together, in few statements.

Within a batch a run is started once, and its owner acts on it once. Everything else, such as any number of events for
one run, may repeat. What looks at many runs stands alone. Pure. May import the operations of loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    ParkRun,
    PostMail,
    PurgeRuns,
    ReleaseRun,
    SignHead,
    StartRun,
    TryRun,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.store.operations import Operation

Single = StartRun | PostMail | CommitRun | ReleaseRun | ClaimRun | ParkRun
"""Operations on a run that they name."""
Wide = ClaimRuns | TryRun | AcquitRun | ForgetDeaths | PurgeRuns | ImportRun | SignHead
"""Operations that stand alone."""

_SINGLE = (StartRun, PostMail, CommitRun, ReleaseRun, ClaimRun, ParkRun)
_BY_OWNER = (CommitRun, ReleaseRun, ClaimRun, ParkRun)
_WIDE = (ClaimRuns, TryRun, AcquitRun, ForgetDeaths, PurgeRuns, ImportRun, SignHead)


class Batch:
    """Operations that are written together."""

    def __init__(self) -> None:
        self.operations: list[Single] = []
        self.starts: dict[str, StartRun] = {}
        """What is started, also by commits."""
        self.run_ids: set[str] = set()
        """Every run that is touched, also by commits."""
        self._acted_on: set[str] = set()

    def add(self, operation: Single) -> bool:
        """Take an operation in, unless it must wait for what is in the batch already."""
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


def batches(group: Sequence[Operation]) -> Iterator[Batch | Wide]:
    """The group in order, in as few parts as possible."""
    batch = Batch()
    for operation in group:
        if isinstance(operation, _SINGLE):
            if not batch.add(operation):
                yield batch
                batch = Batch()
                batch.add(operation)
            continue
        if not isinstance(operation, _WIDE):
            raise TypeError(f"Not an operation of a store: {operation!r}")
        if batch.operations:
            yield batch
            batch = Batch()
        yield operation
    if batch.operations:
        yield batch


def plain_commits(group: Sequence[Operation]) -> Sequence[CommitRun] | None:
    """The group, if it is only what running workflows write most: heads and chunks of different runs."""
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
        or commit.mail_taken
        or commit.snapshot
        or commit.sent
        or commit.document
    )
