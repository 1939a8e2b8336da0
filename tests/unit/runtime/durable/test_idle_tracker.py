"""A body that waits stays in memory while there is room, so that the code before its wait runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.idle_tracker import IdleTracker
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.settings import Settings
from loom.testing import run_virtual

HOUR = 3600.0
RARELY: dict[str, Any] = {"poll_interval": 2 * 24 * HOUR, "lease": 6 * 24 * HOUR}


class Word(HumanResponseEvent):
    pass


class Question(InputRequiredEvent):
    pass


class Asker(Workflow):
    """Waits inside of its body; counts how often that begins."""

    def __init__(self, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.begun: list[str] = []

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.begun.append(ev.get("name", ""))
        await ctx.wait_for_event(Word, timeout=None)
        return StopEvent()


class Interview(Workflow):
    """Waits between its steps."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question()

    @step
    async def hear(self, ev: Word) -> StopEvent:
        return StopEvent()


def _virtually(use: Callable[[DurableRuntime, Asker], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        limits = {"num_concurrent_runs": options.pop("num_concurrent_runs", None)}
        asker = Asker(**limits)
        async with loom.connect("memory://", **RARELY, **options) as runtime:
            runtime.register(asker, name="asker")
            runtime.register(Interview(timeout=None), name="interview")
            await use(runtime, asker)

    run_virtual(main())


def test_the_code_before_a_wait_of_hours_runs_once() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        handler = await runtime.start("asker", run_id="a")
        await asyncio.sleep(20 * HOUR)
        assert runtime.figures["released"] == 0
        await runtime.send_event("a", Word())
        await handler
        assert asker.begun == [""]

    _virtually(use)


def test_after_a_day_it_is_released_and_runs_again() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        handler = await runtime.start("asker", run_id="a")
        await asyncio.sleep(24 * HOUR + 1)
        assert runtime.figures == {"in_memory": 0, "released": 1, "resumed": 0}
        await runtime.send_event("a", Word())
        await handler
        assert asker.begun == ["", ""]

    _virtually(use)


def test_a_run_that_holds_no_body_is_released_after_a_minute() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        await runtime.start("interview", run_id="a")
        await asyncio.sleep(59)
        assert runtime.figures["in_memory"] == 1
        await asyncio.sleep(2)
        assert runtime.figures == {"in_memory": 0, "released": 1, "resumed": 0}

    _virtually(use)


def test_a_flow_that_waits_has_no_code_to_run_again() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        flow = {"actions": {"ask": {"type": "waitForEvent", "inputs": {"event": "Word"}}}}
        runtime.register(loom.load(flow), name="flow")
        await runtime.start("flow", run_id="a")
        await asyncio.sleep(61)
        assert runtime.figures["in_memory"] == 0

    _virtually(use)


def test_under_pressure_the_oldest_leaves_first_but_not_before_its_minute() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        for number in range(5):
            await runtime.start("asker", {"name": str(number)}, run_id=str(number))
            await asyncio.sleep(1)
        await asyncio.sleep(50)
        assert runtime.figures["in_memory"] == 5
        await asyncio.sleep(10)
        assert sorted(run_id for run_id in "01234" if runtime.active_run(run_id) is not None) == ["3", "4"]

    _virtually(use, max_suspended=2)


@pytest.mark.parametrize(("given", "seconds"), [(5.0, 6.0), (2 * HOUR, 2 * HOUR + 1)])
def test_an_idle_timeout_that_is_given_holds_as_given(given: float, seconds: float) -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        await runtime.start("asker", run_id="a")
        await runtime.start("interview", run_id="b")
        await asyncio.sleep(seconds - 2)
        assert runtime.figures["in_memory"] == 2
        await asyncio.sleep(2)
        assert runtime.figures["in_memory"] == 0

    _virtually(use, idle_timeout=given)


def test_a_workflow_with_a_limit_lets_others_in_after_a_minute() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        for name in "ab":
            await runtime.start("asker", {"name": name}, run_id=name)
        await asyncio.sleep(50)
        assert asker.begun == ["a"]
        await asyncio.sleep(20)
        assert asker.begun == ["a", "b"]

    _virtually(use, num_concurrent_runs=1)


def test_the_settings_say_what_was_given() -> None:
    unset, given, never = Settings(), Settings(idle_timeout=60), Settings(idle_timeout=None)
    assert (unset.idle_s, unset.suspended_s) == (60, 24 * HOUR)
    assert (given.idle_s, given.suspended_s) == (60, 60)
    assert (never.idle_s, never.suspended_s) == (None, None)
    with pytest.raises(ValueError, match="max_suspended must not be negative, got -1"):
        Settings(max_suspended=-1)


def test_under_pressure_runs_without_a_body_leave_first() -> None:
    async def main() -> None:
        tracker = IdleTracker(asyncio.get_running_loop(), 60.0, lambda _run_id: None, 3600.0, 10)
        for name, holds_body in (("held", True), ("young", True), ("plain", False), ("late", False)):
            tracker.add(name, holds_body=holds_body)
            await asyncio.sleep(50)
        # "held" has rested for longer than others may; "plain" was released after its minute.
        tracker.add("plain")
        assert [tracker.take_oldest() for _ in range(len(tracker))] == ["late", "plain", "held", "young"]

    run_virtual(main())


def test_a_full_memory_keeps_the_bodies_it_holds() -> None:
    async def use(runtime: DurableRuntime, asker: Asker) -> None:
        await runtime.start("asker", {"name": "a"}, run_id="a")
        await asyncio.sleep(61)
        await runtime.start("interview", run_id="b")
        await asyncio.sleep(1)
        await runtime.start("interview", run_id="c")
        await asyncio.sleep(1)
        assert [run_id for run_id in "abc" if runtime.active_run(run_id) is not None] == ["a", "c"]

    _virtually(use, max_in_memory=2)


def test_whoever_makes_room_gets_the_one_that_has_rested_longest() -> None:
    async def main() -> None:
        released: list[str] = []
        tracker = IdleTracker(asyncio.get_running_loop(), 60.0, released.append, 3600.0, 10)
        for name in "abc":
            tracker.add(name, holds_body=name != "b")
            await asyncio.sleep(25)
        await asyncio.sleep(15)
        assert (released, len(tracker), "a" in tracker, "b" in tracker) == (["b"], 2, True, False)
        assert [tracker.take_oldest(), tracker.take_oldest()] == ["a", "c"]
        tracker.add("d", holds_body=True)
        await asyncio.sleep(1000)
        tracker.add("e")  # long before the next one of those that are held
        await asyncio.sleep(61)
        assert released == ["b", "e"]
        await asyncio.sleep(2600)
        assert released == ["b", "e", "d"]
        tracker.add("f", holds_body=True)
        tracker.drop("f")
        tracker.close()

    run_virtual(main())


def test_runs_are_tracked_on_uvloop_when_the_next_one_is_due_already() -> None:
    """For a moment that has passed, uvloop gives a handle that does not tell when it is due."""
    uvloop = pytest.importorskip("uvloop")
    released: list[str] = []

    async def track() -> None:
        tracker = IdleTracker(asyncio.get_running_loop(), 0.0, released.append)
        for number in range(3):
            tracker.add(str(number))
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(track())
    assert released == ["0", "1", "2"]
