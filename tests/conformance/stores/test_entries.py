"""Small things beside the runs: kept, replaced, listed, dropped and expired."""

from __future__ import annotations

import asyncio

import pytest
from store_databases import Database
from store_samples import ids, start

from loom.store.ports import Store
from loom.store.records import ABSENT, Entry


async def version_of(store: Store, kind: str = "k", key: str = "a") -> int | None:
    entry = await store.entry(kind, key)
    return entry.version if entry is not None else None


async def test_what_was_put_is_there_for_every_store(database: Database, store: Store) -> None:
    expires_at = database.now() + 60.0
    version = await store.put_entry("k", "a", b"\0data", expires_at=expires_at)
    assert version is not None
    assert version > ABSENT
    for reader in (store, await database.open()):
        assert await reader.entry("k", "a") == Entry("k", "a", version, b"\0data", expires_at)
        assert await reader.entry("k", "b") is None
        assert await reader.entry("other", "a") is None


async def test_a_put_without_an_expectation_replaces_all_of_it(database: Database, store: Store) -> None:
    first = await store.put_entry("k", "a", b"1", expires_at=database.now() + 60.0)
    second = await store.put_entry("k", "a", b"")
    assert first is not None
    assert second is not None
    assert second > first
    assert await store.entry("k", "a") == Entry("k", "a", second, b"", None)


async def test_an_entry_is_added_only_once(store: Store) -> None:
    version = await store.put_entry("k", "a", b"1", expect=ABSENT)
    assert await store.put_entry("k", "a", b"2", expect=ABSENT) is None
    assert await store.entry("k", "a") == Entry("k", "a", version or 0, b"1")
    assert await store.put_entry("other", "a", b"3", expect=ABSENT) is not None


async def test_an_expected_version_is_replaced_and_no_other(store: Store) -> None:
    assert await store.put_entry("k", "a", b"0", expect=7) is None
    first = await store.put_entry("k", "a", b"1")
    second = await store.put_entry("k", "a", b"2", expect=first)
    assert second is not None
    assert await store.put_entry("k", "a", b"3", expect=first) is None
    assert await store.entry("k", "a") == Entry("k", "a", second, b"2")


async def test_a_version_is_not_given_again_after_a_drop(store: Store) -> None:
    first = await store.put_entry("k", "a", b"1")
    assert await store.drop_entry("k", "a")
    again = await store.put_entry("k", "a", b"1", expect=ABSENT)
    assert again != first
    assert await store.put_entry("k", "a", b"2", expect=first) is None
    assert not await store.drop_entry("k", "a", expect=first)


async def test_a_drop_says_whether_there_was_something(store: Store) -> None:
    version = await store.put_entry("k", "a", b"1")
    assert version is not None
    assert not await store.drop_entry("k", "b")
    assert not await store.drop_entry("k", "a", expect=version + 1)
    assert not await store.drop_entry("k", "a", expect=ABSENT)
    assert await store.drop_entry("k", "a", expect=version)
    assert not await store.drop_entry("k", "a")
    assert await store.entry("k", "a") is None


async def test_entries_come_page_by_page_in_the_order_of_keys(store: Store) -> None:
    for key in ("b", "B", "ä", "10", "9", "\U0001f600", "\uffee"):
        await store.put_entry("k", key, key.encode())
    await store.put_entry("other", "c", b"")
    keys = ["10", "9", "B", "b", "ä", "\uffee", "\U0001f600"]
    found = await store.entries("k")
    assert [entry.key for entry in found] == keys
    assert [entry.data.decode() for entry in found] == keys
    assert [entry.key for entry in await store.entries("k", limit=2)] == keys[:2]
    assert [entry.key for entry in await store.entries("k", after="9", limit=3)] == keys[2:5]
    assert [entry.key for entry in await store.entries("k", after="A")] == keys[2:]
    assert await store.entries("none") == []


async def test_an_expired_entry_is_as_good_as_none(database: Database, store: Store) -> None:
    version = await store.put_entry("k", "a", b"1", expires_at=database.now() - 1.0)
    assert version is not None
    await store.put_entry("k", "b", b"2", expires_at=database.now() + 60.0)
    assert await store.entry("k", "a") is None
    assert [entry.key for entry in await store.entries("k")] == ["b"]
    assert [entry.key for entry in await store.entries("k", limit=1)] == ["b"]
    assert not await store.drop_entry("k", "a")
    assert await store.put_entry("k", "a", b"3", expect=version) is None
    assert await store.put_entry("k", "a", b"4", expect=ABSENT) is not None
    assert await version_of(store) is not None


async def test_an_entry_expires_with_time(database: Database, store: Store) -> None:
    await store.put_entry("k", "a", b"1", expires_at=database.now() + 30.0)
    expires_at = database.now() + 0.2
    await store.put_entry("k", "b", b"1", expires_at=expires_at)
    while database.now() <= expires_at:
        await database.pass_time(0.05)
    assert [entry.key for entry in await store.entries("k")] == ["a"]


async def test_expired_entries_are_dropped_the_oldest_first(database: Database, store: Store) -> None:
    now = database.now()
    for number in range(5):
        await store.put_entry("k", f"old{number}", b"", expires_at=now + 100.0 + number)
    await store.put_entry("k", "new", b"", expires_at=now + 300.0)
    await store.put_entry("k", "for good", b"")
    assert await store.drop_expired(now + 99.0) == 0
    assert await store.drop_expired(now + 200.0, limit=2) == 2
    assert [entry.key for entry in await store.entries("k")] == ["for good", "new", "old2", "old3", "old4"]
    assert await store.drop_expired(now + 104.0) == 3
    assert await store.drop_expired(now + 200.0) == 0
    assert [entry.key for entry in await store.entries("k")] == ["for good", "new"]


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        ("", "a", "kind of an entry must have 1 to 200 characters, not 0"),
        ("k", "", "key of an entry must have 1 to 200 characters, not 0"),
        ("k" * 201, "a", "kind of an entry .* not 201"),
        ("k", "a" * 201, "key of an entry .* not 201"),
        ("k", "a\0b", "key .* cannot be stored"),
        ("k\ud800", "a", "kind .* cannot be stored"),
    ],
)
async def test_a_name_that_cannot_be_kept_is_refused(store: Store, kind: str, key: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await store.put_entry(kind, key, b"")
    with pytest.raises(ValueError, match=message):
        await store.entry(kind, key)
    with pytest.raises(ValueError, match=message):
        await store.drop_entry(kind, key)


async def test_a_page_refuses_names_that_cannot_be_kept(store: Store) -> None:
    with pytest.raises(ValueError, match="kind of an entry"):
        await store.entries("")
    with pytest.raises(ValueError, match="key of an entry"):
        await store.entries("k", after="a" * 201)


async def test_the_longest_names_and_large_data_are_kept(store: Store) -> None:
    kind, key, data = "ä" * 200, "\U0001f600" * 200, bytes(range(256)) * 8000
    await store.put_entry(kind, key, data)
    entry = await store.entry(kind, key)
    assert entry is not None
    assert (entry.kind, entry.key, entry.data) == (kind, key, data)


async def test_of_many_that_add_the_same_entry_one_does(database: Database, store: Store) -> None:
    stores = [store, await database.open(), await database.open()]
    puts = [each.put_entry("k", "a", f"{n}".encode(), expect=ABSENT) for n in range(10) for each in stores]
    versions = [version for version in await asyncio.gather(*puts) if version is not None]
    assert versions == [await version_of(store)]


async def test_no_change_is_lost_among_many_that_compare_and_set(database: Database, store: Store) -> None:
    await store.put_entry("k", "count", b"0")

    async def count(own: Store, times: int) -> None:
        while times:
            entry = await own.entry("k", "count")
            assert entry is not None
            if await own.put_entry("k", "count", b"%d" % (int(entry.data) + 1), expect=entry.version) is not None:
                times -= 1

    await asyncio.gather(*(count(own, 10) for own in (store, await database.open(), await database.open())))
    entry = await store.entry("k", "count")
    assert entry is not None
    assert entry.data == b"30"


async def test_of_many_that_drop_the_same_version_one_does(database: Database, store: Store) -> None:
    version = await store.put_entry("k", "a", b"")
    stores = [store, await database.open()]
    dropped = await asyncio.gather(*(each.drop_entry("k", "a", expect=version) for each in stores * 5))
    assert sorted(dropped) == [False] * 9 + [True]


async def test_entries_are_written_beside_the_engine_and_its_runs(database: Database, store: Store, fence: int) -> None:
    beside = await database.open()
    writes = [store.apply([start(f"r{n}", owner=fence)]) for n in range(10)]
    puts = [beside.put_entry("k", f"{n}", b"") for n in range(10)]
    await asyncio.gather(*writes, *puts)
    assert len(await store.entries("k")) == 10
    assert len(await ids(beside)) == 10


async def test_entries_outlive_the_stores(database: Database) -> None:
    first = await database.open()
    version = await first.put_entry("k", "a", b"1")
    await first.close()
    assert await version_of(await database.open()) == version
