"""Disks that are full or fail, and records that are damaged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.operations import CommitRun, StartRun
from loom.store.records import Chunk, RunHead, RunQuery, Snapshot
from loom.store.sqlite import SqliteStore
from loom.store.sqlite.connection import Sqlite3Connection

BIG = b"x" * 100_000


class Disk:
    """Connections of which one statement fails, as `fault` says: how the statement begins, and the error's code."""

    def __init__(self) -> None:
        self.fault: tuple[str, int] | None = None
        self.opened = 0
        self.writer: Sqlite3Connection | None = None

    def connect(self, path: str) -> Sqlite3Connection:
        self.opened += 1
        connection = _Failing(path, self)
        self.writer = self.writer or connection
        return connection


class _Failing(Sqlite3Connection):
    __slots__ = ("_disk",)

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk

    def execute(self, sql, parameters=(), /) -> int:
        fault = self._disk.fault
        if fault is not None and sql.startswith(fault[0]):
            self._disk.fault = None
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = fault[1]
            raise error
        return super().execute(sql, parameters)


async def test_a_full_disk_refuses_what_does_not_fit_and_nothing_more(open_store) -> None:
    disk = Disk()
    store = await open_store(connect=disk.connect)
    await store.apply([StartRun("before", "w", b"", 1.0)])
    [(pages,)] = await store._writer.submit(lambda session: session.connection.query("PRAGMA page_count"))
    await store._writer.submit(lambda session: session.connection.query(f"PRAGMA max_page_count = {pages + 5}"))
    with pytest.raises(StoreUnavailable, match=r"the disk is full.*Nothing was written") as caught:
        await store.apply([StartRun("small", "w", b"", 1.0), StartRun("big", "w", BIG, 1.0)])
    assert str(store.path) in str(caught.value)
    assert not caught.value.outcome_unknown
    assert [row.run_id for row in await store.find(RunQuery())] == ["before"]
    # What fits is written, an engine can join, and when there is room again, all is.
    assert (await store.apply([StartRun("small", "w", b"", 1.0)]))[0].created
    assert (await store.join("engine", 10.0)).fence == 1
    await store._writer.submit(lambda session: session.connection.query("PRAGMA max_page_count = 100000"))
    assert (await store.apply([StartRun("big", "w", BIG, 1.0)]))[0].created


@pytest.mark.parametrize(
    ("word", "outcome_unknown", "message"),
    [("BEGIN", False, "Nothing was written"), ("COMMIT", True, "not known"), ("INSERT", False, "Nothing was written")],
)
async def test_after_a_failed_disk_the_file_is_opened_again(
    open_store, word: str, outcome_unknown: bool, message: str
) -> None:
    disk = Disk()
    store = await open_store(connect=disk.connect)
    await store.apply([StartRun("before", "w", b"", 1.0)])
    opened = disk.opened
    disk.fault = (word, sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(StoreUnavailable, match=message) as caught:
        await store.apply([StartRun("r", "w", b"", 1.0)])
    assert caught.value.outcome_unknown is outcome_unknown
    assert (await store.apply([StartRun("after", "w", b"", 1.0)]))[0].created
    assert disk.opened == opened + 1
    assert {row.run_id for row in await store.find(RunQuery())} == {"before", "after"}


async def test_a_single_statement_that_fails_may_have_been_written(open_store) -> None:
    disk = Disk()
    store = await open_store(connect=disk.connect)
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])

    def commit(tick: int) -> CommitRun:
        return CommitRun("r", fence, RunHead("running", tick + 1, 0, 2.0), chunk=Chunk(tick, 1, 0, 0, b"x"))

    await store.apply([commit(0)])
    disk.fault = ("INSERT INTO commits", sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(StoreUnavailable) as caught:
        await store.apply([commit(1)])
    assert caught.value.outcome_unknown
    assert await store.apply([commit(1)]) == [True]
    assert len((await store.load("r")).chunks) == 2


async def test_a_reader_that_fails_is_told_and_reads_again(open_store) -> None:
    disk = Disk()
    store = await open_store(connect=disk.connect)
    await store.apply([StartRun("r", "w", b"", 1.0)])
    disk.fault = ("BEGIN", sqlite3.SQLITE_IOERR_READ)
    with pytest.raises(StoreUnavailable, match="the disk failed"):
        await store.load("r")
    assert (await store.load("r")).start == b""


def delete(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink()


async def test_a_file_that_was_deleted_is_missed_and_not_made_anew(store: SqliteStore, path: Path) -> None:
    await store.apply([StartRun("r", "w", b"", 1.0)])
    delete(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"the file (is gone|was deleted).*Nothing was written"):
            await store.apply([StartRun("s", "w", b"", 1.0)])
        with pytest.raises(StoreUnavailable, match="the file"):
            await store.get("r")


async def test_a_file_that_was_replaced_is_opened_again(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    copy = SqliteStore(tmp_path / "copy.db")
    await copy.open()
    await copy.apply([StartRun("copied", "w", b"", 1.0)])
    await copy.close()
    await store.apply([StartRun("r", "w", b"", 1.0)])
    delete(path)
    shutil.move(tmp_path / "copy.db", path)
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.apply([StartRun("s", "w", b"", 1.0)])
    await store.apply([StartRun("s", "w", b"", 2.0)])
    for _ in range(4):
        assert [row.run_id for row in await store.find(RunQuery())] == ["s", "copied"]


@pytest.fixture
async def damaged(store: SqliteStore, other: sqlite3.Connection) -> Callable[[str], None]:
    """Two runs with a snapshot and three chunks each; what is called damages them."""
    fence = (await store.join("engine", 10.0)).fence
    for run_id in ("sick", "sound"):
        await store.apply([StartRun(run_id, "w", b"", 1.0, owner=fence)])
        for tick in range(3):
            head = RunHead("running", tick + 1, tick + 1, 2.0)
            chunk = Chunk(tick, 1, tick, 1, b"chunk %d" % tick)
            snapshot = Snapshot(1, b"state") if tick == 0 else None
            await store.apply([CommitRun(run_id, fence, head, chunk=chunk, snapshot=snapshot)])
    return lambda sql: other.execute(sql).close()


SICK = "(SELECT id FROM runs WHERE run_id = 'sick')"


@pytest.mark.parametrize("value", ["x'00'", "zeroblob(7)", "'text'", "CAST('chunk 1' AS TEXT)"])
async def test_a_damaged_chunk_is_named(store: SqliteStore, damaged, value: str) -> None:
    damaged(f"UPDATE chunks SET data = {value} WHERE first_tick = 1 AND run = {SICK}")
    for reading in (store.load("sick"), store.export("sick"), store.chunks("sick", 1, 9), store.stream("sick", 0, 9)):
        with pytest.raises(CorruptRecord, match=r"'sick': chunk 1 cannot be read") as caught:
            await reading
        assert (caught.value.run_id, caught.value.place) == ("sick", "chunk 1")
    # What does not need it can be read.
    assert [chunk.data for chunk in await store.chunks("sick", 2, 9)] == [b"chunk 2"]
    assert len((await store.load("sound")).chunks) == 2


async def test_a_damaged_snapshot_is_named(store: SqliteStore, damaged) -> None:
    damaged(f"UPDATE snapshots SET data = x'31' WHERE run = {SICK}")
    with pytest.raises(CorruptRecord, match="the snapshot after 1 ticks"):
        await store.load("sick")
    assert (await store.load("sound")).snapshot == Snapshot(1, b"state")


@pytest.mark.parametrize("column", ["tags", "waiting_for"])
async def test_a_damaged_row_is_named(store: SqliteStore, damaged, column: str) -> None:
    damaged(f"UPDATE runs SET {column} = '[1,' WHERE run_id = 'sick'")
    with pytest.raises(CorruptRecord, match="'sick': its row cannot be read"):
        await store.get("sick")
    assert (await store.get("sound")).run_id == "sound"
