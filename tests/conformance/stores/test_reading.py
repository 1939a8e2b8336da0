"""What can be read of runs: rows, journals, streams, all of it; and how it is deleted."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from store_samples import Owner, comparable, do, exported, ids, messages_of, post, start, started, timer

from loom.store.operations import ClaimRuns, ImportRun, PurgeRuns
from loom.store.ports import OwnedStore, Store
from loom.store.records import Chunk, Snapshot, StoredRun


async def test_what_is_not_there_is_none_or_empty(store: Store) -> None:
    assert await store.get("x") is None
    assert await store.load("x") is None
    assert await store.export("x") is None
    assert await store.inbox("x", 0) == []
    assert await store.chunks("x", 0, 10) == []
    assert await store.stream("x", 0, 10) == []
    assert await store.timers_due(("w",), 1e9, 10) == []
    assert await store.next_timers(["x"]) == {}
    assert set((await store.counts()).values()) <= {0}


async def test_the_next_timers_are_those_of_the_runs_that_are_asked_for(store: OwnedStore, owner: Owner) -> None:
    await owner.commit(timers_set=(timer(1, 30.0), timer(2, 20.0)))
    other = await started(store, "other", owner.fence)
    await other.commit(timers_set=(timer(1, 10.0),))
    await started(store, "without", owner.fence)
    assert await store.next_timers([]) == {}
    assert await store.next_timers(["r", "without", "nobody"]) == {"r": 20.0}
    assert await store.next_timers(["other", "r"]) == {"other": 10.0, "r": 20.0}
    await owner.commit(timers_gone=(2,))
    assert await store.next_timers(["r"]) == {"r": 30.0}


async def test_load_gives_the_snapshot_and_what_came_behind_it(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=2)
    await owner.commit(ticks=2, timers_set=(timer(1, 10.0),))
    await owner.commit(ticks=1, snapshot=Snapshot(5, b"five"))
    await owner.commit(ticks=3, events=1)
    await owner.commit(ticks=1, timers_set=(timer(2, 20.0),))
    await do(store, post(event_id="e"))
    loaded = await store.load("r")
    assert loaded is not None
    assert loaded.row == await store.get("r")
    assert loaded.start == b"input of r"
    assert loaded.snapshot == Snapshot(5, b"five")
    assert loaded.chunks == (Chunk(5, 3, 0, 1, b"r:5:0"), Chunk(8, 1, 1, 0, b"r:8:1"))
    assert sorted(loaded.timers, key=lambda timer: timer.seq) == [timer(1, 10.0), timer(2, 20.0)]
    assert [message.data for message in loaded.inbox] == [b"mail"]


async def test_export_gives_everything(store: Store, owner: Owner) -> None:
    stored = await _rich_run(owner)
    assert [chunk.first_tick for chunk in stored.chunks] == [0, 2, 5]
    assert stored.event_ids == ("e1", "e2")
    assert len(stored.inbox) == 2
    assert stored.snapshot is not None


async def _rich_run(owner: Owner) -> StoredRun:
    await owner.commit(ticks=2, events=2, timers_set=(timer(1, 10.0), timer(3, 30.0)))
    await owner.commit(ticks=3, events=0, snapshot=Snapshot(5, b"five"))
    head = {"waiters": b"[1]", "waiting_for": ("A", "m.A"), "idle_since": 4.0, "kept": 1}
    await owner.commit(ticks=1, events=1, head=head)
    await owner.store.apply([post(data=b"1", event_id="e2"), post(data=b"2", event_id="e1")])
    return await owner.everything()


def _renamed(stored: StoredRun, run_id: str) -> StoredRun:
    row = msgspec.structs.replace(stored.row, run_id=run_id)
    return msgspec.structs.replace(stored, row=row)


async def test_what_was_exported_can_be_imported(store: Store, owner: Owner) -> None:
    await _rich_run(owner)
    stored = await store.export("r")
    assert stored is not None
    stored = _renamed(stored, "copy")
    copy = msgspec.structs.replace(
        stored, row=msgspec.structs.replace(stored.row, tags={"a": "1"}, forked_from="r", parent="p", parent_ref=4)
    )
    assert await do(store, ImportRun(copy)) is True
    unowned = msgspec.structs.replace(copy, row=msgspec.structs.replace(copy.row, owner=None))
    assert await exported(store, "copy") == comparable(unowned)
    assert await ids(store, tags={"a": "1"}) == ["copy"]
    assert await ids(store, waiting_for="m.A", parent="p") == ["copy"]
    # The original is as it was, and both go their own ways.
    assert await messages_of(store) == await messages_of(store, "copy") == [b"1", b"2"]
    assert (await do(store, post("copy", event_id="e1"))).outcome == "repeated"
    assert await do(store, ClaimRuns(owner.fence, ("w",), 0.0)) == ["copy"]
    taken = Owner(store, "copy", owner.fence)
    taken.ticks, taken.events = owner.ticks, owner.events
    assert await taken.commit(messages_taken=tuple(message.id for message in await store.inbox("copy", 0))) is True
    assert await messages_of(store) == [b"1", b"2"]
    await do(store, post("copy", b"new"))
    assert await messages_of(store, "copy") == [b"new"]


async def test_an_import_takes_ended_and_pruned_runs(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=4, events=4)
    await owner.commit(ticks=2, events=2, snapshot=Snapshot(4, b"four"), prune=4)
    await owner.end("failed")
    stored = await exported(store)
    assert stored.row.first_tick == 4
    await do(store, PurgeRuns(run_id="r"))
    assert await do(store, ImportRun(stored)) is True
    assert await exported(store) == stored
    assert [chunk.first_cursor for chunk in await store.stream("r", 5, 10)] == [4]


async def test_an_import_never_overwrites(store: Store, owner: Owner) -> None:
    stored = await _rich_run(owner)
    await do(store, start("s", "other"))
    before = await exported(store, "s")
    assert await do(store, ImportRun(_renamed(stored, "s"))) is False
    assert await exported(store, "s") == before


async def test_chunks_are_read_from_any_tick(store: Store, owner: Owner) -> None:
    for ticks in (3, 1, 4):
        await owner.commit(ticks=ticks)

    async def firsts(tick: int, limit: int = 10) -> list[int]:
        return [chunk.first_tick for chunk in await store.chunks("r", tick, limit)]

    assert [await firsts(tick) for tick in range(9)] == [
        [0, 3, 4],
        [0, 3, 4],
        [0, 3, 4],
        [3, 4],
        [4],
        [4],
        [4],
        [4],
        [],
    ]
    assert await firsts(0, limit=2) == [0, 3]
    assert await firsts(2, limit=1) == [0]


async def test_what_was_pruned_is_not_read(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=3, events=1)
    await owner.commit(ticks=2, events=1)
    await owner.commit(ticks=2, events=1, snapshot=Snapshot(5, b"five"), prune=5)
    assert [chunk.first_tick for chunk in await store.chunks("r", 0, 10)] == [5]
    assert [chunk.first_cursor for chunk in await store.stream("r", 0, 10)] == [2]


async def test_streams_are_read_from_any_cursor(store: Store, owner: Owner) -> None:
    for events in (2, 0, 3, 0, 1):
        await owner.commit(ticks=1, events=events)

    async def firsts(cursor: int, limit: int = 10) -> list[int]:
        return [chunk.first_cursor for chunk in await store.stream("r", cursor, limit)]

    assert [await firsts(cursor) for cursor in range(7)] == [
        [0, 2, 5],
        [0, 2, 5],
        [2, 5],
        [2, 5],
        [2, 5],
        [5],
        [],
    ]
    assert await firsts(0, limit=2) == [0, 2]


async def test_a_reader_by_cursor_has_no_gap_and_no_repeat(store: Store, owner: Owner) -> None:
    seen: list[int] = []
    for round_number in range(30):
        await owner.commit(ticks=round_number % 2, events=round_number % 3)
        for chunk in await store.stream("r", len(seen), 2):
            first = chunk.first_cursor
            seen.extend(cursor for cursor in range(first, first + chunk.events) if cursor >= len(seen))
    assert seen == list(range(owner.events))


async def test_an_ended_run_can_be_read(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=2, events=2)
    await owner.end()
    assert len(await store.chunks("r", 0, 10)) == 2
    assert len(await store.stream("r", 0, 10)) == 1
    loaded = await store.load("r")
    assert loaded is not None
    assert len(loaded.chunks) == 2


async def test_counts_tell_runs_by_status_idle_and_owned(store: Store, fence: int) -> None:
    for number, status in enumerate(("completed", "completed", "failed", "cancelled")):
        await (await started(store, f"over{number}", fence)).end(status)
    idle = await started(store, "idle", fence)
    await idle.commit(head={"idle_since": 3.0})
    await store.apply([start("new"), start("newer")])
    counts = await store.counts()
    expected = {"running": 3, "completed": 2, "failed": 1, "cancelled": 1, "idle": 1, "owned": 1}
    assert {name: counts.get(name, 0) for name in expected} == expected


async def test_counts_by_workflow_tell_who_waits_is_parked_or_stuck(store: Store, fence: int) -> None:
    waits = {"idle_since": 3.0, "waiting_for": ("Word",), "waiters": b'[{"event_type": "Word"}]'}
    heads: dict[str, dict[str, Any]] = {
        "a": waits, "b": {"idle_since": 3.0, "parked": "why"}, "c": {"parked": "why"}, "d": {}, "e": waits,
        "f": {"idle_since": 3.0, "error": "returned None"},
    }  # fmt: skip
    for run_id, head in heads.items():
        await (await started(store, run_id, fence)).commit(head=head)
    over = await started(store, "over", fence)
    await over.commit(head={"idle_since": 3.0})
    await over.end("failed")
    await store.apply([start("new", workflow="v")])
    assert await store.held_counts() == {"w": (2, 2, 1)}


async def test_the_size_is_what_is_stored_or_not_known(store: Store) -> None:
    before = await store.size()
    await store.save_document("large", random.Random(1).randbytes(500_000))
    after = await store.size()
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after - before > 400_000


async def test_purging_one_run_leaves_nothing_of_it(store: Store, owner: Owner) -> None:
    await _rich_run(owner)
    await do(store, start("r2", tags={"a": "1"}))
    await owner.end()
    assert await do(store, PurgeRuns(run_id="r")) == 1
    assert await store.get("r") is None
    assert await store.export("r") is None
    assert await store.stream("r", 0, 10) == []
    assert await store.get("r2") is not None
    # The id is free, and nothing of the old run comes back with it.
    await do(store, start("r"))
    stored = await exported(store)
    assert (stored.snapshot, stored.chunks, stored.inbox, stored.timers, stored.event_ids) == (None, (), (), (), ())
    assert (await do(store, post("r", event_id="e1"))).outcome == "posted"


async def test_only_ended_runs_are_purged(store: Store, owner: Owner) -> None:
    assert await do(store, PurgeRuns(run_id="r")) == 0
    assert await do(store, PurgeRuns(run_id="unknown")) == 0
    assert await do(store, PurgeRuns(ended_before=1e9)) == 0
    assert await do(store, PurgeRuns()) == 0
    assert await store.get("r") is not None


async def test_purging_by_age_takes_the_oldest_first_and_leaves_others_alone(store: Store, fence: int) -> None:
    for age in (5.0, 3.0, 4.0, 6.0, 2.0):
        await (await started(store, f"r{age}", fence)).end(at=age)
    await started(store, "running", fence)
    assert await do(store, PurgeRuns(ended_before=5.0, limit=2)) == 2
    assert sorted(await ids(store)) == ["r4.0", "r5.0", "r6.0", "running"]
    assert await do(store, PurgeRuns(ended_before=5.0)) == 1
    assert await do(store, PurgeRuns(ended_before=5.0)) == 0
    assert sorted(await ids(store)) == ["r5.0", "r6.0", "running"]
    # Both conditions, if both are given.
    assert await do(store, PurgeRuns(run_id="r6.0", ended_before=6.0)) == 0
    assert await do(store, PurgeRuns(run_id="r6.0", ended_before=6.5)) == 1
    assert len((await exported(store, "r5.0")).chunks) == 1


@pytest.mark.parametrize("value", [0.0, -1.5, 1_700_000_000.123456, 1e300])
async def test_times_come_back_exactly(store: Store, fence: int, value: float) -> None:
    run = await started(store, "r", fence, at=value)
    await run.commit(head={"updated_at": value, "idle_since": value}, timers_set=(timer(2**62, value),))
    stored = await exported(store)
    assert stored.row.created_at == stored.row.head.updated_at == stored.row.head.idle_since == value
    assert stored.timers == (timer(2**62, value),)


async def test_open_descendants_are_counted_up_to_a_limit(store: OwnedStore, fence: int) -> None:
    """A tree of two children each; below a run that has ended, nothing is counted."""
    families = [("a", "r"), ("aa", "a"), ("ab", "a"), ("ba", "b"), ("bb", "b"), ("x", "other")]
    await do(store, start("r"))
    for run_id, parent in families:
        await do(store, start(run_id, parent=parent, parent_ref=1))
    ends = await started(store, "b", fence, parent="r", parent_ref=2)
    assert await store.descendants("r", 100) == 6
    assert await store.descendants("r", 4) == 4
    assert await store.descendants("a", 100) == 2
    assert await store.descendants("bb", 100) == await store.descendants("nobody", 100) == 0
    await ends.end()
    assert await store.descendants("r", 100) == 3
