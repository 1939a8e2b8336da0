"""What tests see of runs: what bodies did, and conditions that are waited for, never longer than a while."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from loom import RunInfo, Workflow, WorkflowHandler
from loom.runtime.durable.runtime import DurableRuntime

T = TypeVar("T")

PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.005


class Witness:
    """What bodies have done, in a memory that outlives processes; and places where bodies can be held up."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._held: dict[str, asyncio.Event] = {}

    def saw(self, what: str) -> int:
        """Note something; the answer is how often it has happened by now."""
        self.calls.append(what)
        return self.count(what)

    def count(self, what: str) -> int:
        """How often something has happened."""
        return self.calls.count(what)

    def hold(self, place: str) -> None:
        """Let bodies come to a place, but not further."""
        self._held[place] = asyncio.Event()

    def let(self, place: str) -> None:
        """Let bodies pass."""
        self._held.pop(place).set()

    async def at(self, place: str) -> int:
        """Called by a body: it is here, and goes on when it may."""
        times = self.saw(place)
        if place in self._held:
            await self._held[place].wait()
        return times

    async def came(self, place: str, times: int = 1) -> None:
        """Wait until bodies have come to a place so many times."""
        await until(lambda: self.count(place) >= times, f"{times} times {place!r}, seen {self.calls}")


class Watched(Workflow):
    """A workflow whose bodies tell a witness what they do."""

    def __init__(self, witness: Witness | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.witness = witness if witness is not None else Witness()


async def until(condition: Callable[[], T | Awaitable[T]], what: str = "") -> T:
    """Look until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found: Any = condition()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(f"Waited {PATIENCE_S} s in vain for {what or inspect.getsource(condition)}") from None


async def soon(awaitable: Awaitable[T]) -> T:
    """Await something that must not take long."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


async def until_info(runtime: DurableRuntime, run_id: str, holds: Callable[[RunInfo], object]) -> RunInfo:
    """Wait until a condition holds for what is stored of a run."""
    seen: list[RunInfo] = []

    async def look() -> RunInfo | None:
        seen[:] = [await runtime.get(run_id)]
        return seen[0] if holds(seen[0]) else None

    try:
        info = await until(look, "the run")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {seen}") from None
    assert info is not None
    return info


async def until_idle(runtime: DurableRuntime, run_id: str) -> RunInfo:
    """Wait until only input from outside can move a run."""
    return await until_info(runtime, run_id, lambda info: info.idle_since)


async def until_status(runtime: DurableRuntime, run_id: str, status: str) -> RunInfo:
    """Wait until a run has a status."""
    return await until_info(runtime, run_id, lambda info: info.status == status)


async def until_released(runtime: DurableRuntime, run_id: str) -> RunInfo:
    """Wait until no process has a run in memory."""
    return await until_info(runtime, run_id, lambda info: not info.in_memory and runtime.active_run(run_id) is None)


async def result(handler: WorkflowHandler) -> Any:
    """The result of a run."""
    return await soon(handler)


async def failure(handler: WorkflowHandler) -> BaseException:
    """What a run ended with instead of a result."""
    async with asyncio.timeout(PATIENCE_S) as patience:
        try:
            found = await handler
        except Exception as error:
            if patience.expired():
                raise
            return error
    raise AssertionError(f"The run completed with {found!r}.")


async def tick_names(runtime: DurableRuntime, run_id: str) -> list[str]:
    """The kinds of a run's ticks."""
    return [type(entry.tick).__name__ async for entry in runtime.history(run_id)]


async def stored(runtime: DurableRuntime, run_id: str) -> dict[str, Any]:
    """What is in a run's store."""
    return dict((await runtime.read_store(run_id)).items())


def in_background(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Do something beside the test."""
    return asyncio.get_running_loop().create_task(coroutine)
