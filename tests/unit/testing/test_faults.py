"""A store that goes wrong on purpose, and by its seed alone."""

from __future__ import annotations

import asyncio

import pytest

from loom.store.committer import Committer
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import Started, StartRun
from loom.store.ports import Store
from loom.testing import run_virtual
from loom.testing.faults import Crash, FaultPlan, FaultyStore


async def faulty(plan: FaultPlan, database: MemoryDatabase | None = None) -> FaultyStore:
    store = FaultyStore(MemoryStore(database), plan)
    await store.open()
    return store


def start(number: int = 0) -> StartRun:
    return StartRun(f"r{number}", "w", b"", float(number))


async def test_without_faults_it_is_the_store_within() -> None:
    store: Store = await faulty(FaultPlan())
    heard: list[str] = []
    store.on_notification = heard.extend
    assert await store.apply([start()]) == [Started(True)]
    assert heard == ["r0"]
    assert await store.get("r0") is not None
    assert (await store.counts())["running"] == 1


async def test_a_write_that_fails_before_has_not_happened() -> None:
    store = await faulty(FaultPlan(fail_before=1.0))
    with pytest.raises(StoreUnavailable) as caught:
        await store.apply([start()])
    assert not caught.value.outcome_unknown
    assert await store.get("r0") is None
    assert store.injected["fail_before"] == 1


async def test_a_write_that_fails_after_has_happened() -> None:
    store = await faulty(FaultPlan(fail_after=1.0))
    with pytest.raises(StoreUnavailable) as caught:
        await store.apply([start()])
    assert caught.value.outcome_unknown
    assert await store.get("r0") is not None


def outcomes(seed: int) -> list[tuple[float, str]]:
    """What ten writes come to, and when."""
    plan = FaultPlan(seed=seed, fail_before=0.3, fail_after=0.3, slow=0.5)

    async def main() -> list[tuple[float, str]]:
        store = await faulty(plan)
        seen: list[tuple[float, str]] = []
        for number in range(10):
            try:
                await store.apply([start(number)])
                result = "written"
            except StoreUnavailable as error:
                result = str(error)
            seen.append((asyncio.get_running_loop().time(), result))
        return seen

    return run_virtual(main())


def test_the_same_seed_goes_wrong_in_the_same_way() -> None:
    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_slow_writes_keep_their_order() -> None:
    async def main() -> None:
        store = await faulty(FaultPlan(slow=1.0, slow_s=60.0))
        order: list[str] = []
        store.on_notification = order.extend
        before = asyncio.get_running_loop().time()
        await asyncio.gather(*(store.apply([start(number)]) for number in range(5)))
        assert order == [f"r{number}" for number in range(5)]
        assert asyncio.get_running_loop().time() > before

    run_virtual(main())


@pytest.mark.parametrize("crash_after", [False, True])
async def test_a_crash_is_the_last_that_happens(crash_after: bool) -> None:
    database = MemoryDatabase()
    store = await faulty(FaultPlan(crash_at=2, crash_after=crash_after), database)
    heard: list[str] = []
    store.on_notification = heard.extend
    await store.apply([start(0)])
    with pytest.raises(Crash):
        await store.apply([start(1)])
    assert store.crashed
    for call in (store.apply([start(2)]), store.get("r0"), store.beat(1, 1.0), store.counts()):
        with pytest.raises(Crash):
            await call
    await store.close()
    after = await faulty(FaultPlan(), database)
    assert (await after.get("r1") is not None) is crash_after
    heard.clear()
    await after.apply([start(3)])
    await asyncio.sleep(0)
    assert heard == []


async def test_a_crash_reaches_everybody_who_waits_for_the_committer() -> None:
    store = await faulty(FaultPlan(crash_at=1))
    committer = Committer(store)
    answers = [committer.submit(start(number)) for number in range(3)]
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [Crash] * 3
    await committer.close()


def news(plan: FaultPlan) -> list[str]:
    """What is heard of ten starts within a minute."""

    async def main() -> list[str]:
        store = await faulty(plan)
        heard: list[str] = []
        store.on_notification = heard.extend
        for number in range(10):
            await store.apply([start(number)])
        await asyncio.sleep(60.0)
        return heard

    return run_virtual(main())


def test_news_can_be_dropped_repeated_and_late() -> None:
    all_of_them = [f"r{number}" for number in range(10)]
    assert news(FaultPlan()) == all_of_them
    assert news(FaultPlan(drop_news=1.0)) == []
    assert sorted(news(FaultPlan(repeat_news=1.0))) == sorted(all_of_them * 2)
    late = news(FaultPlan(seed=1, delay_news=1.0))
    assert late != all_of_them
    assert sorted(late) == all_of_them


async def test_ids_of_one_call_can_be_shuffled() -> None:
    store = await faulty(FaultPlan(shuffle_news=1.0))
    heard: list[str] = []
    store.on_notification = heard.extend
    await store.apply([start(number) for number in range(10)])
    assert heard != sorted(heard)
    assert sorted(heard) == [f"r{number}" for number in range(10)]


def test_a_member_can_sleep_past_its_lease() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        sleeper, other = await faulty(FaultPlan(lose_lease=1.0), database), await faulty(FaultPlan(), database)
        fence = (await sleeper.join("sleeper", 10.0)).fence
        await other.join("other", 1000.0)
        assert await sleeper.beat(fence, 10.0) is False

    run_virtual(main())


async def test_calm_ends_all_faults() -> None:
    store = await faulty(FaultPlan(fail_before=1.0))
    store.calm()
    assert await store.apply([start()]) == [Started(True)]


async def test_a_read_that_fails_can_be_asked_again() -> None:
    store = await faulty(FaultPlan(seed=1, fail_read=0.5))
    await store.apply([start()])
    answers = []
    for _ in range(20):
        try:
            answers.append(await store.get("r0") is not None)
        except StoreUnavailable:
            answers.append(False)
    assert 0 < sum(answers) < 20
    assert store.injected["fail_read"] == 20 - sum(answers)


def test_a_process_that_stands_still_goes_on_when_its_lease_is_over() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        store, other = await faulty(FaultPlan(stall=1.0), database), MemoryStore(database)
        await other.open()
        member = await store.join("one", 10.0)
        began_at = asyncio.get_running_loop().time()
        await store.apply([start()])
        rival = await other.join("other", 100.0)
        assert asyncio.get_running_loop().time() == began_at
        assert not await store.beat(member.fence, 10.0)
        assert 10.0 <= asyncio.get_running_loop().time() - began_at <= 30.0
        assert await other.beat(rival.fence, 100.0)

    run_virtual(main())


async def test_a_crash_by_chance_is_told_once() -> None:
    store = await faulty(FaultPlan(seed=3, crash=0.2))
    told: list[str] = []
    store.on_crash = lambda: told.append("crash")
    while not store.crashed:
        try:
            await store.apply([start(store.writes)])
        except Crash:
            break
    store.crash()
    assert told == ["crash"]
    assert store.injected["crash"] == 1
