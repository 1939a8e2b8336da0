"""How writes share transactions and statements, and what stands in their way."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.records import Chunk, RunHead, Snapshot, TimerRow
from loom.store.sqlite import SqliteStore
from loom.store.sqlite.connection import MAX_ROWS, BulkStatement, Sqlite3Connection


class Watched(Sqlite3Connection):
    """Notes what is executed, and tells when a transaction begins."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.executed: list[str] = []
        self.begun = threading.Event()

    def execute(self, sql, parameters=(), /) -> int:
        self.executed.append(sql.split()[0])
        if self.executed[-1] == "BEGIN":
            self.begun.set()
        return super().execute(sql, parameters)


def watching() -> tuple[list[Watched], object]:
    connections: list[Watched] = []

    def connect(path: str) -> Watched:
        connections.append(Watched(path))
        return connections[-1]

    return connections, connect


def going_on(fence: int, tick: int, run_id: str = "r", **head) -> CommitRun:
    values = {"needs_worker": True} | head
    return CommitRun(run_id, fence, RunHead("running", tick + 1, 0, 2.0, **values), chunk=Chunk(tick, 1, 0, 0, b"x"))


async def test_a_commit_that_only_goes_on_is_one_statement(open_store) -> None:
    connections, connect = watching()
    store = await open_store(connect=connect)
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await store.apply([going_on(fence, 0)])
    writer = connections[0]
    writer.executed.clear()
    assert await store.apply([going_on(fence, 1)]) == [True]
    assert writer.executed == ["INSERT"]
    assert len((await store.load("r")).chunks) == 2


async def test_documents_cost_only_those_who_have_them(open_store) -> None:
    connections, connect = watching()
    store = await open_store(connect=connect)
    writer = connections[0]
    writer.executed.clear()
    await store.apply([StartRun("r", "w", b"", 1.0)])
    plain = list(writer.executed)
    writer.executed.clear()
    await store.apply([StartRun("s", "w", b"", 1.0, document=("d", b"text"))])
    assert sorted(writer.executed) == sorted([*plain, "INSERT"])


async def test_a_document_costs_the_commit_that_brings_it_and_no_other(open_store) -> None:
    connections, connect = watching()
    store = await open_store(connect=connect)
    fence = (await store.join("engine", 10.0)).fence
    names = [f"r{number}" for number in range(20)]
    await store.apply([StartRun(name, "w", b"", 1.0, owner=fence) for name in names])
    writer = connections[0]
    writer.executed.clear()
    document = ("d", b"text")
    group = [msgspec.structs.replace(going_on(fence, 0, name), document=document) for name in names]
    assert await store.apply(group) == [True] * 20
    assert writer.executed == ["BEGIN", "INSERT", "UPDATE", "INSERT", "COMMIT"]  # commits, their digests, the text
    writer.executed.clear()
    assert await store.apply([going_on(fence, 1, "r0")]) == [True]
    assert await store.apply([msgspec.structs.replace(going_on(fence, 1, "r1"), document=document)]) == [True]
    assert writer.executed == ["INSERT", "INSERT"]
    assert [(await store.load(name)).document for name in names] == [b"text"] * 20


@pytest.mark.parametrize(
    "more",
    [
        {"timers_set": (TimerRow(1, 5.0, "sleep"),)},
        {"timers_gone": (7,)},
        {"messages_taken": (1,)},
        {"snapshot": Snapshot(1, b"state")},
        {"sent": (StartRun("child", "w", b"", 1.0),)},
        {"prune": 1},
        {"document": ("d", b"text")},
        {"head": {"idle_since": 5.0}},
        {"head": {"needs_worker": False}},
        {"head": {"paused": True}},
        {"head": {"waiters": b"[1]", "waiting_for": ("A",)}},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_a_commit_that_does_more_is_written_wholly(store: SqliteStore, more) -> None:
    """The same as in a group with others, where no short way is taken."""
    fence = (await store.join("engine", 10.0)).fence
    group = [StartRun(name, "w", b"", 1.0, owner=fence) for name in ("alone", "r")]
    first = TimerRow(7, 9.0, "old")
    await store.apply(group)
    for name in ("alone", "r"):
        await store.apply([msgspec.structs.replace(going_on(fence, 0, name), timers_set=(first,))])
        await store.apply([PostMessage(name, b"letter", 1.0)])
    number = {name: (await store.inbox(name, 0))[0].id for name in ("alone", "r")}

    def commit(name: str) -> CommitRun:
        options = dict(more)
        head = options.pop("head", {})
        if "messages_taken" in options:
            options["messages_taken"] = (number[name],)
        return msgspec.structs.replace(going_on(fence, 1, name, **head), **options)

    assert await store.apply([commit("alone")]) == [True]
    assert (await store.apply([StartRun("other", "w", b"", 1.0), commit("r")]))[1] is True
    alone, grouped = await store.export("alone"), await store.export("r")
    assert msgspec.structs.replace(alone.row, run_id="r") == grouped.row
    assert (alone.chunks, alone.timers, alone.snapshot) == (grouped.chunks, grouped.timers, grouped.snapshot)
    assert alone.document == grouped.document
    assert [message.data for message in alone.inbox] == [message.data for message in grouped.inbox]


async def test_the_commits_of_many_runs_are_few_statements(open_store) -> None:
    connections, connect = watching()
    store = await open_store(connect=connect)
    fence = (await store.join("engine", 10.0)).fence
    names = [f"r{number}" for number in range(300)]
    await store.apply([StartRun(name, "w", b"", 1.0, owner=fence) for name in names])
    await store.apply([going_on(fence, 0, name) for name in names])
    writer = connections[0]
    writer.executed.clear()
    group = [operation for name in names for operation in (going_on(fence, 1, name), PostMessage("r0", b"", 1.0))]
    results = await store.apply(group)
    assert results[0::2] == [True] * 300
    assert writer.executed.count("INSERT") == 2 + 300 + 1  # commits, mail, news
    assert [len((await store.load(name)).chunks) for name in names[::50]] == [2] * 6


async def test_of_commits_written_together_only_the_foreign_ones_are_refused(store: SqliteStore) -> None:
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun(f"r{number}", "w", b"", 1.0, owner=fence + number % 2) for number in range(6)])
    results = await store.apply([going_on(fence, 0, f"r{number}") for number in range(7)])
    assert results == [True, False, True, False, True, False, False]
    assert [len((await store.load(f"r{number}")).chunks) for number in range(6)] == [1, 0, 1, 0, 1, 0]


async def test_a_chunk_that_is_written_already_is_refused(store: SqliteStore) -> None:
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await store.apply([going_on(fence, 0)])
    for group in ([going_on(fence, 0)], [StartRun("s", "w", b"", 1.0), going_on(fence, 0)]):
        with pytest.raises(StoreError, match="does not follow its journal of 1 ticks"):
            await store.apply(group)
    assert await store.get("s") is None
    assert await store.apply([going_on(fence, 1)]) == [True]


async def test_what_is_remembered_of_a_run_is_what_is_stored(store: SqliteStore) -> None:
    """A head goes back to what it was before a write that failed: the write after it must not be left out."""
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await store.apply([going_on(fence, 0, paused=False)])
    with pytest.raises(StoreError):
        await store.apply([going_on(fence, 1, paused=True, waiting_for=("A",)), StartRun("\ud800", "w", b"", 1.0)])
    assert await store.apply([going_on(fence, 1, paused=True, waiting_for=("A",))]) == [True]
    head = (await store.get("r")).head
    assert (head.paused, head.waiting_for) == (True, ("A",))


async def test_writes_that_wait_together_share_a_transaction(open_store, store: SqliteStore, other) -> None:
    connections, connect = watching()
    store = await open_store(connect=connect)
    writer = connections[0]
    other.execute("BEGIN IMMEDIATE")
    writer.executed.clear()
    writer.begun.clear()
    first = asyncio.ensure_future(store.apply([StartRun("first", "w", b"", 1.0)]))
    await asyncio.to_thread(writer.begun.wait)
    more = [asyncio.ensure_future(store.apply([StartRun(f"r{n}", "w", b"", 1.0)])) for n in range(10)]
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    assert [(await write)[0].created for write in (first, *more)] == [True] * 11
    assert writer.executed.count("COMMIT") == 2


async def test_of_writes_that_wait_together_only_the_bad_one_fails(store: SqliteStore, other) -> None:
    other.execute("BEGIN IMMEDIATE")
    names = ("first", "good", "bad \ud800", "also good")
    writes = [asyncio.ensure_future(store.apply([StartRun(name, "w", b"", 1.0)])) for name in names]
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(results[2], StoreError)
    assert "cannot be stored" in str(results[2])
    assert (await store.counts())["running"] == 3


async def test_a_write_waits_for_others_without_blocking_the_event_loop(store: SqliteStore, other) -> None:
    await store.apply([StartRun("r", "w", b"", 1.0)])
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.ensure_future(store.apply([PostMessage("r", b"", 1.0)]))
    # All the while others are served, and read.
    for _ in range(5):
        assert (await store.get("r")).run_id == "r"
    assert not write.done()
    other.execute("COMMIT")
    assert (await write)[0].outcome == "posted"


async def test_a_lock_that_is_kept_for_too_long_is_an_error(open_store, store: SqliteStore, other) -> None:
    impatient = await open_store(busy_timeout=0.01)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"kept it locked for too long.*Nothing was written"):
        await impatient.apply([StartRun("r", "w", b"", 1.0)])
    other.execute("ROLLBACK")
    assert (await impatient.apply([StartRun("r", "w", b"", 1.0)]))[0].created


async def test_a_cancelled_caller_does_not_undo_the_write(store: SqliteStore, other) -> None:
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.ensure_future(store.apply([StartRun("r", "w", b"", 1.0)]))
    await asyncio.sleep(0)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    other.execute("ROLLBACK")
    await store.apply([])
    assert await store.get("r") is not None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, MAX_ROWS - 1, MAX_ROWS, MAX_ROWS + 1, 2 * MAX_ROWS + 7])
def test_a_block_of_any_size_writes_each_row_once(count: int) -> None:
    connection = Sqlite3Connection(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    many = BulkStatement("INSERT INTO t SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL", 2)
    rows = [(number, str(number)) for number in range(count)]
    assert many.execute(connection, rows) == count
    assert connection.query("SELECT a, b FROM t ORDER BY a") == rows
    connection.close()


async def test_what_was_large_does_not_stay_in_memory_once_it_is_written(open_store) -> None:
    """A connection keeps each statement with what was bound to it last."""
    connections, connect = watching()
    store = await open_store(connect=connect)
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await store.apply([going_on(fence, 0)])
    writer = connections[0]
    large = msgspec.structs.replace(going_on(fence, 1), chunk=Chunk(1, 1, 0, 0, b"x" * (5 << 20)))
    assert await store.apply([large]) == [True]
    writer.executed.clear()
    assert await store.apply([going_on(fence, 2)]) == [True]
    assert writer.executed == [], "the connection that has written it is closed"
    assert len((await store.load("r")).chunks) == 3


async def test_a_commit_of_a_busy_run_logs_no_change(open_store) -> None:
    store = await open_store()
    fence = (await store.join("tester", 60.0)).fence
    await store.apply([StartRun("busy", "w", b"", 1.0, owner=fence)])
    for number in range(1, 6):
        chunk = Chunk(number - 1, 1, 0, 0, b"x")
        await store.apply([CommitRun("busy", fence, RunHead("running", number, 0, 1.0), chunk=chunk)])
    logged = await store._read(lambda connection: connection.query("SELECT COUNT(*) FROM changes"))
    assert logged == [(0,)]
    await store.apply([CommitRun("busy", fence, RunHead("completed", 6, 0, 1.0), chunk=Chunk(5, 1, 0, 0, b"x"))])
    logged = await store._read(lambda connection: connection.query("SELECT run_id FROM changes"))
    assert logged == [("busy",)]
