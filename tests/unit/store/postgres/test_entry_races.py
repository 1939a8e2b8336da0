"""Two processes write the same entry at the same moment: the second sees what the first has left."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable

import asyncpg
import pytest
from postgres_races import blocked

from loom.store.errors import StoreUnavailable
from loom.store.postgres import PostgresStore, key_values
from loom.store.postgres.connections import parse_address
from loom.store.records import ABSENT, Entry


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    """A connection of another process, amid a transaction."""
    address = parse_address(url)
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


async def after(url: str, other: asyncpg.Connection, end: str, work: Awaitable[object]) -> object:
    """What comes of something that waits for the other's transaction, which then ends so."""
    task = await blocked(url, other, work)
    await other.execute(end)
    return await task


async def put(other: asyncpg.Connection, data: bytes, expect: int | None = None) -> int:
    version = await key_values.put_entry(other, Entry("k", "a", 0, data), expect)
    assert version is not None
    return version


async def data_of(store: PostgresStore) -> bytes | None:
    entry = await store.entry("k", "a")
    return entry.data if entry is not None else None


async def test_of_two_that_add_the_second_is_refused(url: str, store: PostgresStore, other) -> None:
    await put(other, b"other", ABSENT)
    assert await after(url, other, "COMMIT", store.put_entry("k", "a", b"own", expect=ABSENT)) is None
    assert await data_of(store) == b"other"


async def test_one_adds_what_another_did_not_in_the_end(url: str, store: PostgresStore, other) -> None:
    await put(other, b"other", ABSENT)
    assert await after(url, other, "ROLLBACK", store.put_entry("k", "a", b"own", expect=ABSENT)) is not None
    assert await data_of(store) == b"own"


async def test_of_two_that_expect_a_version_the_second_is_refused(url: str, store: PostgresStore, other) -> None:
    version = await store.put_entry("k", "a", b"first")
    await put(other, b"other", version)
    assert await after(url, other, "COMMIT", store.put_entry("k", "a", b"own", expect=version)) is None
    assert await data_of(store) == b"other"


async def test_of_two_that_expect_nothing_the_second_stays(url: str, store: PostgresStore, other) -> None:
    theirs = await put(other, b"other")
    own = await after(url, other, "COMMIT", store.put_entry("k", "a", b"own"))
    assert isinstance(own, int)
    assert own > theirs
    assert await data_of(store) == b"own"


async def test_an_entry_that_is_being_dropped_can_be_added(url: str, store: PostgresStore, other) -> None:
    await store.put_entry("k", "a", b"first")
    assert await key_values.drop_entry(other, "k", "a", None)
    assert await after(url, other, "COMMIT", store.put_entry("k", "a", b"own", expect=ABSENT)) is not None
    assert await data_of(store) == b"own"


async def test_an_entry_that_is_being_replaced_is_not_dropped_as_it_was(url: str, store: PostgresStore, other) -> None:
    version = await store.put_entry("k", "a", b"first")
    await put(other, b"other")
    assert await after(url, other, "COMMIT", store.drop_entry("k", "a", expect=version)) is False
    assert await data_of(store) == b"other"


async def test_an_expired_entry_is_added_again_by_one_of_two(url: str, store: PostgresStore, other) -> None:
    await store.put_entry("k", "a", b"old", expires_at=time.time() - 1.0)
    await put(other, b"other", ABSENT)
    assert await after(url, other, "COMMIT", store.put_entry("k", "a", b"own", expect=ABSENT)) is None
    assert await data_of(store) == b"other"


async def test_dropping_what_expired_does_not_wait_for_who_renews_it(store: PostgresStore, other) -> None:
    for key in ("a", "b"):
        await store.put_entry("k", key, b"old", expires_at=time.time() - 1.0)
    await put(other, b"other", ABSENT)
    assert await store.drop_expired(time.time()) == 1
    await other.execute("COMMIT")
    assert await store.drop_expired(time.time()) == 0
    assert await data_of(store) == b"other"


async def test_a_put_whose_connection_is_lost_fails_and_the_next_one_does_not(url: str, store, other) -> None:
    await put(other, b"other")
    task = await blocked(url, other, store.put_entry("k", "a", b"own"))
    killer = await asyncpg.connect(parse_address(url).url)
    await killer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))",
        other.get_server_pid(),
    )
    await killer.close()
    with pytest.raises(StoreUnavailable):
        await task
    await other.execute("ROLLBACK")
    assert await store.put_entry("k", "a", b"again") is not None
