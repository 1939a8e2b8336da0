"""Futures that call back in place: who is called when, and what becomes of errors."""

from __future__ import annotations

import asyncio

import pytest

from loom.store.direct_future import DirectFuture, call_when_done


def future() -> DirectFuture[int]:
    return DirectFuture(loop=asyncio.get_running_loop())


async def test_a_result_is_told_in_place_and_once() -> None:
    told: list[int] = []
    one = future()
    call_when_done(one, lambda done: told.append(done.result()))
    one.give(1)
    assert told == [1]
    await asyncio.sleep(0)
    assert told == [1]


async def test_an_error_is_told_in_place() -> None:
    told: list[BaseException | None] = []
    error, one = ValueError("no"), future()
    one.call_directly(lambda done: told.append(done.exception()))
    one.refuse(error)
    assert told == [error]


async def test_a_task_may_await_it() -> None:
    one = future()
    task = asyncio.ensure_future(asyncio.wait_for(one, 5))
    await asyncio.sleep(0)
    one.give(7)
    assert await task == 7


async def test_a_cancellation_is_told_in_the_next_turn_and_no_answer_follows() -> None:
    told: list[bool] = []
    one = future()
    one.call_directly(lambda done: told.append(done.cancelled()))
    one.cancel()
    assert told == []
    await asyncio.sleep(0)
    one.give(1)
    one.refuse(ValueError("late"))
    assert told == [True]
    assert one.cancelled()


async def test_what_a_callback_raises_reaches_the_maker() -> None:
    def breaks(_done: object) -> None:
        raise RuntimeError("broken callback")

    one = future()
    one.call_directly(breaks)
    with pytest.raises(RuntimeError, match="broken callback"):
        one.give(1)
    assert one.result() == 1


async def test_a_future_of_asyncio_is_told_in_the_next_turn() -> None:
    told: list[int] = []
    plain: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    call_when_done(plain, lambda done: told.append(done.result()))
    plain.set_result(3)
    assert told == []
    await asyncio.sleep(0)
    assert told == [3]
