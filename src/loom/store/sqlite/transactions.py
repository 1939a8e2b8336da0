"""A transaction of the writer: operations in their order, with the commits among them written together.

A group that is one plain commit takes a fast path: one statement, which is a transaction by itself.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    ParkRun,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    SignHead,
    StartRun,
    TryRun,
)
from loom.store.sqlite import ownership, writes
from loom.store.sqlite.connection import patiently, primary_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.sqlite.session import Session

T = TypeVar("T")

_LARGE = 4 << 20
"""Bytes. A larger value must not stay in memory because it was written once."""


def transact(session: Session, works: Sequence[Callable[[Session], object]]) -> tuple[list[object], list[str]]:
    """Do all works in one transaction. Return their results, and the runs to notify of."""
    session.notified = {}
    session.outcome_unknown = False
    session.file.check()
    if len(works) == 1 and isinstance(works[0], Group):
        result = patiently(partial(_committing, session, partial(works[0].at_once, session)), session.patience)
        if result is not None:
            return [result], []
    connection = session.connection
    patiently(partial(connection.execute, "BEGIN IMMEDIATE"), session.patience)
    try:
        results = [work(session) for work in works]
        if session.notified:
            session.write_notifications()
        _committing(session, partial(connection.execute, "COMMIT"))
    except BaseException:
        # What was remembered in this transaction has not happened.
        session.owned.clear()
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results, list(session.notified)


def _committing(session: Session, action: Callable[[], T]) -> T:
    """Do an action that makes a transaction durable. If the disk fails in it, the outcome is unknown."""
    try:
        return action()
    except sqlite3.Error as error:
        session.outcome_unknown = primary_code(error) == sqlite3.SQLITE_IOERR
        raise


_OF_ONE_RUN: dict[type, Callable[[Session, Any], Result]] = {
    StartRun: writes.start,
    PostMessage: writes.post,
    ReleaseRun: ownership.release,
    ClaimRun: ownership.claim,
    ParkRun: ownership.park,
}
_OF_MANY: dict[type, Callable[[Session, Any], Result]] = {
    ClaimRuns: ownership.claim_many,
    PurgeRuns: ownership.purge,
    TryRun: ownership.try_one,
    AcquitRun: ownership.acquit,
    ForgetDeaths: ownership.forget_deaths,
    ImportRun: writes.import_run,
    SignHead: writes.sign,
}


class Group:
    """Operations that share a transaction."""

    __slots__ = ("_operations",)

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def __call__(self, session: Session) -> list[Result]:
        """Do the operations within a transaction. Return their results in their order."""
        applying = _Applying(session, len(self._operations))
        for place, operation in enumerate(self._operations):
            applying.add(place, operation)
        applying.catch_up()
        return applying.results

    def at_once(self, session: Session) -> list[Result] | None:
        """Write a group that is one plain commit in one statement; None if it must go the usual way."""
        if len(self._operations) == 1:
            [operation] = self._operations
            session.is_swollen = session.is_swollen or (isinstance(operation, CommitRun) and _is_large(operation))
            if isinstance(operation, CommitRun) and writes.commit_at_once(session, operation):
                return [True]
        return None


class _Applying:
    """Gathers commits, to write them together.

    Operations on different runs may change places, so gathered commits go first and the others follow. Everything
    gathered is written first where an order could be noticed: the same run, operations on many runs, what a run sends,
    and which text of a document is the first.
    """

    def __init__(self, session: Session, count: int) -> None:
        self.results: list[Result] = [False] * count
        self._session = session
        self._commits: dict[str, tuple[int, CommitRun]] = {}
        self._others: list[tuple[int, Operation]] = []
        self._runs_of_others: set[str] = set()

    def add(self, place: int, operation: Operation) -> None:
        """Gather or do the next operation."""
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
        """Do all that was gathered."""
        if self._commits:
            places, operations = zip(*self._commits.values(), strict=True)
            self._commits.clear()
            self._session.is_swollen |= any(map(_is_large, operations))
            for place, result in zip(places, writes.commit(self._session, operations), strict=True):
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
