"""A transaction of the writer. May import the session and the groups beside it."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from loom.store.sqlite.applying import Group
from loom.store.sqlite.connection import patiently, primary_code

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.sqlite.session import Session


def transact(session: Session, works: Sequence[Callable[[Session], object]]) -> tuple[list[object], list[str]]:
    """Do all of it in one transaction: the results, and the runs of which there are news."""
    session.news = {}
    session.outcome_unknown = False
    session.place.check()
    if len(works) == 1 and isinstance(works[0], Group):
        result = patiently(partial(_committing, session, partial(works[0].at_once, session)), session.patience)
        if result is not None:
            return [result], []
    connection = session.connection
    patiently(partial(connection.execute, "BEGIN IMMEDIATE"), session.patience)
    try:
        results = [work(session) for work in works]
        if session.news:
            session.write_news()
        _committing(session, partial(connection.execute, "COMMIT"))
    except BaseException:
        # What was remembered in this transaction has not happened.
        session.owned.clear()
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results, list(session.news)


def _committing(session: Session, action: Callable[[], T]) -> T:
    """Do what makes something durable. If the disk fails at that, the record may be in the file nevertheless."""
    try:
        return action()
    except sqlite3.Error as error:
        session.outcome_unknown = primary_code(error) == sqlite3.SQLITE_IOERR
        raise
