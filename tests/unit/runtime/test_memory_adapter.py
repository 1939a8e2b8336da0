"""The adapter alone, with a set of workers that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from loom.core.adapter import RunAdapterDecorator
from loom.core.records import CancelledReport
from loom.core.run import Batch
from loom.core.ticks import TickCancelRun, TickTimerFired, WorkflowTick
from loom.runtime.control_loop import effective
from loom.runtime.memory_adapter import MemoryAdapter
from loom.testing import run_virtual


class Tasks:
    """Workers of a control loop."""

    def __init__(self, adapter: Any) -> None:
        self.pull: Callable[[], Awaitable[WorkflowTick]] = effective(adapter, "wait_receive")
        self.lane: list[WorkflowTick] = []
        self.wake: Callable[[], None] = lambda: None

    def completed(self) -> list[WorkflowTick]:
        lane, self.lane = self.lane, []
        return lane

    def on_completion(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def tell(self, tick: WorkflowTick) -> None:
        self.lane.append(tick)
        self.wake()


def inside(number: int) -> WorkflowTick:
    return TickTimerFired(at=0.0, timer=number)


def outside(reason: str) -> WorkflowTick:
    return TickCancelRun(at=0.0, reason=reason)


def on_adapter(main: Callable[[MemoryAdapter, Tasks], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        loop = asyncio.get_running_loop()
        adapter = MemoryAdapter(loop, loop.time, "r")
        return await main(adapter, Tasks(adapter))

    return run_virtual(run())


def test_workers_come_before_the_outside() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[WorkflowTick]:
        adapter.send_event(outside("a"))
        tasks.tell(inside(1))
        adapter.send_event(outside("b"))
        tasks.tell(inside(2))
        return await adapter.wait_for_next_task(tasks, None)

    assert on_adapter(main) == [inside(1), inside(2), outside("a"), outside("b")]


def test_wait_ends_with_what_comes_first() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[Any]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = []
        loop.call_later(10, tasks.tell, inside(1))
        loop.call_later(20, adapter.send_event, outside("a"))
        for _ in range(3):
            ticks = await adapter.wait_for_next_task(tasks, began + 30)
            found.append((loop.time() - began, ticks))
        return found

    assert on_adapter(main) == [(10, [inside(1)]), (20, [outside("a")]), (30, [])]


def test_time_that_is_over_already_is_not_waited_for() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[WorkflowTick]:
        return await adapter.wait_for_next_task(tasks, adapter.get_now() - 1)

    assert on_adapter(main) == []


def test_nothing_wakes_a_wait_for_nothing() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[WorkflowTick]:
        asyncio.get_running_loop().call_later(1, adapter.wake)
        asyncio.get_running_loop().call_later(2, tasks.tell, inside(1))
        return await adapter.wait_for_next_task(tasks, None)

    assert on_adapter(main) == [inside(1)]


def test_alarm_survives_a_decorator_that_receives_by_itself() -> None:
    class Own(RunAdapterDecorator):
        async def wait_receive(self) -> WorkflowTick:
            return await super().wait_receive()

    async def run() -> list[Any]:
        loop = asyncio.get_running_loop()
        adapter = Own(MemoryAdapter(loop, loop.time, "r"))
        tasks = Tasks(adapter)
        began = loop.time()
        loop.call_later(50, adapter.send_event, outside("a"))
        found = []
        for until in (began + 10, began + 100):
            ticks = await adapter.wait_for_next_task(tasks, until)
            found.append((loop.time() - began, ticks))
        adapter.close()
        return found

    assert run_virtual(run()) == [(10, []), (50, [outside("a")])]


def test_receiving_gives_one_tick_at_a_time_in_order() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[WorkflowTick]:
        asyncio.get_running_loop().call_later(1, adapter.send_event, outside("c"))
        adapter.send_event(outside("a"))
        adapter.send_event(outside("b"))
        return [await adapter.wait_receive() for _ in range(3)]

    assert on_adapter(main) == [outside("a"), outside("b"), outside("c")]


def test_readers_learn_of_commits_of_the_stream_and_of_the_end() -> None:
    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[str]:
        told: list[str] = []

        async def read() -> None:
            for _ in range(3):
                await adapter.news()
                told.append(f"{len(adapter.journal)} {len(adapter.stream)}")

        reader = asyncio.create_task(read())
        await asyncio.sleep(1)
        await adapter.commit(Batch(ticks=[inside(1)], commands=[], answers=[]))
        await asyncio.sleep(1)
        adapter.write_to_event_stream(0, CancelledReport())
        await asyncio.sleep(1)
        adapter.mark_closed()
        await reader
        return told

    assert on_adapter(main) == ["1 0", "1 1", "1 1"]


def test_decorators_that_do_not_receive_are_looked_through() -> None:
    class Other(RunAdapterDecorator):
        pass

    class Own(RunAdapterDecorator):
        async def wait_receive(self) -> WorkflowTick:
            return inside(1)

    async def main(adapter: MemoryAdapter, tasks: Tasks) -> list[bool]:
        own = Own(adapter)
        return [
            effective(Other(Other(adapter)), "wait_receive") == adapter.wait_receive,
            effective(Other(own), "wait_receive") == own.wait_receive,
        ]

    assert on_adapter(main) == [True, True]
