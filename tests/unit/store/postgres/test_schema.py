"""Making and checking the schema."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from loom.store.errors import StoreError, StoreOutdated, StoreTooNew, StoreUnavailable
from loom.store.migrations import available
from loom.store.operations import PurgeRuns, StartRun
from loom.store.postgres import PostgresStore, schema
from loom.store.postgres.connections import parse_address
from loom.store.postgres.reads import TABLES
from loom.store.records import RunQuery


async def change(url: str, statement: str) -> None:
    """Do something to a database behind the store's back."""
    address = parse_address(url)
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


async def test_the_size_counts_every_table_with_data(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()
    address = parse_address(url)
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    await connection.close()
    assert {name for (name,) in found} - {"loom_schema"} == set(TABLES)


FIRST_RUN = """
INSERT INTO runs (run_id, workflow, status, free_since, created_at, updated_at, ended_at)
VALUES ('r', 'w', 'completed', 2.0, 1.0, 2.0, 2.0);
INSERT INTO starts (run, data) SELECT id, 'in' FROM runs;
"""


async def test_a_schema_of_the_first_version_is_upgraded_with_its_runs(url: str) -> None:
    await change(url, schema.script(available(schema.MIGRATIONS)[:1], parse_address(url)))
    await change(url, FIRST_RUN)
    with pytest.raises(StoreOutdated, match=r"has version 1, .* Run `loom db upgrade`"):
        await PostgresStore(url, upgrade=False).open()
    store = PostgresStore(url)
    await store.open()
    old = await store.load("r")
    assert old is not None
    assert (old.start, old.row.document, old.document) == (b"in", None, None)
    await store.apply([StartRun("s", "w", b"", 1.0, document=("d", b"text"))])
    new = await store.load("s")
    assert new is not None
    assert new.document == b"text"
    assert await store.apply([PurgeRuns(run_id="r")]) == [1]
    await store.close()


async def test_a_schema_of_the_second_version_is_upgraded_and_keeps_what_it_has(url: str) -> None:
    await change(url, schema.script(available(schema.MIGRATIONS)[:2], parse_address(url)))
    await change(
        url, FIRST_RUN + "UPDATE runs SET document = 'd'; INSERT INTO documents VALUES ('d', 1, false, 'text')"
    )
    with pytest.raises(StoreOutdated, match=r"has version 2, .* Run `loom db upgrade`"):
        await PostgresStore(url, upgrade=False).open()
    store = PostgresStore(url)
    await store.open()
    old = await store.load("r")
    assert old is not None
    assert old.document == b"text"
    assert await store.entries("k") == []
    version = await store.put_entry("k", "a", b"1")
    entry = await store.entry("k", "a")
    assert entry is not None
    assert entry.version == version
    assert [row.run_id for row in await store.find(RunQuery(status=("completed", "failed")))] == ["r"]
    await store.close()


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
    assert parse_address(wrong).place in str(caught.value)


async def test_a_database_that_does_not_exist_is_named(url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r'no_such_database.*"no_such_database" does not exist'):
        await PostgresStore(url.replace("/postgres?", "/no_such_database?")).open()
