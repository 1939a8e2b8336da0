"""Stores on files of their own, closed at the end of each test."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom.store.sqlite import SqliteStore

Open = Callable[..., Awaitable[SqliteStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is or will be."""
    return tmp_path / "runs.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[Open]:
    """Opens one more store on the file, with the options given."""
    opened: list[SqliteStore] = []

    async def open_one(**options: Any) -> SqliteStore:
        store = SqliteStore(path, **options)
        opened.append(store)
        await store.open()
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> SqliteStore:
    """An open store."""
    return await open_store()


@pytest.fixture
def other(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else to the file of `store`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
