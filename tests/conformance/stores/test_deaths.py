"""What died with a member: marks, probation, acquittal, poison."""

from __future__ import annotations

from applicable import not_on
from store_databases import Database
from store_samples import Owner, do, post, started

from loom.store.deaths import FORGOTTEN_AFTER_S, Deaths, after_death
from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    ForgetDeaths,
    ParkRun,
    PurgeRuns,
    ReleaseRun,
    TryRun,
)
from loom.store.ports import Store

NAMES = ("w",)


class Members:
    """Members of one database that die one after the other."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store: Store | None = None

    async def next(self) -> tuple[Store, int]:
        """The next member; the one before has died."""
        if self.database.many_members:
            self.store = self.store or await self.database.open()
            # Its lease is over as soon as it is there.
            await self.database.pass_time(0.02)
            member = await self.store.join("m", 0.01)
        else:
            # A store that is not closed leaves its place, as a process does that dies, without what it owns.
            if self.store is not None:
                lock = getattr(self.store, "_lock", None) or self.store.inner._lock  # type: ignore[attr-defined]
                lock.release()
            self.store = await self.database.open()
            member = await self.store.join("m", 60.0)
        return self.store, member.fence


async def deaths(store: Store, run_id: str = "r") -> tuple[int, int, bool] | None:
    stored = await store.load(run_id)
    assert stored is not None
    found = stored.deaths
    return None if found is None else (found.marks, found.own, found.suspect)


async def at_work(store: Store, fence: int, run_id: str) -> Owner:
    owner = await started(store, run_id, fence)
    await owner.commit(head={"needs_worker": True, "updated_at": 5.0})
    return owner


async def test_what_was_at_work_is_marked_and_what_waits_is_not(database: Database) -> None:
    members = Members(database)
    store, fence = await members.next()
    for run_id in ("busy", "over", "given-up"):
        await at_work(store, fence, run_id)
    await started(store, "new", fence)
    await (await started(store, "idle", fence)).commit()
    mailed = await started(store, "mailed", fence)
    await mailed.commit()
    await do(store, post("mailed"))
    await do(store, ReleaseRun("given-up", fence))
    over = Owner(store, "over", fence)
    over.ticks = 1
    await over.end()
    store, fence = await members.next()
    marked = {run_id: await deaths(store, run_id) for run_id in ("busy", "new", "mailed", "idle", "over", "given-up")}
    one = (1, 0, False)
    assert marked == {"busy": one, "new": one, "mailed": one, "idle": None, "over": None, "given-up": None}
    # A first death holds nothing up.
    found = await do(store, ClaimRuns(fence, NAMES, 0.0))
    assert sorted(found) == ["busy", "given-up", "mailed", "new"]
    assert await do(store, TryRun(fence, NAMES, 0.0)) == []


async def test_a_member_that_leaves_in_order_marks_nothing(database: Database) -> None:
    store = await database.open()
    fence = (await store.join("m", 60.0)).fence
    await at_work(store, fence, "r")
    await store.close()
    store = await database.open()
    await store.join("m", 60.0)
    assert await deaths(store) is None


async def test_from_the_second_death_on_runs_are_tried_one_at_a_time(database: Database) -> None:
    members = Members(database)
    store, fence = await members.next()
    for run_id in ("a", "b"):
        await at_work(store, fence, run_id)
    store, fence = await members.next()
    assert sorted(await do(store, ClaimRuns(fence, NAMES, 0.0))) == ["a", "b"]
    store, fence = await members.next()
    assert await deaths(store, "a") == await deaths(store, "b") == (2, 0, True)
    assert await do(store, ClaimRuns(fence, NAMES, 0.0)) == []
    assert await do(store, ClaimRun("a", fence)) is False
    assert await do(store, TryRun(fence, ("other",), 0.0)) == []
    now = database.now()
    [tried] = await do(store, TryRun(fence, NAMES, now))
    assert await do(store, TryRun(fence, NAMES, now)) == []
    other = "b" if tried == "a" else "a"
    assert await do(store, AcquitRun(other, fence, now)) is False
    assert await do(store, AcquitRun(tried, fence, now)) is True
    assert await do(store, TryRun(fence, NAMES, now)) == [other]
    # It dies with both at work: the death counts for the one on probation, and both are suspected again.
    store, fence = await members.next()
    assert await deaths(store, tried) == (3, 0, True)
    assert await deaths(store, other) == (3, 1, True)
    assert await do(store, TryRun(fence, NAMES, now)) == [other], "what most deaths count for comes first"


async def test_a_result_forgets_and_a_cancel_may_take_a_suspect(database: Database) -> None:
    members = Members(database)
    store, fence = await members.next()
    await at_work(store, fence, "r")
    store, fence = await members.next()
    await do(store, ClaimRuns(fence, NAMES, 0.0))
    store, fence = await members.next()
    assert await do(store, ClaimRun("r", fence)) is False
    assert await do(store, ClaimRun("r", fence, suspected=True)) is True
    assert await do(store, ForgetDeaths("r", fence)) == 1
    assert await do(store, ForgetDeaths("r", fence)) == 0
    assert await deaths(store) is None


async def test_a_poison_explains_the_deaths_of_others_and_can_be_let_go(database: Database) -> None:
    members = Members(database)
    store, fence = await members.next()
    for run_id in ("poison", "other"):
        await at_work(store, fence, run_id)
    for _ in range(3):
        store, fence = await members.next()
        await do(store, ClaimRuns(fence, NAMES, 0.0))
    store, fence = await members.next()
    await do(store, TryRun(fence, NAMES, database.now()))
    [poison] = await store.owned(fence)
    other = "other" if poison == "poison" else "poison"
    store, fence = await members.next()
    assert await deaths(store, poison) == (3, 1, True)
    assert await do(store, TryRun(fence, NAMES, database.now())) == [poison]
    assert await do(store, ParkRun(poison, fence, "poison", is_poison=True)) is True
    assert await deaths(store, poison) == (3, 1, False)
    assert await deaths(store, other) is None
    assert await do(store, ClaimRuns(fence, NAMES, 0.0)) == [other]
    assert await do(store, ClaimRun(poison, fence)) is True
    # It is parked still: a death of who only looks at it changes nothing.
    store, fence = await members.next()
    assert await deaths(store, poison) == (3, 1, False)
    assert await do(store, ClaimRun(poison, fence)) is True
    assert await do(store, ForgetDeaths(poison, fence, unparks=True)) == 1
    row = await store.get(poison)
    assert row is not None
    assert (row.head.parked, row.head.needs_worker) == (None, True)
    # Its owner may write it: nothing that the store remembers of it is out of date.
    owner = Owner(store, poison, fence)
    owner.ticks = 1
    assert await owner.end() is True
    assert await do(store, PurgeRuns(poison)) == 1


@not_on("sqlite", reason="One member at a time: its lock, not its lease, is what counts.")
async def test_a_member_that_lives_after_all_has_killed_nobody(database: Database) -> None:
    members = Members(database)
    store, slept = await members.next()
    await at_work(store, slept, "r")
    store, fence = await members.next()
    assert await deaths(store) == (1, 0, False)
    assert await do(store, ForgetDeaths(fence=fence)) == 0
    assert await do(store, ForgetDeaths(fence=slept)) == 1
    assert await deaths(store) is None


def test_a_death_long_after_the_last_one_begins_anew() -> None:
    known = Deaths(4, 3, 1000.0, suspect=True, trial=7)
    assert after_death(known, 1000.0 + FORGOTTEN_AFTER_S) == Deaths(5, 4, 1000.0 + FORGOTTEN_AFTER_S, suspect=True)
    assert after_death(known, 1001.0 + FORGOTTEN_AFTER_S) == Deaths(1, 0, 1001.0 + FORGOTTEN_AFTER_S)
