"""Where a database can be, and bringing it up to date."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from loom.store.errors import StoreError, StoreOutdated, StoreTooNew, StoreUnavailable
from loom.store.migrations import available
from loom.store.operations import PurgeRuns, StartRun
from loom.store.records import RunQuery
from loom.store.sqlite import SqliteStore, schema
from loom.store.sqlite.connection import explained


def versions(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [version for (version,) in connection.execute("SELECT version FROM loom_schema ORDER BY version")]


def folder_of(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


async def test_a_new_file_gets_the_whole_schema_and_keeps_it(open_store, path: Path) -> None:
    store = await open_store()
    await store.apply([StartRun("r", "w", b"", 1.0)])
    await store.close()
    assert versions(path) == [migration.number for migration in available(schema.MIGRATIONS)]
    again = await open_store(upgrade=False)
    assert (await again.get("r")).workflow == "w"


FIRST_RUN = """
INSERT INTO runs (id, run_id, workflow, status, created_at, updated_at, ended_at, needs_worker, paused, ticks, events,
    kept, downtime, first_tick, parent_ref, tags, waiters, waiting_for)
VALUES (7, 'r', 'w', 'completed', 1.0, 2.0, 2.0, 0, 0, 0, 0, 0, 0.0, 0, 0, '{}', x'5b5d', '[]');
INSERT INTO starts (run, data) VALUES (7, x'696e');
"""


async def test_a_file_of_the_first_version_is_upgraded_with_its_runs(open_store, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema.script(available(schema.MIGRATIONS)[:1]) + FIRST_RUN)
    with pytest.raises(StoreOutdated, match=r"has schema version 1.* needs \d+.*loom db upgrade"):
        await open_store(upgrade=False)
    store = await open_store()
    old = await store.load("r")
    assert (old.start, old.row.document, old.document) == (b"in", None, None)
    await store.apply([StartRun("s", "w", b"", 1.0, document=("d", b"text"))])
    assert (await store.load("s")).document == b"text"
    assert await store.apply([PurgeRuns(run_id="r")]) == [1]


async def test_a_file_of_the_second_version_is_upgraded_and_keeps_what_it_has(open_store, path: Path) -> None:
    document = "UPDATE runs SET document = 'd'; INSERT INTO documents VALUES ('d', 1.0, 0, x'74657874');"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema.script(available(schema.MIGRATIONS)[:2]) + FIRST_RUN + document)
    with pytest.raises(StoreOutdated, match=r"has schema version 2.* needs \d+.*loom db upgrade"):
        await open_store(upgrade=False)
    store = await open_store()
    assert (await store.load("r")).document == b"text"
    assert await store.entries("k") == []
    version = await store.put_entry("k", "a", b"1")
    assert (await store.entry("k", "a")).version == version
    assert [row.run_id for row in await store.find(RunQuery(status=("completed", "failed")))] == ["r"]


async def test_without_leave_to_upgrade_no_file_is_made(open_store, path: Path) -> None:
    with pytest.raises(StoreOutdated, match="loom db upgrade"):
        await open_store(upgrade=False)
    assert folder_of(path) == []


async def test_without_leave_to_upgrade_an_old_file_is_refused_and_left_alone(open_store, path: Path) -> None:
    sqlite3.connect(path).close()
    with pytest.raises(StoreOutdated, match=r"has schema version 0.* needs \d+.*loom db upgrade"):
        await open_store(upgrade=False)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)


async def test_a_file_of_a_newer_version_is_refused(store: SqliteStore, other: sqlite3.Connection, open_store) -> None:
    other.execute("INSERT INTO loom_schema VALUES (99, 'future', 'x', 0)")
    with pytest.raises(StoreTooNew, match="schema version 99"):
        await open_store()


async def test_a_file_with_another_text_of_a_migration_is_refused(store, other: sqlite3.Connection, open_store) -> None:
    other.execute("UPDATE loom_schema SET checksum = 'x' WHERE version = 1")
    with pytest.raises(StoreError, match="Migration 1"):
        await open_store()


async def test_a_migration_that_fails_leaves_the_version_before_it(
    open_store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "failing_migrations"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "0001_good.sql").write_text("CREATE TABLE good (a);")
    (package / "0002_bad.sql").write_text("CREATE TABLE half (a);\nCREATE TABLE good (a);")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(schema, "MIGRATIONS", package.name)
    with pytest.raises(StoreUnavailable, match="already exists"):
        await open_store()
    assert versions(path) == [1]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchone() is None


def test_many_may_open_a_new_file_at_the_same_time(path: Path) -> None:
    together = threading.Barrier(6)
    failures: list[Exception] = []

    async def open_and_close() -> None:
        store = SqliteStore(path)
        await asyncio.to_thread(together.wait)
        await store.open()
        await store.close()

    def one() -> None:
        try:
            asyncio.run(open_and_close())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert versions(path) == [migration.number for migration in available(schema.MIGRATIONS)]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (":memory:", "memory://"),
        ("", "memory://"),
        ("{folder}/nowhere/runs.db", "nowhere does not exist"),
        ("{folder}", "it is a folder"),
        ("{folder}/text.db", "not an SQLite database"),
    ],
)
async def test_a_place_where_no_database_can_be_is_refused(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "text.db").write_text("This is a text, and not a database. " * 100)
    with pytest.raises(StoreError, match=message):
        await SqliteStore(place.format(folder=tmp_path)).open()


async def test_a_store_that_could_not_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "later" / "runs.db")
    with pytest.raises(StoreUnavailable):
        await store.open()
    (tmp_path / "later").mkdir()
    await store.open()
    await store.close()


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.apply([StartRun("r", "w", b"", 1.0)])
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.get("r")


async def test_what_was_accepted_is_finished_by_close(open_store) -> None:
    store = await open_store()
    writes = [asyncio.ensure_future(store.apply([StartRun(f"r{n}", "w", b"", 1.0)])) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all([(await write)[0].created for write in writes])
    assert (await (await open_store()).counts())["running"] == 20


def test_a_folder_that_may_not_be_written_is_named() -> None:
    with tempfile.TemporaryDirectory() as place:  # not below the folder of pytest, which is for one user alone
        Path(place).chmod(0o555)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # root may write everywhere, so another user tries it
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                sqlite3.connect(Path(place, "runs.db")).execute("PRAGMA user_version = 1")
            except sqlite3.Error as error:
                os.write(writer, str(explained(error, str(Path(place, "runs.db")))).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            said = told.read()
        os.waitpid(child, 0)
        assert f"this process may not write to the folder {place} (" in said


async def test_a_relative_file_whose_folder_is_gone_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    store = SqliteStore("runs.db")
    await store.open()
    shutil.rmtree(folder)
    with pytest.raises(StoreUnavailable):
        await store.find(RunQuery(workflow="a"))
    async with asyncio.timeout(60):
        await store.close()
