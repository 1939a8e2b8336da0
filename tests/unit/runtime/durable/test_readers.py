"""Waiting for news of a run."""

from __future__ import annotations

import asyncio

from loom.runtime.durable.readers import Watchers


async def test_all_who_wait_for_a_run_are_woken_and_nobody_else() -> None:
    watchers = Watchers()
    first, second, other = watchers.subscribe("a"), watchers.subscribe("a"), watchers.subscribe("b")
    watchers.wake("a")
    assert (first.done(), second.done(), other.done()) == (True, True, False)
    watchers.wake_all()
    assert other.done()


async def test_news_between_asking_and_looking_are_not_missed() -> None:
    watchers = Watchers()
    news = watchers.subscribe("a")
    watchers.wake("a")
    await asyncio.wait_for(news, 60)


async def test_one_who_gave_up_does_not_disturb_the_others() -> None:
    watchers = Watchers()
    gone, here = watchers.subscribe("a"), watchers.subscribe("a")
    gone.cancel()
    watchers.wake("a")
    assert here.done()


async def test_nothing_is_kept_of_those_who_left() -> None:
    watchers = Watchers()
    for future in [watchers.subscribe("a") for _ in range(3)]:
        watchers.forget("a", future)
    assert not watchers._waiting
    late = watchers.subscribe("a")
    watchers.wake("a")
    watchers.forget("a", late)
    assert not watchers._waiting
