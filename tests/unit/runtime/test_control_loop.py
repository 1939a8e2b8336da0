"""The control loop: order, commits, timers, the driver without a task, and turns of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.adapter import InternalRunAdapter, RunAdapterDecorator
from loom.core.commands import CommandPublishEvent, CommandRunWorker, CommandStartTimer
from loom.core.records import Published, StepReport
from loom.core.run import Batch
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)
from loom.runtime.control_loop import TURN_S, ArmedTimers, Driver, Turns
from loom.runtime.memory import MemoryRuntime
from loom.runtime.memory_adapter import MemoryAdapter
from loom.steps.errors import WorkflowCancelledByUser, WorkflowTimeoutError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import VIRTUAL_EPOCH, run_virtual


class Middle(Event):
    number: int = 0


class Chain(Workflow):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": None, **options})
        self.ran: list[str] = []

    @step
    async def first(self, ev: StartEvent) -> Middle:
        self.ran.append("first")
        return Middle(number=1)

    @step
    async def second(self, ev: Middle) -> StopEvent:
        self.ran.append("second")
        return StopEvent(result=ev.number)


class Witness(RunAdapterDecorator):
    """Writes down all calls in order."""

    def __init__(self, inner: InternalRunAdapter, seen: list[str], workflow: Chain | None = None) -> None:
        super().__init__(inner)
        self.seen = seen
        self.workflow = workflow

    async def commit(self, batch: Batch) -> None:
        ran = f" after {self.workflow.ran}" if self.workflow is not None else ""
        self.seen.append(f"commit {[type(tick).__name__ for tick in batch.ticks]}{ran}")
        await super().commit(batch)

    def on_tick(self, tick: WorkflowTick) -> None:
        self.seen.append(f"tick {type(tick).__name__}")
        super().on_tick(tick)

    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        what = f"{event.step} {event.phase}" if isinstance(event, StepReport) else "event"
        self.seen.append(f"publish {cursor} {what}")
        super().write_to_event_stream(cursor, event)

    def finalize_step(self, command: CommandRunWorker) -> None:
        self.seen.append(f"finalize {command.step}")
        super().finalize_step(command)

    def close(self) -> None:
        self.seen.append("close")
        super().close()


async def test_every_batch_is_committed_then_observed_then_acted_upon() -> None:
    seen: list[str] = []
    workflow = Chain()
    workflow._switch_runtime(MemoryRuntime(decorate=lambda inner: Witness(inner, seen, workflow)))
    assert await workflow.run() == 1
    assert [line for line in seen if not line.startswith("finalize")] == [
        "commit ['TickStartRun'] after []",
        "tick TickStartRun",
        "publish 0 first running",
        "commit ['TickStepResult'] after ['first']",
        "tick TickStepResult",
        "publish 1 first not_running",
        "publish 2 second running",
        "commit ['TickStepResult'] after ['first', 'second']",
        "tick TickStepResult",
        "publish 3 second not_running",
        "publish 4 event",
        "close",
    ]
    assert [line for line in seen if line.startswith("finalize")] == ["finalize first", "finalize second"]


class Refusing(RunAdapterDecorator):
    """Fails the commit with a given number."""

    def __init__(self, inner: InternalRunAdapter, at: int) -> None:
        super().__init__(inner)
        self.left = at

    async def commit(self, batch: Batch) -> None:
        if self.left == 0:
            raise OSError("disk full")
        self.left -= 1
        await super().commit(batch)


@pytest.mark.parametrize(("at", "ran"), [(0, []), (1, ["first"])])
async def test_failed_commit_drops_the_run_before_any_effect(at: int, ran: list[str]) -> None:
    runtime = MemoryRuntime(decorate=lambda inner: Refusing(inner, at))
    workflow = Chain(runtime=runtime)
    handler = workflow.run(run_id="r")
    streamed = [event async for event in handler.stream_events(expose_internal=True)]
    with pytest.raises(OSError, match="disk full"):
        await handler
    assert workflow.ran == ran
    assert len(streamed) == at, "nothing of the batch that failed was published"
    assert handler.is_done()
    with pytest.raises(RuntimeError, match="No active workflow"):
        runtime.get("r")


class Translating(RunAdapterDecorator):
    """Receives in its own way: every event from outside comes in twice."""

    def __init__(self, inner: InternalRunAdapter) -> None:
        super().__init__(inner)
        self.again: list[WorkflowTick] = []

    async def wait_receive(self) -> WorkflowTick:
        if self.again:
            return self.again.pop()
        tick = await super().wait_receive()
        if isinstance(tick, TickAddEvent):
            self.again.append(tick)
        return tick


class Answer(HumanResponseEvent):
    number: int


class Two(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        one = await ctx.wait_for_event(Answer)
        two = await ctx.wait_for_event(Answer)
        return StopEvent(result=[one.number, two.number])


async def test_decorator_can_receive_in_its_own_way() -> None:
    workflow = Two(runtime=MemoryRuntime(decorate=Translating))
    handler = workflow.run()
    handler.ctx.send_event(Answer(number=1))
    assert await handler == [1, 1]


async def test_decorator_that_receives_can_wait_and_be_cancelled(until_idle: Any) -> None:
    handler = Two(runtime=MemoryRuntime(decorate=Translating)).run()
    await until_idle(handler)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, "no receiving task is left behind"


async def test_decorators_can_be_stacked() -> None:
    seen: list[str] = []

    def decorate(inner: InternalRunAdapter) -> InternalRunAdapter:
        return Witness(Translating(Witness(inner, [])), seen)

    handler = Two(runtime=MemoryRuntime(decorate=decorate)).run()
    handler.ctx.send_event(Answer(number=2))
    assert await handler == [2, 2]
    assert seen[-1] == "close"


class Slow(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(ev.seconds)
        return StopEvent(result="done")


def ticks_of(run: Any) -> list[str]:
    return [type(tick).__name__ for tick in run.journal]


def test_timeout_is_a_tick_at_its_very_time() -> None:
    async def main() -> Any:
        runtime = MemoryRuntime()
        handler = Slow(timeout=10, runtime=runtime).run(run_id="r", seconds=100)
        run = runtime.get("r")
        with pytest.raises(WorkflowTimeoutError, match="Currently active steps: wait"):
            await handler
        return run.journal[-1]

    last = run_virtual(main())
    assert isinstance(last, TickTimeout)
    assert last.at == VIRTUAL_EPOCH + 10


def test_result_at_the_deadline_wins_and_one_after_it_does_not() -> None:
    async def main(seconds: float) -> Any:
        return await Slow(timeout=10).run(seconds=seconds)

    assert run_virtual(main(9.999)) == "done"
    with pytest.raises(WorkflowTimeoutError):
        run_virtual(main(10.001))


def test_workers_are_taken_before_what_comes_from_outside() -> None:
    async def main() -> list[str]:
        runtime = MemoryRuntime()
        workflow = Slow(timeout=None, runtime=runtime)
        handler = workflow.run(run_id="r", seconds=5)
        run = runtime.get("r")
        await asyncio.sleep(4)
        # Both are there when the loop looks next: the event was sent first, the result wins.
        asyncio.get_running_loop().call_at(VIRTUAL_EPOCH + 5, run.request_cancel)
        assert await handler == "done"
        return ticks_of(run)

    assert run_virtual(main())[:2] == ["TickStartRun", "TickStepResult"]


def test_cancel_is_not_starved_by_busy_workers() -> None:
    class Endless(Workflow):
        @step
        async def again(self, ev: StartEvent | Middle) -> Middle | StopEvent:
            await asyncio.sleep(0)
            return Middle()

    async def main() -> None:
        handler = Endless(timeout=None, disable_validation=True).run()
        await asyncio.sleep(0)
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler

    run_virtual(main())


def test_ticks_that_come_together_are_one_batch() -> None:
    batches: list[list[type]] = []

    class Batches(RunAdapterDecorator):
        async def commit(self, batch: Batch) -> None:
            batches.append([type(tick) for tick in batch.ticks])
            await super().commit(batch)

    async def main() -> None:
        handler = Two(timeout=None, runtime=MemoryRuntime(decorate=Batches)).run()
        await asyncio.sleep(1)
        for number in (1, 2):
            handler.ctx.send_event(Answer(number=number))
        assert await handler == [1, 2]

    run_virtual(main())
    assert batches[0] == [TickStartRun]
    assert [TickAddEvent, TickAddEvent] in batches


def test_delayed_retry_is_asleep_and_scheduled() -> None:
    class Retrying(Workflow):
        tries = 0

        @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(2)))
        async def work(self, ev: StartEvent) -> StopEvent:
            self.tries += 1
            if self.tries == 1:
                raise ValueError("once")
            return StopEvent(result=self.tries)

    async def main() -> tuple[Any, ...]:
        runtime = MemoryRuntime()
        handler = Retrying(timeout=None, runtime=runtime).run(run_id="r")
        run = runtime.get("r")
        await asyncio.sleep(1800)
        state = run.state
        seen = (state.is_asleep(), state.is_idle(), handler.ctx.is_idle, [timer.due for timer in state.timers.values()])
        return (*seen, await handler)

    assert run_virtual(main()) == (True, False, False, [VIRTUAL_EPOCH + 3600], 2)


def test_commands_of_one_flush_keep_their_order() -> None:
    """The start of a body comes behind what was published before it."""
    kinds: list[str] = []

    class Order(RunAdapterDecorator):
        async def commit(self, batch: Batch) -> None:
            for command in batch.commands:
                if isinstance(command, CommandPublishEvent | CommandRunWorker):
                    kinds.append(type(command).__name__)
            await super().commit(batch)

    async def main() -> None:
        await Chain(runtime=MemoryRuntime(decorate=Order)).run()

    run_virtual(main())
    assert kinds.count("CommandRunWorker") == 2
    assert kinds[-1] == "CommandPublishEvent"


async def test_tick_types_from_outside_and_inside_are_what_the_journal_holds(until_idle: Any) -> None:
    runtime = MemoryRuntime()
    handler = Two(runtime=runtime).run(run_id="r")
    run = runtime.get("r")
    await until_idle(handler)
    await handler.cancel_run()
    assert isinstance(run.journal[0], TickStartRun)
    assert isinstance(run.journal[-1], TickCancelRun)
    assert not any(isinstance(tick, TickStepResult) for tick in run.journal), "an abandoned body tells nothing"


# -- timers -----------------------------------------------------------------------------------------------------------


def armed(*timers: CommandStartTimer) -> ArmedTimers:
    found = ArmedTimers()
    for timer in timers:
        found.start(timer)
    return found


def test_nothing_is_due_without_timers() -> None:
    assert armed().next_due is None
    assert armed().fire(1e12) == []


def test_timers_fire_in_order_of_their_due_times_and_never_early() -> None:
    timers = armed(
        CommandStartTimer(1, 30.0, "sleep"), CommandStartTimer(2, 10.0, "retry"), CommandStartTimer(3, 20.0, "waiter")
    )
    assert timers.next_due == 10.0
    assert timers.fire(9.999) == []
    assert timers.fire(20.0) == [TickTimerFired(at=20.0, timer=2), TickTimerFired(at=20.0, timer=3)]
    assert timers.next_due == 30.0


def test_timers_of_one_moment_fire_in_the_order_of_their_numbers() -> None:
    timers = armed(*(CommandStartTimer(number, 5.0, "sleep") for number in (3, 1, 2)))
    assert [tick.timer for tick in timers.fire(5.0) if isinstance(tick, TickTimerFired)] == [1, 2, 3]


def test_timer_fires_once() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"))
    assert len(timers.fire(5.0)) == 1
    assert timers.fire(6.0) == []


def test_cancelled_timer_does_not_fire() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"), CommandStartTimer(2, 6.0, "sleep"))
    timers.cancel(1)
    timers.cancel(99)
    assert timers.next_due == 6.0
    assert timers.fire(10.0) == [TickTimerFired(at=10.0, timer=2)]


def test_started_again_it_fires_at_its_new_time_only() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"), CommandStartTimer(1, 8.0, "sleep"))
    assert timers.next_due == 8.0
    assert timers.fire(5.0) == []
    assert len(timers.fire(8.0)) == 1


def test_timeout_of_the_run_is_a_tick_of_its_own() -> None:
    assert armed(CommandStartTimer(4, 5.0, "timeout")).fire(5.0) == [TickTimeout(at=5.0, timer=4)]


def test_timers_that_were_cancelled_take_no_room() -> None:
    timers = ArmedTimers()
    timers.start(CommandStartTimer(0, 5.0, "timeout"))
    tracemalloc.start()
    for seq in range(1, 20_000):
        timers.start(CommandStartTimer(seq, 2000.0 + seq, "waiter"))
        timers.cancel(seq)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 100_000
    assert timers.next_due == 5.0
    assert len(timers.fire(10_000_000.0)) == 1


# -- the driver -------------------------------------------------------------------------------------------------------


class Driven:
    """A coroutine under a driver, and how it ended."""

    def __init__(self, coroutine: Coroutine[Any, Any, str], adapter: MemoryAdapter) -> None:
        self.ends: list[tuple[str | None, BaseException | None]] = []
        loop = asyncio.get_running_loop()
        self.driver: Driver[str] = Driver(coroutine, adapter, loop, self._ended, Turns(loop))
        self.driver.begin()

    def _ended(self, result: str | None, error: BaseException | None) -> None:
        self.ends.append((result, error))


def new_adapter() -> MemoryAdapter:
    return MemoryAdapter(asyncio.get_running_loop(), time.time, "r")


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


# -- turns ------------------------------------------------------------------------------------------------------------


class Loop:
    """An event loop whose time passes only when a step takes some."""

    def __init__(self) -> None:
        self.now = 10.0
        self.ready: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


def turns_and_steps(seconds: float) -> tuple[Loop, Turns, list[int], Callable[[int], Callable[[], None]]]:
    loop, taken = Loop(), list[int]()

    def step_of(number: int) -> Callable[[], None]:
        def take() -> None:
            loop.now += seconds
            taken.append(number)

        return take

    return loop, Turns(cast("asyncio.AbstractEventLoop", loop)), taken, step_of


def test_a_few_steps_are_taken_at_once() -> None:
    loop, turns, taken, step_of = turns_and_steps(TURN_S / 10)
    for number in range(10):
        turns.take(step_of(number))
    assert (taken, loop.ready) == (list(range(10)), [])


def test_the_steps_of_many_runs_take_several_turns_in_order() -> None:
    loop, turns, taken, step_of = turns_and_steps(TURN_S / 3.5)
    for number in range(10):
        turns.take(step_of(number))
    lengths = [len(taken)]
    while loop.ready:
        before = loop.now
        loop.turn()
        assert loop.now - before < 2 * TURN_S
        lengths.append(len(taken) - sum(lengths))
    assert taken == list(range(10))
    assert lengths == [4, 4, 2]


def test_what_comes_later_waits_its_turn() -> None:
    loop, turns, taken, step_of = turns_and_steps(2 * TURN_S)
    for number in range(3):
        turns.take(step_of(number))
    loop.now += 1  # a pause does not let anyone overtake
    turns.take(step_of(3))
    while loop.ready:
        loop.turn()
    assert taken == [0, 1, 2, 3]


class Half(Event):
    n: int


class Pair(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Half:
        return Half(n=0)

    @step
    async def go(self, ev: Half) -> Half | StopEvent:
        return Half(n=ev.n + 1) if ev.n < 20 else StopEvent(result=ev.n)


async def test_runs_beside_each_other_all_end(monkeypatch: Any) -> None:
    monkeypatch.setattr("loom.runtime.control_loop.TURN_S", 0.0)  # every step but one of a turn has to wait
    async with loom.connect("memory://") as runtime:
        runtime.register(Pair(), name="chain")
        handlers = [await runtime.start("chain") for _ in range(30)]
        assert await asyncio.gather(*handlers) == [20] * 30


async def test_work_is_done_in_a_later_turn_in_the_context_of_its_caller() -> None:
    turns = Turns(asyncio.get_running_loop())
    asked: contextvars.ContextVar[str] = contextvars.ContextVar("asked")

    async def ask(name: str) -> str:
        asked.set(name)
        return await turns.run(asked.get)

    def fail() -> None:
        raise ValueError("wrong")

    turns._waiting.append(lambda: None)
    asyncio.get_running_loop().call_soon(turns._go_on)
    assert await asyncio.gather(ask("a"), ask("b")) == ["a", "b"]
    with pytest.raises(ValueError, match="wrong"):
        await turns.run(fail)
