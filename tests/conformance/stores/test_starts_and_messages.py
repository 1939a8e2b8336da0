"""What comes from outside: starts and messages."""

from __future__ import annotations

import pytest
from store_samples import Owner, do, ids, messages_of, post, start

from loom.store.operations import ClaimRuns, PostMessage, PurgeRuns, SetTags, Started
from loom.store.ports import Store
from loom.store.records import RunHead, RunRow


async def test_a_start_makes_a_running_row_that_needs_a_worker(store: Store) -> None:
    asked = start("order-17", "orders", at=5.0, tags={"team": "a"}, parent="p", parent_ref=3, downtime=1.5)
    assert await do(store, asked) == Started(True)
    assert await store.get("order-17") == RunRow(
        "order-17",
        "orders",
        5.0,
        RunHead("running", 0, 0, 5.0, needs_worker=True, downtime=1.5),
        tags={"team": "a"},
        parent="p",
        parent_ref=3,
    )
    stored = await store.load("order-17")
    assert stored is not None
    assert stored.start == asked.start
    assert (stored.snapshot, stored.chunks, stored.inbox, stored.timers) == (None, (), (), ())


async def test_a_second_start_changes_nothing_and_tells_what_the_first_was(store: Store) -> None:
    await do(store, start("r", "w", at=1.0, tags={"a": "1"}))
    before = await store.export("r")
    again = start("r", "other", at=7.0, tags={"b": "2"})
    assert await do(store, again) == Started(False, "w", b"input of r")
    assert await store.export("r") == before


async def test_a_start_of_an_ended_run_is_a_repetition_too(store: Store, owner: Owner) -> None:
    await owner.end()
    assert await do(store, start("r")) == Started(False, "w", b"input of r")
    row = await store.get("r")
    assert row is not None
    assert row.head.status == "completed"


async def test_a_start_may_name_its_owner(store: Store, fence: int) -> None:
    await do(store, start("r", owner=fence))
    row = await store.get("r")
    assert row is not None
    assert row.owner == fence


async def test_a_repeated_start_does_not_change_the_owner(store: Store, fence: int) -> None:
    await do(store, start("r"))
    await do(store, start("r", owner=fence))
    row = await store.get("r")
    assert row is not None
    assert row.owner is None


async def test_a_start_may_bring_the_first_mail(store: Store, fence: int) -> None:
    assert await do(store, start("r", owner=fence, message=post("r", b"first", event_id="1"))) == Started(True)
    assert await messages_of(store, "r") == [b"first"]
    assert (await do(store, post("r", event_id="1"))).outcome == "repeated"
    assert await store.owned(fence, with_messages=True) == ["r"]


async def test_a_repeated_start_brings_no_mail(store: Store) -> None:
    await do(store, start("r"))
    again = start("r", "other", message=post("r", b"lost", event_id="1"))
    assert await do(store, again) == Started(False, "w", b"input of r")
    assert await messages_of(store, "r") == []
    assert (await do(store, post("r", event_id="1"))).outcome == "posted"


@pytest.mark.parametrize("run_id", ["", "a b/c?d", "ÄÖ-日本-🧵", "x" * 500, "'; DROP TABLE runs; --"])
async def test_any_text_is_an_id(store: Store, run_id: str) -> None:
    await do(store, start(run_id, workflow=run_id, tags={run_id: run_id}))
    await do(store, post(run_id, event_id=run_id))
    row = await store.get(run_id)
    assert row is not None
    assert (row.run_id, row.workflow, row.tags) == (run_id, run_id, {run_id: run_id})
    assert await messages_of(store, run_id) == [b"mail"]


async def test_mail_is_kept_in_order(store: Store) -> None:
    await do(store, start())
    for data in (b"1", b"2", b"3"):
        posted = await do(store, post(data=data))
        assert posted.outcome == "posted"
    messages = await store.inbox("r", 0)
    assert [entry.data for entry in messages] == [b"1", b"2", b"3"]
    assert [entry.id for entry in messages] == sorted({entry.id for entry in messages})
    assert await store.inbox("r", messages[0].id) == messages[1:]
    assert await store.inbox("r", messages[2].id) == []
    stored = await store.load("r")
    assert stored is not None
    assert list(stored.inbox) == messages


async def test_ids_of_mail_are_never_used_again(store: Store, owner: Owner) -> None:
    await do(store, post(data=b"1"))
    [first] = await store.inbox("r", 0)
    await owner.commit(messages_taken=(first.id,))
    await do(store, post(data=b"2"))
    [second] = await store.inbox("r", first.id)
    assert second.id > first.id > 0


async def test_mail_belongs_to_one_run(store: Store) -> None:
    await store.apply([start("a"), start("b"), post("a", b"for a"), post("b", b"for b")])
    assert await messages_of(store, "a") == [b"for a"]
    assert await messages_of(store, "b") == [b"for b"]


async def test_mail_for_an_unknown_run_is_refused(store: Store) -> None:
    posted = await do(store, post("nobody", event_id="e"))
    assert posted.outcome == "no_run"
    await do(store, start("nobody"))
    assert await messages_of(store, "nobody") == []
    again = await do(store, post("nobody", event_id="e"))
    assert again.outcome == "posted"


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_mail_for_an_ended_run_is_refused_with_its_status(store: Store, owner: Owner, status: str) -> None:
    await owner.end(status)
    posted = await do(store, post(event_id="late"))
    assert (posted.outcome, posted.status) == ("finished", status)
    assert await messages_of(store) == []
    # What was refused is no success when it is repeated.
    again = await do(store, post(event_id="late"))
    assert again.outcome == "finished"


async def test_the_same_event_id_again_is_a_success_that_changes_nothing(store: Store, owner: Owner) -> None:
    await do(store, post(data=b"1", event_id="e"))
    repeated = await do(store, post(data=b"2", event_id="e"))
    assert repeated.outcome == "repeated"
    assert await messages_of(store) == [b"1"]
    [message] = await store.inbox("r", 0)
    await owner.commit(messages_taken=(message.id,))
    taken = await do(store, post(data=b"3", event_id="e"))
    assert taken.outcome == "repeated"
    await owner.end()
    after_end = await do(store, post(data=b"4", event_id="e"))
    assert after_end.outcome == "repeated"
    assert await messages_of(store) == []


async def test_event_ids_of_two_runs_are_apart(store: Store) -> None:
    await store.apply([start("a"), start("b")])
    results = await store.apply([post("a", event_id="e"), post("b", event_id="e"), post("a", event_id="e")])
    assert [result.outcome for result in results] == ["posted", "posted", "repeated"]


async def test_a_limit_counts_kept_events_and_mail(store: Store, owner: Owner) -> None:
    await owner.commit(head={"kept": 2})
    assert (await do(store, post(limit=4))).outcome == "posted"
    assert (await do(store, post(limit=4, event_id="e"))).outcome == "posted"
    full = await do(store, post(limit=4, event_id="f"))
    assert (full.outcome, full.kept) == ("full", 4)
    assert len(await messages_of(store)) == 2
    # A repetition of what was accepted is a success, however full it is; what was refused may come again.
    assert (await do(store, post(limit=4, event_id="e"))).outcome == "repeated"
    assert (await do(store, post(limit=5, event_id="f"))).outcome == "posted"
    # What has no limit always passes: a cancellation, say.
    assert (await do(store, post())).outcome == "posted"


async def test_a_limit_holds_within_a_group(store: Store) -> None:
    await do(store, start())
    results = await store.apply([post(limit=3) for _ in range(5)])
    outcomes = [result.outcome for result in results]
    assert outcomes == ["posted", "posted", "posted", "full", "full"]


async def test_data_comes_back_byte_by_byte(store: Store) -> None:
    every_byte = bytes(range(256)) * 5000
    await do(store, start())
    await do(store, PostMessage("r", every_byte, 1.0))
    assert await messages_of(store) == [every_byte]


async def test_a_failed_run_can_be_opened_again_by_mail(store: Store, owner: Owner) -> None:
    await owner.commit(ticks=2, events=1)
    await owner.end("failed", at=9.0)
    posted = await do(store, post(data=b"retry", reopens=True))
    assert posted.outcome == "posted"
    row = await store.get("r")
    assert row is not None
    assert (row.head.status, row.ended_at, row.owner, row.head.needs_worker) == ("running", None, None, True)
    assert (row.head.ticks, row.head.events) == (3, 1)
    assert await messages_of(store) == [b"retry"]
    assert await do(store, PurgeRuns(ended_before=1e9)) == 0
    assert await do(store, ClaimRuns(owner.fence, ("w",), 0.0)) == ["r"]
    [message] = await store.inbox("r", 0)
    assert await owner.commit(messages_taken=(message.id,)) is True
    again = await do(store, post(reopens=True))
    assert (again.outcome, again.status) == ("finished", "running")


async def test_mail_that_a_failed_run_has_not_taken_waits_for_its_retry(store: Store, owner: Owner) -> None:
    await do(store, post(data=b"taken", event_id="1"))
    await do(store, post(data=b"came too late", event_id="2"))
    taken, _ = await store.inbox("r", 0)
    await owner.commit(head={"status": "failed"}, messages_taken=(taken.id,))
    assert await do(store, ClaimRuns(owner.fence, ("w",), 1e9)) == [], "a failed run is nobody's work"
    assert (await do(store, post(event_id="2"))).outcome == "repeated"
    assert (await do(store, post(data=b"retry", reopens=True))).outcome == "posted"
    assert await messages_of(store) == [b"came too late", b"retry"]


@pytest.mark.parametrize("status", ["completed", "cancelled"])
async def test_mail_of_a_run_that_cannot_be_retried_is_gone(store: Store, owner: Owner, status: str) -> None:
    await do(store, post(data=b"came too late"))
    await owner.commit(head={"status": status})
    assert await messages_of(store) == []


async def test_purging_a_failed_run_takes_its_mail_along(store: Store, owner: Owner) -> None:
    await do(store, post(data=b"came too late"))
    await owner.end("failed", at=9.0)
    assert await do(store, PurgeRuns(ended_before=1e9)) == 1
    assert await messages_of(store) == []


@pytest.mark.parametrize("status", ["running", "completed", "cancelled"])
async def test_only_failed_runs_are_opened_again(store: Store, owner: Owner, status: str) -> None:
    await owner.commit(head={"status": status})
    posted = await do(store, post(reopens=True))
    assert (posted.outcome, posted.status) == ("finished", status)
    assert (await do(store, post("nobody", reopens=True))).outcome == "no_run"
    assert await messages_of(store) == []
    row = await store.get("r")
    assert row is not None
    assert row.head.status == status


async def test_tags_are_replaced_but_for_kept_ones(store: Store) -> None:
    await store.apply([start("a", tags={"handler": "h", "team": "x"}), start("b", tags={"team": "x"})])
    assert await do(store, SetTags("a", {"team": "y", "env": ""}, keeps=("handler",)))
    assert not await do(store, SetTags("none", {"team": "y"}))
    row = await store.get("a")
    assert row is not None
    assert row.tags == {"handler": "h", "team": "y", "env": ""}
    assert await ids(store, tags={"team": "x"}) == ["b"]
    assert await ids(store, tags={"team": "y", "env": ""}) == await ids(store, tags={"handler": "h"}) == ["a"]
    assert await do(store, SetTags("a", {}))
    assert await ids(store, tags={"handler": "h"}) == []
