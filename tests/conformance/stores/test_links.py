"""Stores keep the links of journals as they are given."""

from __future__ import annotations

from msgspec.structs import replace
from store_samples import Owner, do, exported

from loom.store.operations import ImportRun
from loom.store.ports import Store
from loom.store.records import Chunk, RunQuery, Snapshot


async def test_links_come_back_wherever_a_run_is_read(store: Store, owner: Owner) -> None:
    first = Chunk(0, 1, 0, 1, b"first", b":before")
    second = Chunk(1, 1, 1, 1, b"second", b"k1:\x00\xff")
    await owner.commit(events=1, head={"link": b"k1:\x00\xff"}, chunk=first)
    snapshot = Snapshot(2, b"state", b":snapshot")
    await owner.commit(events=1, head={"link": b"k2:last"}, chunk=second, snapshot=snapshot)
    whole = await exported(store)
    assert whole.chunks == (first, second)
    assert whole.snapshot == snapshot
    assert whole.row.head.link == b"k2:last"
    assert await store.chunks("r", 0, 10) == [first, second]
    assert await store.stream("r", 1, 10) == [second]
    loaded, row = await store.load("r"), await store.get("r")
    assert loaded is not None
    assert row is not None
    assert (loaded.snapshot, loaded.chunks, row.head.link) == (snapshot, (), b"k2:last")
    assert [found.head.link for found in await store.find(RunQuery())] == [b"k2:last"]
    copy = replace(whole, row=replace(whole.row, run_id="copy"))
    assert await do(store, ImportRun(copy)) is True
    imported = await exported(store, "copy")
    assert (imported.chunks, imported.snapshot, imported.row.head.link) == (whole.chunks, snapshot, b"k2:last")


async def test_a_head_alone_has_its_link_too_and_an_end_keeps_it(store: Store, owner: Owner) -> None:
    await owner.commit(head={"link": b":one"})
    await owner.commit(ticks=0, head={"link": b":two"}, chunk=None)
    row = await store.get("r")
    assert row is not None
    assert row.head.link == b":two"
    await owner.commit(head={"status": "completed", "link": b":three"})
    row = await store.get("r")
    assert row is not None
    assert row.head.link == b":three"
