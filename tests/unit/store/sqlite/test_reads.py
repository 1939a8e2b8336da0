"""Reads that are particular to this store: which indexes serve them, and long streams."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from msgspec.structs import replace

from loom.store.operations import CommitRun, StartRun
from loom.store.records import Chunk, RunHead, RunQuery
from loom.store.sqlite import SqliteStore
from loom.store.sqlite.key_values import _DROP_UNUSED_DOCUMENTS
from loom.store.sqlite.reads import _lookups, _narrow_index, statement

QUERIES = [
    RunQuery(),
    RunQuery(status="failed"),
    RunQuery(workflow="w", status="failed"),
    RunQuery(idle=True, status="running"),
    RunQuery(idle=False),
    RunQuery(idle_before=5.0, workflow="w"),
    RunQuery(waiting_for="A", status="running"),
    RunQuery(tags={"a": "b"}),
    RunQuery(tags={"a": "b", "c": "d"}, waiting_for="A"),
    RunQuery(parent="p", status="running"),
    RunQuery(paused=True, idle=True),
    RunQuery(paused=False, parked=False),
    RunQuery(parked=True),
    RunQuery(stuck=True),
    RunQuery(stuck=False, workflow="w"),
    RunQuery(status=("failed", "running")),
    RunQuery(workflow=("v", "w"), status=("failed", "running")),
    RunQuery(workflow=("v", "w"), idle=True, created_after=1.0),
    RunQuery(workflow=tuple(f"w{n}" for n in range(100)), created_before=9.0),
    RunQuery(waiting_for="A", workflow=("v", "w"), created_after=1.0),
    RunQuery(status="running", idle=False),
    RunQuery(status=("failed", "running"), idle=False, workflow="w"),
]


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("after", [None, (5.0, "r")])
@pytest.mark.parametrize("query", QUERIES)
async def test_a_list_is_read_in_the_order_of_an_index(
    store: SqliteStore, other, query: RunQuery, after, oldest_first: bool
) -> None:
    """So the first page of a hundred thousand runs costs as much as that of a hundred."""
    query = replace(query, after=after, oldest_first=oldest_first)

    class Plain:
        def query(self, sql, parameters):
            return other.execute(sql, parameters).fetchall()

    sql, parameters = statement(query, _lookups(Plain(), query))
    plan = [detail for *_, detail in other.execute("EXPLAIN QUERY PLAN " + sql, parameters)]
    assert not [detail for detail in plan if "TEMP B-TREE FOR ORDER BY" in detail], plan
    assert not [detail for detail in plan if detail.startswith("SCAN") and "INDEX" not in detail], plan


async def test_the_runs_of_a_document_are_found_by_an_index(store: SqliteStore, other: sqlite3.Connection) -> None:
    """So deleting the last run of a document does not look at all others."""
    sql = _DROP_UNUSED_DOCUMENTS._sized(2)
    plan = [detail for *_, detail in other.execute("EXPLAIN QUERY PLAN " + sql, ("a", "b"))]
    assert any("SEARCH runs USING COVERING INDEX runs_by_document (document=?)" in detail for detail in plan), plan
    assert any(detail.startswith("SEARCH documents USING") for detail in plan), plan


async def test_a_search_begins_with_what_the_fewest_runs_have(store: SqliteStore, other: sqlite3.Connection) -> None:
    await store.apply([StartRun(f"r{n}", "w", b"", float(n), tags={"all": "yes", "one": str(n)}) for n in range(50)])
    for tags in ({"all": "yes", "one": "7"}, {"one": "7", "all": "yes"}):
        assert [row.run_id for row in await store.find(RunQuery(tags=tags))] == ["r7"]
        lookups = await store._readers.submit(lambda connection, tags=tags: _lookups(connection, RunQuery(tags=tags)))
        assert lookups[0][1] == ("one", "7")


async def test_a_long_stream_is_found_at_every_cursor(store: SqliteStore) -> None:
    """Chunks with many events, with one and with none; with many ticks and with none."""
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    ticks = events = 0
    chunks: list[Chunk] = []
    for number in range(200):
        chunk = Chunk(ticks, number % 3, events, (number * 7) % 5 * (number % 11), b"%d" % number)
        ticks, events = ticks + chunk.ticks, events + chunk.events
        chunks.append(chunk)
        await store.apply([CommitRun("r", fence, RunHead("running", ticks, events, 2.0), chunk=chunk)])
    for cursor in range(events + 2):
        rest = [one for one in chunks if one.events and one.first_cursor + one.events > cursor]
        assert await store.stream("r", cursor, 3) == rest[:3]
    for tick in range(ticks + 2):
        rest = [one for one in chunks if one.first_tick + one.ticks > tick]
        assert await store.chunks("r", tick, 3) == rest[:3]
    assert (await store.export("r")).chunks == tuple(chunks)


async def test_a_read_is_of_one_moment(store: SqliteStore) -> None:
    """A commit adds to the row and to the chunks at once; no reader may see one without the other."""
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    done = False

    async def write() -> None:
        nonlocal done
        for tick in range(150):
            chunk = Chunk(tick, 1, 0, 0, b"x")
            await store.apply([CommitRun("r", fence, RunHead("running", tick + 1, 0, 2.0), chunk=chunk)])
        done = True

    async def read() -> None:
        while not done:
            stored = await store.load("r")
            assert len(stored.chunks) == stored.row.head.ticks

    await asyncio.gather(write(), read(), read(), read())


async def test_a_search_begins_with_a_workflow_that_has_few_runs_and_finds_the_same(store: SqliteStore) -> None:
    """A thousand and more wait for the same event: those of a small workflow are not looked for among all of them."""
    fence = (await store.join("one", 60.0)).fence
    names = [(f"r{n:04}", "small" if n % 100 == 7 else "large") for n in range(1200)]
    await store.apply([StartRun(run, workflow, b"", float(n), owner=fence) for n, (run, workflow) in enumerate(names)])
    head = RunHead("running", 0, 0, 2.0, idle_since=5.0, waiting_for=("Ask",))
    await store.apply([CommitRun(run, fence, head) for run, _ in names if run != "r0107"])
    small = [run for run, workflow in reversed(names) if workflow == "small" and run != "r0107"]
    for workflow, index in (("small", "runs_by_workflow"), (("small", "none"), "runs_by_workflow"), ("large", None)):
        query = RunQuery(waiting_for="Ask", workflow=workflow, limit=2000)
        assert await store._readers.submit(lambda connection, query=query: chosen(connection, query)) == index
        expected = small if index else [run for run, name in reversed(names) if name == "large"]
        assert [row.run_id for row in await store.find(query)] == expected
    few = RunQuery(waiting_for="Ask", idle_before=4.0)
    assert await store._readers.submit(lambda connection: chosen(connection, few)) == "runs_by_idle_since"
    assert await store.find(few) == []
    found = await store.find(replace(few, idle_before=5.0, workflow="small", oldest_first=True, limit=2))
    assert [row.run_id for row in found] == ["r0007", "r0207"]


def chosen(connection, query: RunQuery) -> str | None:
    return _narrow_index(connection, query, _lookups(connection, query))


@pytest.mark.parametrize("without", [(), ("runs_asleep", "runs_waiting", "runs_by_update")])
async def test_a_commit_of_a_busy_run_writes_as_many_pages_as_without_the_indexes_of_lists(
    store: SqliteStore, other: sqlite3.Connection, without: tuple[str, ...]
) -> None:
    fence = (await store.join("engine", 60.0)).fence
    await store.apply([StartRun(f"r{n}", "w", b"", float(n), owner=fence) for n in range(200)])
    for index in without:
        other.execute(f"DROP INDEX {index}")
    other.commit()
    # Each frame of the write-ahead log is a page that a commit has changed.
    frames = []
    for tick in range(5):
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        chunk = Chunk(tick, 1, 0, 0, b"x")
        await store.apply([CommitRun("r7", fence, RunHead("running", tick + 1, 0, 300.0 + tick), chunk=chunk)])
        frames.append(other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])
    assert frames[1:] == [3, 3, 3, 3], "the run, the chunk, and the index of chunks"


@pytest.mark.parametrize("query", [RunQuery(asleep=True), RunQuery(waiting=True), RunQuery(waiting=True, workflow="w")])
async def test_runs_that_sleep_or_wait_are_read_in_the_order_of_their_index(
    store: SqliteStore, other: sqlite3.Connection, query: RunQuery
) -> None:
    sql, parameters = statement(query, [])
    plan = [detail for *_, detail in other.execute("EXPLAIN QUERY PLAN " + sql, parameters)]
    assert not [detail for detail in plan if "TEMP B-TREE" in detail], plan
    assert any("runs_asleep" in detail or "runs_waiting" in detail for detail in plan), plan
