"""A run gets a document, and the last other run that has it is deleted at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
from postgres_races import blocked

from loom.store.operations import CommitRun, PurgeRuns, Started, StartRun
from loom.store.postgres import PostgresStore, key_values
from loom.store.postgres.connections import parse_address
from loom.store.postgres.plan import OperationBatch
from loom.store.postgres.transactions import _write_batch, _write_wide
from loom.store.records import RunHead

DOCUMENT = ("d", b"text")
PURGE = PurgeRuns(run_id="old")
BARE_FENCE = 1_000_000
"""Who owns the run that has no document yet."""
FIRST_COMMIT = CommitRun("bare", BARE_FENCE, RunHead("running", 0, 0, 3.0), document=DOCUMENT)


def start(run_id: str, owner: int | None = None) -> StartRun:
    return StartRun(run_id, "w", b"", 1.0, owner=owner, document=DOCUMENT)


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    """A connection of another process, when the only run with the document has ended."""
    fence = (await store.join("one", 60.0)).fence
    await store.apply([start("old", fence), StartRun("bare", "w", b"", 1.0, owner=BARE_FENCE)])
    await store.apply([CommitRun("old", fence, RunHead("completed", 0, 0, 2.0))])
    address = parse_address(url)
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    yield connection
    await connection.close()


async def _purge(connection: asyncpg.Connection) -> None:
    assert await _write_wide(connection, PURGE, {}) == 1


async def _start(connection: asyncpg.Connection) -> None:
    batch = OperationBatch()
    batch.add(start("new"))
    assert (await _write_batch(connection, batch)).results == [Started(True)]


async def _commit(connection: asyncpg.Connection) -> None:
    batch = OperationBatch()
    batch.add(FIRST_COMMIT)
    assert (await _write_batch(connection, batch)).results == [True]


async def _save(connection: asyncpg.Connection) -> None:
    await key_values.save_document(connection, *DOCUMENT)


async def _both(
    url: str,
    other: asyncpg.Connection,
    first: Callable[[asyncpg.Connection], Awaitable[None]],
    then: Awaitable[object],
) -> object:
    """What comes of something that meets an unfinished transaction of another process."""
    transaction = other.transaction()
    await transaction.start()
    await first(other)
    task = await blocked(url, other, then)
    await transaction.commit()
    return await task


async def test_a_start_brings_the_document_back_that_is_being_deleted(url, store: PostgresStore, other) -> None:
    assert await _both(url, other, _purge, store.apply([start("new")])) == [Started(True)]
    loaded = await store.load("new")
    assert loaded is not None
    assert loaded.document == b"text"


async def test_a_commit_brings_the_document_back_that_is_being_deleted(url, store: PostgresStore, other) -> None:
    assert await _both(url, other, _purge, store.apply([FIRST_COMMIT])) == [True]
    loaded = await store.load("bare")
    assert loaded is not None
    assert (loaded.row.document, loaded.document) == DOCUMENT


async def test_a_document_that_is_being_deleted_can_be_saved(url, store: PostgresStore, other) -> None:
    await _both(url, other, _purge, store.save_document(*DOCUMENT))
    assert await store.document("d") == b"text"


@pytest.mark.parametrize("holder", [_start, _commit, _save])
async def test_a_deletion_sees_who_has_the_document_meanwhile(url, store: PostgresStore, other, holder) -> None:
    assert await _both(url, other, holder, store.apply([PURGE])) == [1]
    assert await store.document("d") == b"text"


async def test_a_start_and_a_commit_that_bring_the_same_document_are_both_right(
    url, store: PostgresStore, other
) -> None:
    await store.apply([PURGE])
    assert await _both(url, other, _start, store.apply([FIRST_COMMIT])) == [True]
    for run_id in ("new", "bare"):
        loaded = await store.load(run_id)
        assert loaded is not None
        assert loaded.document == b"text"


async def test_two_starts_that_bring_the_same_document_are_both_right(url, store: PostgresStore, other) -> None:
    await store.apply([PURGE])
    assert await _both(url, other, _start, store.apply([start("second")])) == [Started(True)]
    for run_id in ("new", "second"):
        loaded = await store.load(run_id)
        assert loaded is not None
        assert loaded.document == b"text"
