"""Stores keep the links of journals, and the signatures of rows, as they are given."""

from __future__ import annotations

from msgspec.structs import replace
from store_samples import Owner, do, exported, post, started

from loom.store.operations import ImportRun, SignHead
from loom.store.ports import Store
from loom.store.records import Chunk, RunQuery, RunRow, Snapshot


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


# -- the signatures of rows -------------------------------------------------------------------------------------------


async def mac_of(store: Store, run_id: str = "r") -> bytes | None:
    """The signature of a row, which every way of reading must agree on."""
    row, loaded = await store.get(run_id), await store.load(run_id)
    assert row is not None
    assert loaded is not None
    assert row.head.mac == loaded.row.head.mac == (await exported(store, run_id)).row.head.mac
    assert row.head.mac in [found.head.mac for found in await store.find(RunQuery()) if found.run_id == run_id]
    return row.head.mac


async def test_a_row_has_the_signature_of_its_last_commit(store: Store, owner: Owner, fence: int) -> None:
    assert await mac_of(store) is None
    await started(store, "s", fence, mac=b"k1:\x00start")
    assert await mac_of(store, "s") == b"k1:\x00start"
    await owner.commit(head={"mac": b"k1:one"})
    assert await mac_of(store) == b"k1:one"
    # Two commits in one transaction, one of them with more than a row and a chunk.
    other = Owner(store, "s", fence)
    await store.apply([owner.next(head={"mac": b"k1:two"}), other.next(head={"mac": b"k1:other"}, timers_gone=(1,))])
    assert (await mac_of(store), await mac_of(store, "s")) == (b"k1:two", b"k1:other")
    await owner.commit(head={})
    assert await mac_of(store) is None, "a commit without one takes it away"
    await owner.commit(head={"status": "completed", "mac": b"k1:end"})
    whole = await exported(store)
    assert await do(store, ImportRun(replace(whole, row=replace(whole.row, run_id="copy")))) is True
    assert (await mac_of(store), await mac_of(store, "copy")) == (b"k1:end", b"k1:end")


async def test_a_failed_run_is_reopened_with_a_signature_if_it_is_as_it_was_read(store: Store, owner: Owner) -> None:
    await owner.commit(head={"status": "failed", "mac": b"k1:failed"})
    refused = await do(store, post(reopens=True, reopened=(7, b"k1:stale")))
    assert (refused.outcome, refused.status, await mac_of(store)) == ("finished", "failed", b"k1:failed")
    assert (await do(store, post(reopens=True, reopened=(1, b"k1:again")))).outcome == "posted"
    assert await mac_of(store) == b"k1:again"


async def test_reopened_without_a_key_a_row_has_no_signature(store: Store, owner: Owner) -> None:
    await owner.commit(head={"status": "failed", "mac": b"k1:failed"})
    assert (await do(store, post(reopens=True))).outcome == "posted"
    assert await mac_of(store) is None


async def test_a_row_is_signed_later_only_if_it_has_no_signature_and_is_as_it_was_read(
    store: Store, owner: Owner, fence: int
) -> None:
    def signing(row: RunRow, mac: bytes = b"k1:later") -> SignHead:
        return SignHead(replace(row, head=replace(row.head, mac=mac)))

    await started(store, "s", fence, document=("d", b"text"))
    await owner.commit(events=2, head={"link": b":one"})
    old, flow = await store.get("r"), await store.get("s")
    assert old is not None
    assert flow is not None
    await owner.commit(head={"link": b":two"})
    assert await do(store, signing(old)) is False
    new = await store.get("r")
    assert new is not None
    for changed in (
        replace(new, workflow="x"),
        replace(new, document="d"),
        replace(new, run_id="nobody"),
        replace(new, head=replace(new.head, status="failed")),
        replace(new, head=replace(new.head, events=3)),
    ):
        assert await do(store, signing(changed)) is False
    assert await store.apply([signing(new), signing(flow)]) == [True, True]
    assert (await mac_of(store), await mac_of(store, "s")) == (b"k1:later", b"k1:later")
    assert await do(store, signing(new, b"k1:again")) is False
    assert await mac_of(store) == b"k1:later"
    await owner.commit(head={"mac": b"k1:next"})
    assert await mac_of(store) == b"k1:next"
