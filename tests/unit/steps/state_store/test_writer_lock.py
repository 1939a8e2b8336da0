from __future__ import annotations

import asyncio

import pytest

from loom.steps.state_store.writer_lock import WriterLock


async def test_a_cancelled_waiter_leaves_the_line() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    lock.release()
    await asyncio.wait_for(second, timeout=5)

    assert not lock.try_acquire()


async def test_a_waiter_that_is_cancelled_as_it_gets_the_lock_passes_it_on() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    lock.release()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, timeout=5)


async def test_a_waiter_cancelled_before_the_release_is_skipped() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    first.cancel()
    lock.release()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, timeout=5)
    lock.release()

    assert lock.try_acquire()


def test_a_waiter_whose_loop_is_gone_is_skipped() -> None:
    lock = WriterLock()
    assert lock.try_acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(lock.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    lock.release()

    assert lock.try_acquire()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it waits for ever, which is the point
