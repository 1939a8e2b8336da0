"""Who may write a run: claims, releases, fences, leases, parking."""

from __future__ import annotations

import asyncio

from applicable import not_on
from store_databases import Database
from store_samples import Owner, do, exported, ids, post, start, started, timer

from loom.store.operations import ClaimRun, ClaimRuns, ParkRun, ReleaseRun
from loom.store.ports import Store


async def owner_of(store: Store, run_id: str = "r") -> int | None:
    row = await store.get(run_id)
    assert row is not None
    return row.owner


# --- one run ---------------------------------------------------------------------------------------------------------


async def test_a_claim_takes_a_run_that_nobody_owns(store: Store, fence: int) -> None:
    await do(store, start())
    assert await do(store, ClaimRun("r", fence)) is True
    assert await owner_of(store) == fence
    assert await do(store, ClaimRun("r", fence)) is True
    assert await Owner(store, "r", fence).commit() is True


async def test_a_claim_of_what_is_owned_ended_or_unknown_fails(store: Store, fence: int) -> None:
    over = await started(store, "over", fence)
    await over.end()
    await started(store, "owned", fence)
    assert await do(store, ClaimRun("owned", fence + 1000)) is False
    assert await do(store, ClaimRun("over", fence)) is False
    assert await do(store, ClaimRun("unknown", fence)) is False
    assert await owner_of(store, "owned") == fence
    assert await owner_of(store, "over") is None


async def test_a_release_gives_a_run_up(store: Store, owner: Owner) -> None:
    await owner.commit()
    assert await do(store, ReleaseRun("r", owner.fence)) is True
    assert await owner_of(store) is None
    assert await owner.commit() is False


async def test_mail_holds_a_run_back_from_release(store: Store, owner: Owner) -> None:
    await do(store, post())
    assert await do(store, ReleaseRun("r", owner.fence)) is False
    assert await owner_of(store) == owner.fence
    [message] = await store.inbox("r", 0)
    await owner.commit(messages_taken=(message.id,))
    assert await do(store, ReleaseRun("r", owner.fence)) is True


async def test_a_member_is_told_what_it_owns_and_what_of_it_has_mail(store: Store, fence: int) -> None:
    await started(store, "quiet", fence)
    await started(store, "asked", fence)
    await do(store, start("free"))
    for run_id in ("asked", "free"):
        await do(store, post(run_id))
        await do(store, post(run_id))
    assert sorted(await store.owned(fence)) == ["asked", "quiet"]
    assert await store.owned(fence, with_messages=True) == ["asked"]
    assert await store.owned(fence + 1000, with_messages=True) == []


async def test_release_and_mail_in_one_group_meet_in_their_order(store: Store, owner: Owner, fence: int) -> None:
    await owner.commit()
    held, _ = reversed(await store.apply([post(), ReleaseRun("r", fence)]))
    assert held is False
    other = await started(store, "s", fence)
    await other.commit()
    released, posted = await store.apply([ReleaseRun("s", fence), post("s")])
    assert released is True
    assert posted.outcome == "posted"
    # Released first, then mail: somebody must find it.
    assert await do(store, ClaimRuns(fence, ("w",), 0.0)) == ["s"]


async def test_a_release_of_what_one_does_not_own_changes_nothing(store: Store, owner: Owner) -> None:
    assert await do(store, ReleaseRun("r", owner.fence + 1000)) is True
    assert await owner_of(store) == owner.fence
    await owner.end()
    assert await do(store, ReleaseRun("r", owner.fence)) is True
    assert await do(store, ReleaseRun("unknown", owner.fence)) is True


async def test_parking_notes_the_reason_and_gives_the_run_up(store: Store, owner: Owner, fence: int) -> None:
    await owner.commit(timers_set=(timer(1, 5.0),), head={"needs_worker": True})
    await do(store, post())
    before = await exported(store)
    assert await do(store, ParkRun("r", fence, "step 'a' is missing")) is True
    after = await exported(store)
    assert (after.row.owner, after.row.head.parked) == (None, "step 'a' is missing")
    assert (after.inbox, after.timers, after.chunks) == (before.inbox, before.timers, before.chunks)
    assert await do(store, ParkRun("r", fence, "again")) is False
    assert await do(store, ParkRun("unknown", fence, "why")) is False
    row = await store.get("r")
    assert row is not None
    assert row.head.parked == "step 'a' is missing"


async def test_a_parked_run_is_taken_only_by_name(store: Store, owner: Owner, fence: int) -> None:
    await owner.commit(timers_set=(timer(1, 5.0),), head={"needs_worker": True})
    await store.apply([post(), ParkRun("r", fence, "why")])
    assert await do(store, ClaimRuns(fence, ("w",), 1e9)) == []
    assert await store.timers_due(("w",), 1e9, 10) == []
    assert await do(store, ClaimRun("r", fence)) is True
    again = Owner(store, "r", fence)
    again.ticks = owner.ticks
    await again.commit()
    assert await ids(store, parked=True) == []


async def test_a_member_can_ask_what_it_owns(store: Store, fence: int) -> None:
    assert await store.owned(fence) == []
    for run_id in ("b", "a", "released", "over"):
        await started(store, run_id, fence)
    await store.apply([start("free"), ReleaseRun("released", fence)])
    await Owner(store, "over", fence).end()
    assert sorted(await store.owned(fence)) == ["a", "b"]
    assert await store.owned(fence + 1000) == []


# --- many runs -------------------------------------------------------------------------------------------------------


async def test_claims_find_work_mail_and_due_timers(store: Store, fence: int) -> None:
    for run_id in ("resting", "mail", "due", "not due", "work", "owned", "over"):
        run = await started(store, run_id, fence)
        due = {"due": 10.0, "not due": 10.5}.get(run_id)
        timers = () if due is None else (timer(1, 99.0), timer(2, due))
        await run.commit(head={"needs_worker": run_id in ("work", "owned")}, timers_set=timers)
        if run_id == "over":
            await run.end()
        elif run_id != "owned":
            await do(store, ReleaseRun(run_id, fence))
    await do(store, post("mail"))
    found = await do(store, ClaimRuns(fence, ("w",), 10.0))
    assert sorted(found) == ["due", "mail", "work"]
    assert [await owner_of(store, run_id) for run_id in ("due", "mail", "work")] == [fence] * 3
    assert await owner_of(store, "resting") is None
    assert await do(store, ClaimRuns(fence, ("w",), 10.0)) == []
    assert await do(store, ClaimRuns(fence, ("w",), 10.5)) == ["not due"]


async def test_claims_keep_to_their_workflows(store: Store, fence: int) -> None:
    await store.apply([start("a", "one"), start("b", "two"), start("c", "three")])
    assert await do(store, ClaimRuns(fence, (), 0.0)) == []
    assert sorted(await do(store, ClaimRuns(fence, ("one", "three", "none"), 0.0))) == ["a", "c"]
    assert await owner_of(store, "b") is None


async def test_claims_take_the_longest_waiting_first_and_keep_to_their_limit(store: Store, fence: int) -> None:
    await store.apply([start(f"r{age}", at=age) for age in (5.0, 1.0, 3.0, 2.0, 4.0)])
    assert await do(store, ClaimRuns(fence, ("w",), 0.0, limit=2)) == ["r1.0", "r2.0"]
    assert await do(store, ClaimRuns(fence, ("w",), 0.0, limit=2)) == ["r3.0", "r4.0"]
    assert await do(store, ClaimRuns(fence, ("w",), 0.0, limit=2)) == ["r5.0"]


async def test_claims_at_the_same_time_are_disjoint(database: Database, store: Store, fence: int) -> None:
    await store.apply([start(f"r{number}") for number in range(60)])
    stores = [store, *[await database.open() for _ in range(2)]]
    claims = [do(one, ClaimRuns(fence, ("w",), 0.0, limit=7)) for one in stores for _ in range(4)]
    found = [run_id for claimed in await asyncio.gather(*claims) for run_id in claimed]
    assert len(found) == len(set(found))
    while more := await do(store, ClaimRuns(fence, ("w",), 0.0)):
        found.extend(more)
    assert sorted(found) == sorted(f"r{number}" for number in range(60))


async def test_timers_due_are_those_of_runs_that_nobody_has(store: Store, fence: int) -> None:
    for run_id, dues in {"a": (30.0, 20.0), "b": (10.0,), "late": (99.0,), "owned": (5.0,), "none": ()}.items():
        run = await started(store, run_id, fence, workflow="x" if run_id == "late" else "w")
        await run.commit(timers_set=tuple(timer(seq, due) for seq, due in enumerate(dues)))
        if run_id != "owned":
            await do(store, ReleaseRun(run_id, fence))
    assert await store.timers_due(("w", "x"), 50.0, 10) == [("b", 10.0), ("a", 20.0)]
    assert await store.timers_due(("w", "x"), 15.0, 10) == [("b", 10.0)]
    assert await store.timers_due(("w", "x"), 100.0, 2) == [("b", 10.0), ("a", 20.0)]
    assert await store.timers_due(("x",), 100.0, 10) == [("late", 99.0)]
    assert await store.timers_due((), 100.0, 10) == []


# --- members ---------------------------------------------------------------------------------------------------------


async def test_fences_grow_also_across_restarts(database: Database) -> None:
    fences = []
    for _ in range(3):
        store = await database.open()
        fences.append((await store.join("same name", 60.0)).fence)
        await store.close()
    assert fences == sorted(set(fences))


async def test_who_leaves_gives_up_its_runs(database: Database) -> None:
    first = await database.open()
    old = (await first.join("first", 60.0)).fence
    await started(first, "r", old)
    await first.close()
    second = await database.open()
    new = (await second.join("second", 60.0)).fence
    assert await owner_of(second) is None
    assert await do(second, ClaimRuns(new, ("w",), 0.0)) == ["r"]
    assert await Owner(second, "r", old).commit() is False
    assert await Owner(second, "r", new).commit() is True


async def test_a_living_member_keeps_what_it_has(database: Database, store: Store, fence: int) -> None:
    await started(store, "r", fence)
    assert await store.beat(fence, 60.0) is True
    assert await owner_of(store) == fence
    if database.many_members:
        other = await database.open()
        member = await other.join("other", 60.0)
        assert member.fence > fence
        assert await other.beat(member.fence, 60.0) is True
        assert await owner_of(other) == fence


@not_on("sqlite", reason="One member at a time: its lock, not its lease, is what counts.")
async def test_a_member_that_sleeps_past_its_lease_cannot_write_what_another_took(database: Database) -> None:
    sleeper, waker = await database.open(), await database.open()
    old = (await sleeper.join("same name", 60.0)).fence
    new = (await waker.join("same name", 60.0)).fence
    run = await started(sleeper, "r", old)
    await run.commit()
    assert await do(waker, ClaimRun("r", new)) is False
    await database.pass_time(50.0)
    assert await waker.beat(new, 60.0) is True
    assert await do(waker, ClaimRun("r", new)) is False, "its lease is not over"
    await database.pass_time(20.0)
    assert await waker.beat(new, 60.0) is True
    assert await owner_of(waker) is None
    assert await do(waker, ClaimRun("r", new)) is True
    before = await exported(waker)
    assert await run.commit() is False
    assert await do(sleeper, ReleaseRun("r", old)) is True
    assert await do(sleeper, ParkRun("r", old, "late")) is False
    assert await exported(waker) == before
    assert await sleeper.beat(old, 60.0) is False
    again = (await sleeper.join("same name", 60.0)).fence
    assert again > new


@not_on("sqlite", reason="One member at a time: its lock, not its lease, is what counts.")
async def test_what_a_dead_member_still_takes_does_not_stay_with_it(database: Database) -> None:
    sleeper, waker = await database.open(), await database.open()
    old = (await sleeper.join("sleeper", 10.0)).fence
    new = (await waker.join("waker", 60.0)).fence
    await database.pass_time(20.0)
    await waker.beat(new, 60.0)
    await started(sleeper, "r", old)
    await do(sleeper, start("s"))
    await do(sleeper, ClaimRun("s", old))
    await waker.beat(new, 60.0)
    assert await owner_of(waker) is None
    assert await owner_of(waker, "s") is None


async def test_downtime_grows_only_while_nobody_lives(database: Database) -> None:
    store = await database.open()
    first = await store.join("first", 60.0)
    assert first.downtime == 0.0
    await store.close()
    await database.pass_time(0.3)
    store = await database.open()
    second = await store.join("second", 60.0)
    assert second.downtime >= 0.29
    if database.many_members:
        await database.pass_time(0.1)
        other = await database.open()
        assert (await other.join("third", 60.0)).downtime == second.downtime


async def test_the_member_that_owns_a_run_is_known_by_its_name(store: Store) -> None:
    fence = (await store.join("worker-1", 10.0)).fence
    await do(store, start())
    row = await store.get("r")
    assert row is not None
    assert await store.holder(row) is None
    await do(store, ClaimRun("r", fence))
    row = await store.get("r")
    assert row is not None
    holder = await store.holder(row)
    assert holder is not None
    assert (holder.name, holder.alive) == ("worker-1", True)


async def test_members_are_listed_with_what_they_own(store: Store, fence: int) -> None:
    await store.apply([start("a", owner=fence), start("b", owner=fence), start("c")])
    [member] = [each for each in await store.members() if each.fence == fence]
    assert (member.fence, member.alive, member.owned) == (fence, True, 2)
