"""A group of operations in a transaction. May import the operations and the modules of this folder that write them."""

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
    PostMail,
    PurgeRuns,
    ReleaseRun,
    SignHead,
    StartRun,
    TryRun,
)
from loom.store.sqlite import inputs, ownership, suspects
from loom.store.sqlite.commits import commit, commit_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.sqlite.session import Session


_OF_ONE_RUN: dict[type, Callable[[Session, Any], Result]] = {
    StartRun: inputs.start,
    PostMail: inputs.post,
    ReleaseRun: ownership.release,
    ClaimRun: ownership.claim,
    ParkRun: ownership.park,
}
_OF_MANY: dict[type, Callable[[Session, Any], Result]] = {
    ClaimRuns: ownership.claim_many,
    PurgeRuns: ownership.purge,
    TryRun: suspects.try_one,
    AcquitRun: suspects.acquit,
    ForgetDeaths: suspects.forget,
    ImportRun: inputs.import_run,
    SignHead: inputs.sign,
}


class Group:
    """Operations that share a transaction."""

    __slots__ = ("_operations",)

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def __call__(self, session: Session) -> list[Result]:
        """Do the operations in their order, within a transaction. Their results, in that order too."""
        applying = _Applying(session, len(self._operations))
        for place, operation in enumerate(self._operations):
            applying.add(place, operation)
        applying.catch_up()
        return applying.results

    def at_once(self, session: Session) -> list[Result] | None:
        """Do it in one statement, without a transaction around it; None if that cannot be."""
        if len(self._operations) == 1:
            [operation] = self._operations
            session.is_swollen = session.is_swollen or (isinstance(operation, CommitRun) and _is_large(operation))
            if isinstance(operation, CommitRun) and commit_at_once(session, operation):
                return [True]
        return None


class _Applying:
    """Gathers commits, to write them together.

    Operations on different runs may change places, so the commits at hand go first and the others follow. Where an
    order could be noticed (the same run, operations on many runs, what a run sends, whose text of a document is the
    first) everything at hand is done first.
    """

    def __init__(self, session: Session, count: int) -> None:
        self.results: list[Result] = [False] * count
        self._session = session
        self._commits: dict[str, tuple[int, CommitRun]] = {}
        self._others: list[tuple[int, Operation]] = []
        self._runs_of_others: set[str] = set()

    def add(self, place: int, operation: Operation) -> None:
        """The next operation."""
        if isinstance(operation, CommitRun):
            run_id = operation.run_id
            brings_text = operation.document is not None and bool(self._others)
            if brings_text or run_id in self._commits or run_id in self._runs_of_others:
                self.catch_up()
            self._commits[run_id] = (place, operation)
            if operation.sent:
                self.catch_up()
                self._send(place, operation)
        elif type(operation) in _OF_ONE_RUN:
            self._others.append((place, operation))
            self._runs_of_others.add(operation.run_id)  # type: ignore[union-attr, arg-type] # they all have one
        elif type(operation) in _OF_MANY:
            self.catch_up()
            self.results[place] = _OF_MANY[type(operation)](self._session, operation)
        else:
            raise TypeError(f"Not an operation of a store: {operation!r}")

    def catch_up(self) -> None:
        """Do what is at hand."""
        if self._commits:
            places, operations = zip(*self._commits.values(), strict=True)
            self._commits.clear()
            self._session.is_swollen |= any(map(_is_large, operations))
            for place, result in zip(places, commit(self._session, operations), strict=True):
                self.results[place] = result
        for place, other in self._others:
            self.results[place] = _OF_ONE_RUN[type(other)](self._session, other)
        self._others.clear()
        self._runs_of_others.clear()

    def _send(self, place: int, operation: CommitRun) -> None:
        if self.results[place]:
            for sent in operation.sent:
                _OF_ONE_RUN[type(sent)](self._session, sent)


def _is_large(operation: CommitRun) -> bool:
    chunk, snapshot = operation.chunk, operation.snapshot
    return (chunk is not None and len(chunk.data) > _LARGE) or (snapshot is not None and len(snapshot.data) > _LARGE)


_LARGE = 4 << 20
"""What is larger must not stay in memory because it was written once."""
