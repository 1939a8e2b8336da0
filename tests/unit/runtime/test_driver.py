"""A driver goes on when what its coroutine awaits is done, and only then."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Coroutine
from typing import Any

from loom.runtime.driver import Driver
from loom.runtime.memory_adapter import MemoryAdapter


class Driven:
    """A coroutine under a driver, and how it ended."""

    def __init__(self, coroutine: Coroutine[Any, Any, str], adapter: MemoryAdapter) -> None:
        self.ends: list[tuple[str | None, BaseException | None]] = []
        self.driver: Driver[str] = Driver(coroutine, adapter, asyncio.get_running_loop(), self._ended)
        self.driver.begin()

    def _ended(self, result: str | None, error: BaseException | None) -> None:
        self.ends.append((result, error))


def new_adapter() -> MemoryAdapter:
    return MemoryAdapter(asyncio.get_running_loop(), time.time)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_coroutine_is_driven_through_futures_and_bare_turns_to_its_end() -> None:
    adapter, gate = new_adapter(), asyncio.get_running_loop().create_future()

    async def work() -> str:
        await asyncio.sleep(0)
        return str(await gate)

    driven = Driven(work(), adapter)
    await turns()
    assert driven.ends == []
    gate.set_result("through")
    await turns()
    assert driven.ends == [("through", None)]


async def test_wake_that_comes_too_late_does_not_disturb_another_wait() -> None:
    adapter = new_adapter()
    # Unlike the usual one, a future in Python objects to being resumed before it is done.
    cleaned: Any = asyncio.futures._PyFuture(loop=asyncio.get_running_loop())  # type: ignore[attr-defined]

    async def work() -> str:
        try:
            await adapter._arrival(None)
        finally:
            await cleaned
        return "never"

    driven = Driven(work(), adapter)
    await turns()
    adapter.wake()
    driven.driver.abort()
    await turns()
    assert driven.ends == [], "it still cleans up"
    cleaned.set_result(None)
    await turns()
    [(result, error)] = driven.ends
    assert result is None
    assert isinstance(error, asyncio.CancelledError)


async def test_caller_with_time_lets_it_go_on_within_the_call() -> None:
    adapter = new_adapter()

    async def work() -> str:
        await adapter._arrival(None)
        return "at once"

    driven = Driven(work(), adapter)
    await turns()
    adapter.wake(at_once=True)
    assert driven.ends == [("at once", None)]


async def test_whole_run_has_one_context() -> None:
    adapter, name = new_adapter(), contextvars.ContextVar("name", default="none")

    async def work() -> str:
        name.set("inside")
        await adapter._arrival(None)
        return name.get()

    driven = Driven(work(), adapter)
    await turns()
    adapter.wake(at_once=True)
    assert driven.ends == [("inside", None)]
    assert name.get() == "none"
