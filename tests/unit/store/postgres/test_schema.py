"""Making and checking the schema."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from loom.store.errors import StoreError, StoreOutdated, StoreTooNew, StoreUnavailable
from loom.store.operations import StartRun
from loom.store.postgres import PostgresStore
from loom.store.postgres.address import parse


async def change(url: str, statement: str) -> None:
    """Do something to a database behind the store's back."""
    address = parse(url)
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    await connection.execute(statement)
    await connection.close()


async def test_several_processes_may_open_a_new_database_at_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    for number, store in enumerate(stores):
        await store.apply([StartRun(f"r{number}", "w", b"", 1.0)])
    assert (await stores[0].counts())["running"] == 5
    await asyncio.gather(*(store.close() for store in stores))


async def test_without_leave_to_upgrade_a_new_database_is_refused(url: str) -> None:
    with pytest.raises(StoreOutdated, match=r"has version 0, .* Run `loom db upgrade`"):
        await PostgresStore(url, upgrade=False).open()


async def test_without_leave_to_upgrade_a_database_that_is_up_to_date_opens(url: str) -> None:
    for upgrade in (True, False):
        store = PostgresStore(url, upgrade=upgrade)
        await store.open()
        await store.close()


async def test_a_newer_database_is_refused(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()
    await change(url, "INSERT INTO loom_schema (version, name, checksum) VALUES (999, 'future', 'x')")
    with pytest.raises(StoreTooNew, match="999"):
        await PostgresStore(url).open()


async def test_a_database_with_another_text_of_a_migration_is_refused(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()
    await change(url, "UPDATE loom_schema SET checksum = 'other'")
    with pytest.raises(StoreError, match="another text"):
        await PostgresStore(url).open()


@pytest.mark.parametrize(
    "wrong",
    ["postgresql://127.0.0.1:1/app", "postgresql://nobody@/nowhere?host=/does/not/exist"],
)
async def test_a_server_that_is_not_there_is_named(wrong: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore(wrong).open()
    assert parse(wrong).place in str(caught.value)


async def test_a_database_that_does_not_exist_is_named(url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r'no_such_database.*"no_such_database" does not exist'):
        await PostgresStore(url.replace("/postgres?", "/no_such_database?")).open()
