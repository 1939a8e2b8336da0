"""What the owner of a run writes: `CommitRun`, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from store_samples import Owner, do, exported, ids, messages_of, post, start, started, timer

from loom.store.operations import ParkRun
from loom.store.ports import Store
from loom.store.records import Chunk, RunHead, Snapshot


async def test_a_commit_writes_all_its_parts(store: Store, owner: Owner) -> None:
    await store.apply([post(data=b"1"), post(data=b"2")])
    first, second = await store.inbox("r", 0)
    head: dict[str, Any] = {
        "updated_at": 4.5,
        "idle_since": 4.25,
        "needs_worker": True,
        "waiters": b'[{"step": "s"}]',
        "waiting_for": ("Approval", "mod.Approval"),
        "kept": 7,
        "paused": True,
        "parked": "no code",
        "error": "boom",
        "downtime": 2.5,
    }
    done = await owner.commit(
        ticks=2,
        events=3,
        head=head,
        timers_set=(timer(1, 50.0), timer(2, 60.5)),
        messages_taken=(first.id,),
        snapshot=Snapshot(2, b"state"),
    )
    assert done is True
    stored = await exported(store)
    assert stored.row.head == RunHead("running", 2, 3, **head)
    assert stored.row.owner == owner.fence
    assert stored.chunks == (Chunk(0, 2, 0, 3, b"r:0:0"),)
    assert stored.timers == (timer(1, 50.0), timer(2, 60.5))
    assert stored.snapshot == Snapshot(2, b"state")
    assert await store.inbox("r", 0) == [second]


async def test_a_commit_without_a_chunk_writes_the_head_alone(store: Store, owner: Owner) -> None:
    await owner.commit()
    assert await owner.commit(ticks=0, head={"idle_since": 3.0}, chunk=None) is True
    stored = await exported(store)
    assert len(stored.chunks) == 1
    assert stored.row.head.idle_since == 3.0


async def test_waiting_is_left_alone_unless_it_changed(store: Store, owner: Owner) -> None:
    await owner.commit(head={"waiters": b"[1]", "waiting_for": ("A",)})
    await owner.commit(waiting_changed=False)
    row = await store.get("r")
    assert row is not None
    assert (row.head.waiters, row.head.waiting_for) == (b"[1]", ("A",))
    assert await ids(store, waiting_for="A") == ["r"]
    await owner.commit(head={"waiters": b"[2]", "waiting_for": ("B",)})
    assert await ids(store, waiting_for="A") == []
    assert await ids(store, waiting_for="B") == ["r"]
    await owner.commit()
    assert await ids(store, waiting_for="B") == []


async def test_timers_are_added_replaced_and_removed(store: Store, owner: Owner) -> None:
    await owner.commit(timers_set=(timer(1, 10.0), timer(2, 20.0), timer(3, 30.0)))
    await owner.commit(timers_set=(timer(2, 25.0), timer(4, 40.0)), timers_gone=(1, 99))
    assert (await exported(store)).timers == (timer(2, 25.0), timer(3, 30.0), timer(4, 40.0))


async def test_a_timer_that_one_commit_sets_and_removes_is_gone(store: Store, owner: Owner) -> None:
    """As when a run that was taken up arms its timers anew, and one of them fires in the same batch."""
    await owner.commit(timers_set=(timer(1, 10.0),))
    await owner.commit(timers_set=(timer(1, 10.0), timer(2, 20.0)), timers_gone=(1,))
    assert (await exported(store)).timers == (timer(2, 20.0),)


async def test_a_snapshot_replaces_the_one_before_and_stays_otherwise(store: Store, owner: Owner) -> None:
    await owner.commit(snapshot=Snapshot(1, b"one"))
    await owner.commit()
    assert (await exported(store)).snapshot == Snapshot(1, b"one")
    await owner.commit(snapshot=Snapshot(3, b"three"))
    assert (await exported(store)).snapshot == Snapshot(3, b"three")


async def test_only_mail_of_the_run_itself_is_taken(store: Store, owner: Owner) -> None:
    await store.apply([start("other"), post("other", b"keep")])
    [message] = await store.inbox("other", 0)
    await owner.commit(messages_taken=(message.id, 4711))
    assert await messages_of(store, "other") == [b"keep"]


async def test_sent_starts_and_mail_come_with_the_commit(store: Store, owner: Owner) -> None:
    await do(store, start("friend"))
    sent = (start("child", "w2", at=3.0, parent="r", parent_ref=5), post("friend", b"hello"), post("child", b"first"))
    assert await owner.commit(sent=sent) is True
    child = await store.get("child")
    assert child is not None
    assert (child.workflow, child.parent, child.parent_ref, child.owner) == ("w2", "r", 5, None)
    assert await messages_of(store, "friend") == [b"hello"]
    assert await messages_of(store, "child") == [b"first"]


async def test_refusals_of_what_is_sent_are_ignored(store: Store, owner: Owner) -> None:
    over = await started(store, "over", owner.fence)
    await over.end()
    sent = (post("nobody"), post("over"), start("over", "elsewhere"), post("r", b"to myself"))
    assert await owner.commit(sent=sent) is True
    assert await messages_of(store) == [b"to myself"]
    row = await store.get("over")
    assert row is not None
    assert row.workflow == "w"


@pytest.mark.parametrize("owned_by", ["nobody", "somebody else", "no run"])
async def test_a_fenced_commit_writes_nothing(store: Store, owner: Owner, owned_by: str) -> None:
    await owner.commit(timers_set=(timer(1, 10.0),), snapshot=Snapshot(1, b"one"))
    await store.apply([start("friend"), post(data=b"stays")])
    [message] = await store.inbox("r", 0)
    if owned_by == "nobody":
        await do(store, ParkRun("r", owner.fence, "gone"))
    run_id = "missing" if owned_by == "no run" else "r"
    fence = owner.fence + 1000 if owned_by == "somebody else" else owner.fence
    before = await exported(store)
    late = Owner(store, run_id, fence)
    late.ticks, late.events = owner.ticks, owner.events
    done = await late.commit(
        ticks=2,
        events=1,
        head={"status": "completed", "waiting_for": ("A",)},
        timers_set=(timer(2, 20.0),),
        timers_gone=(1,),
        messages_taken=(message.id,),
        snapshot=Snapshot(3, b"late"),
        sent=(start("child"), post("friend")),
        prune=3,
    )
    assert done is False
    assert await exported(store) == before
    assert await store.get("child") is None
    assert await store.get("missing") is None
    assert await messages_of(store, "friend") == []
    assert await ids(store, waiting_for="A") == []


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_the_end_clears_owner_timers_waiting_and_mail(store: Store, owner: Owner, status: str) -> None:
    await owner.commit(head={"waiters": b"[1]", "waiting_for": ("A",)}, timers_set=(timer(1, 10.0),))
    await do(store, post())
    head = {"status": status, "updated_at": 8.0, "error": "why"}
    assert await owner.commit(head=head, waiting_changed=False, timers_set=(timer(2, 20.0),)) is True
    stored = await exported(store)
    row = stored.row
    assert (row.head.status, row.ended_at, row.owner, row.head.error) == (status, 8.0, None, "why")
    assert stored.timers == ()
    assert len(stored.inbox) == (1 if status == "failed" else 0), "mail of a failed run waits for a retry"
    assert (row.head.waiters, row.head.waiting_for) == (b"[]", ())
    assert await ids(store, waiting_for="A") == []
    assert await store.timers_due(("w",), 1e9, 10) == []
    assert len(stored.chunks) == 2


async def test_nobody_writes_to_an_ended_run(store: Store, owner: Owner) -> None:
    await owner.end()
    before = await exported(store)
    assert await owner.commit() is False
    assert await exported(store) == before


async def test_a_commit_that_is_written_again_is_not_doubled(store: Store, owner: Owner) -> None:
    """Nobody may know whether a commit was written when the connection broke. It comes once more, then."""
    operation = owner.next(ticks=2, events=1, sent=(post("friend"),))
    await do(store, start("friend"))
    await do(store, operation)
    before = await exported(store)
    try:
        again = await do(store, operation)
    except Exception:  # noqa: BLE001 - how it is refused is the store's choice
        again = False
    assert again is False
    assert await exported(store) == before
    assert await messages_of(store, "friend") == [b"mail"]


async def test_chunks_may_lack_ticks_or_events(store: Store, owner: Owner) -> None:
    """A commit whose commands did not fit is followed by one without ticks."""
    await owner.commit(ticks=0, events=2)
    await owner.commit(ticks=2, events=1)
    await owner.commit(ticks=0, events=2)
    await owner.commit(ticks=3, events=0)
    await owner.commit(ticks=0, events=1)
    await owner.commit(ticks=1, events=1)
    spans = [(chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events) for chunk in await _all(store)]
    assert spans == [(0, 0, 0, 2), (0, 2, 2, 1), (2, 0, 3, 2), (2, 3, 5, 0), (5, 0, 5, 1), (5, 1, 6, 1)]


async def _all(store: Store) -> tuple[Chunk, ...]:
    return (await exported(store)).chunks


async def test_pruning_deletes_what_lies_wholly_within_the_first_ticks(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=2)
    await owner.commit(ticks=3)
    await owner.commit(ticks=2, snapshot=Snapshot(6, b"six"), prune=6)
    stored = await exported(store)
    assert [chunk.first_tick for chunk in stored.chunks] == [5]
    assert stored.row.first_tick == 5
    assert stored.row.head.ticks == 7
    await owner.commit(ticks=1, snapshot=Snapshot(8, b"eight"), prune=6)
    stored = await exported(store)
    assert [chunk.first_tick for chunk in stored.chunks] == [5, 7]
    assert stored.row.first_tick == 5
    await owner.commit(ticks=1, snapshot=Snapshot(9, b"nine"), prune=8)
    stored = await exported(store)
    assert [chunk.first_tick for chunk in stored.chunks] == [8]
    assert stored.row.first_tick == 8


async def test_nothing_is_pruned_by_itself(store: Store, owner: Owner) -> None:
    await owner.commit(snapshot=Snapshot(1, b"one"))
    await owner.commit()
    await owner.commit(snapshot=Snapshot(3, b"three"))
    stored = await exported(store)
    assert [chunk.first_tick for chunk in stored.chunks] == [0, 1, 2]
    assert stored.row.first_tick == 0
