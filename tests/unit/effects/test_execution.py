"""What a body may do to its run, and when it may not any more."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, catch_error, step
from loom.core.ticks import TickPublishEvent
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import VIRTUAL_EPOCH, run_virtual


class Note(Event):
    number: int


def test_cancelled_error_of_a_body_is_a_failure_of_its_step() -> None:
    class Cancels(Workflow):
        tries = 0

        @step(retry_policy=retry_policy(wait=wait_fixed(1), stop=stop_after_attempt(2)))
        async def work(self, ev: StartEvent) -> StopEvent:
            self.tries += 1
            raise asyncio.CancelledError("by itself")

        @catch_error
        async def recover(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=(self.tries, ev.attempts))

    async def main() -> Any:
        return await Cancels(timeout=10).run()

    assert run_virtual(main()) == (2, 2)


def test_waits_in_child_tasks_are_answered_one_by_one() -> None:
    class Gathers(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = await asyncio.gather(
                *(ctx.wait_for_event(HumanResponseEvent, requirements={"to": name}) for name in "ab"), ctx.sleep(5)
            )
            return StopEvent(result=[answer.text for answer in found[:2]])

    async def main() -> Any:
        handler = Gathers(timeout=100).run()
        await asyncio.sleep(1)
        handler.ctx.send_event(HumanResponseEvent(to="b", text="2"))
        handler.ctx.send_event(HumanResponseEvent(to="a", text="1"))
        return await handler, asyncio.get_running_loop().time() - VIRTUAL_EPOCH

    assert run_virtual(main()) == (["1", "2"], 5)


def test_timeout_of_the_bodys_own_ends_its_wait() -> None:
    class Impatient(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await ctx.wait_for_event(HumanResponseEvent)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await ctx.sleep(100)
            answer = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=answer.text)

    async def main() -> Any:
        handler = Impatient(timeout=100).run()
        await asyncio.sleep(10)
        assert handler.ctx.is_idle
        handler.ctx.send_event(HumanResponseEvent(text="at last"))
        return await handler

    assert run_virtual(main()) == "at last"


def test_except_exception_does_not_swallow_a_wait() -> None:
    class Greedy(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                answer = await ctx.wait_for_event(HumanResponseEvent)
            except Exception:  # noqa: BLE001 - the point of the test
                return StopEvent(result="swallowed")
            return StopEvent(result=answer.text)

    async def main() -> Any:
        handler = Greedy(timeout=100).run()
        await asyncio.sleep(1)
        handler.ctx.send_event(HumanResponseEvent(text="heard"))
        return await handler

    assert run_virtual(main()) == "heard"


def test_wait_after_the_end_of_its_step_is_refused() -> None:
    class Leaks(Workflow):
        late: asyncio.Task[Any]

        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent | Note:
            async def later() -> None:
                await asyncio.sleep(1)
                await ctx.wait_for_event(HumanResponseEvent)

            self.late = asyncio.create_task(later())
            return Note(number=1)

        @step
        async def end(self, ev: Note) -> StopEvent:
            await asyncio.sleep(5)
            return StopEvent()

    async def main() -> None:
        workflow = Leaks(timeout=100)
        await workflow.run()
        with pytest.raises(RuntimeError, match=r"wait_for_event\(\) was called after the step 'work' had ended"):
            await workflow.late

    run_virtual(main())


def test_key_of_the_work_is_the_same_in_every_attempt_and_another_for_other_work() -> None:
    class Keys(Workflow):
        keys: list[str]

        @step(retry_policy=retry_policy(wait=wait_fixed(1), stop=stop_after_attempt(2)))
        async def work(self, ctx: Context, ev: StartEvent) -> Note:
            self.keys.append(ctx.idempotency_key)
            if len(self.keys) == 1:
                raise ValueError("once")
            return Note(number=1)

        @step
        async def end(self, ctx: Context, ev: Note) -> StopEvent:
            return StopEvent(result=ctx.idempotency_key)

    async def main() -> tuple[list[str], str]:
        workflow = Keys(timeout=100)
        workflow.keys = []
        other = await workflow.run(run_id="r")
        return workflow.keys, other

    (first, second), other = run_virtual(main())
    assert first == second
    assert first.startswith("r:")
    assert other != first


def test_policy_that_raises_ends_the_retries_with_its_own_error() -> None:
    class BadPolicy:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
            raise LookupError("bad policy")

    class Bad(Workflow):
        @step(retry_policy=BadPolicy())
        async def work(self, ev: StartEvent) -> StopEvent:
            raise ValueError("the step's own")

    async def main() -> None:
        with pytest.raises(LookupError, match="bad policy") as caught:
            await Bad(timeout=10).run()
        assert isinstance(caught.value.__cause__, ValueError)

    run_virtual(main())


async def test_target_that_does_not_exist_is_refused_at_the_call() -> None:
    class Sends(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(WorkflowRuntimeError, match="Step nowhere does not exist"):
                ctx.send_event(Note(number=1), step="nowhere")
            with pytest.raises(WorkflowRuntimeError, match="Step work does not accept event of type"):
                ctx.send_event(Note(number=1), step="work")
            return StopEvent()

    await Sends().run()


async def test_stream_writes_of_many_threads_reach_the_run_in_the_order_of_their_numbers() -> None:
    class Crowd(Workflow):
        @step
        def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            def tell(thread: int) -> None:
                for number in range(50):
                    ctx.write_event_to_stream(Note(number=100 * thread + number))

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(tell, range(8)))
            return StopEvent()

    async with loom.connect("memory://") as runtime:
        runtime.register(Crowd(), name="crowd")
        handler = await runtime.start("crowd", run_id="a")
        await handler
        ticks = [tick async for _, _, tick in runtime.history("a")]
        assert [tick.writes for tick in ticks if isinstance(tick, TickPublishEvent)] == list(range(400))
        events = [event async for event in handler.stream_events(after=-1)]
        assert sorted(event.number for event in events[:-1]) == [
            100 * thread + n for thread in range(8) for n in range(50)
        ]
