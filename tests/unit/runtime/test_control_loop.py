"""The control loop under a virtual clock: commit before effects, decorators, timers, the order of what it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.adapter import InternalRunAdapter, RunAdapterDecorator
from loom.core.commands import CommandPublishEvent, CommandRunWorker
from loom.core.reports import Published, StepReport
from loom.core.run import Batch
from loom.core.ticks import TickAddEvent, TickCancelRun, TickStartRun, TickStepResult, TickTimeout, WorkflowTick
from loom.runtime.memory import MemoryRuntime
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
