"""Runs in memory: how many at a time, steps in threads, idle and asleep, and what is held in memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.runtime.memory import MemoryRuntime
from loom.steps.errors import WorkflowCancelledByUser, WorkflowTimeoutError
from loom.steps.events import WorkflowIdleEvent
from loom.testing import VIRTUAL_EPOCH, run_virtual

request: ContextVar[str] = ContextVar("request", default="nobody")


class Limited(Workflow):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.running = 0
        self.most = 0
        self.order: list[int] = []

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(ev.number)
        await asyncio.sleep(10)
        self.running -= 1
        return StopEvent(result=request.get())


@pytest.mark.parametrize(("limit", "seconds"), [(1, 60), (2, 30), (4, 20), (None, 10)])
def test_so_many_runs_at_a_time(limit: int | None, seconds: float) -> None:
    workflow = Limited(num_concurrent_runs=limit)

    async def main() -> float:
        await asyncio.gather(*(workflow.run(number=number) for number in range(6)))
        return asyncio.get_running_loop().time() - VIRTUAL_EPOCH

    assert run_virtual(main()) == seconds
    assert workflow.most == (limit or 6)
    assert workflow.order == list(range(6))


def test_clock_of_a_run_that_was_held_back_starts_when_it_does() -> None:
    workflow = Limited(num_concurrent_runs=1, timeout=15)

    async def main() -> list[str]:
        return list(await asyncio.gather(*(workflow.run(number=number) for number in range(3))))

    assert len(run_virtual(main())) == 3


def test_limit_is_per_instance() -> None:
    async def main() -> float:
        await asyncio.gather(*(Limited(num_concurrent_runs=1).run(number=number) for number in range(3)))
        return asyncio.get_running_loop().time() - VIRTUAL_EPOCH

    assert run_virtual(main()) == 10


def test_run_that_was_held_back_has_the_context_of_its_caller() -> None:
    workflow = Limited(num_concurrent_runs=1)

    async def call(name: str) -> str:
        request.set(name)
        result: str = await workflow.run(number=0)
        return result

    async def main() -> list[str]:
        return list(await asyncio.gather(call("a"), call("b"), call("c")))

    assert run_virtual(main()) == ["a", "b", "c"]


def test_failed_and_cancelled_runs_give_their_turn_away() -> None:
    workflow = Limited(num_concurrent_runs=1, timeout=5)

    async def main() -> str:
        first, second, third = (workflow.run(number=number) for number in range(3))
        with pytest.raises(WorkflowTimeoutError):
            await first
        await second.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await second
        with pytest.raises(WorkflowTimeoutError):
            await third
        return "all ended"

    assert run_virtual(main()) == "all ended"


class Sent(Event):
    number: int


class Threaded(Workflow):
    """Its first step is synchronous and uses all of the context that needs no awaiting."""

    @step
    def send(self, ctx: Context, ev: StartEvent) -> None:
        assert threading.current_thread() is not threading.main_thread()
        for number in range(ev.count):
            ctx.send_event(Sent(number=number))
            ctx.write_event_to_stream(Sent(number=-number))

    @step
    def collect(self, ctx: Context, ev: Sent) -> StopEvent | None:
        found = ctx.collect_events(ev, [Sent] * 3)
        return StopEvent(result=sorted(event.number for event in found)) if found else None


@pytest.mark.parametrize("virtual", [True, False])
def test_sync_step_sends_events_from_its_thread(virtual: bool) -> None:
    async def main() -> tuple[Any, list[int]]:
        handler = Threaded(disable_validation=True, timeout=5).run(count=3)
        written = [event.number async for event in handler.stream_events() if isinstance(event, Sent)]
        return await handler, written

    assert (run_virtual if virtual else asyncio.run)(main()) == ([0, 1, 2], [0, -1, -2])


def test_event_sent_from_a_foreign_thread_reaches_the_run() -> None:
    async def main() -> str:
        handler = Asking(timeout=5).run()
        await asyncio.sleep(0)
        thread = threading.Thread(target=handler.ctx.send_event, args=(HumanResponseEvent(text="hi"),))
        thread.start()
        result: str = await handler
        thread.join()
        return result

    assert asyncio.run(main()) == "hi"


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id="the question", requirements={"kind": None})
        return StopEvent(result=answer.get("text"))


class Prompting(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="?")

    @step
    async def answer(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.get("text"))


async def next_idle(stream: Any) -> WorkflowIdleEvent:
    async for event in stream:
        if isinstance(event, WorkflowIdleEvent):
            return event
    raise AssertionError("the run never was idle")


def test_idle_run_says_what_it_waits_for_and_since_when() -> None:
    async def main() -> tuple[Any, ...]:
        handler = Asking(timeout=None).run()
        assert not handler.ctx.is_idle
        idle = await next_idle(handler.stream_events(expose_internal=True))
        assert handler.ctx.is_idle
        handler.ctx.send_event(HumanResponseEvent(text="hi"))
        result = await handler
        return idle.waiters, idle.idle_since, result, handler.ctx.is_idle

    waiters, since, result, idle_after = run_virtual(main())
    assert [(w["step"], w["waiter_id"], w["event_type"]) for w in waiters] == [
        ("ask", "the question", "workflows.events.HumanResponseEvent")
    ]
    assert waiters[0]["requirements"] == {"kind": None}
    assert since == VIRTUAL_EPOCH
    assert (result, idle_after) == ("hi", False)


def test_run_that_asked_by_an_event_is_idle_too() -> None:
    async def main() -> Any:
        handler = Prompting(timeout=None).run()
        idle = await next_idle(handler.stream_events(expose_internal=True))
        assert handler.ctx.is_idle
        handler.ctx.send_event(HumanResponseEvent(text="hi"))
        assert await handler == "hi"
        return idle.waiters

    assert [(waiter["step"], waiter["waiter_id"]) for waiter in run_virtual(main())] == [("answer", None)]


class Chatty(Workflow):
    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(3):
            await ctx.wait_for_event(HumanResponseEvent)
            await ctx.sleep(60)
        return StopEvent()


def test_idle_is_told_on_the_transition_only_and_a_sleeping_run_is_not_idle() -> None:
    async def main() -> tuple[int, list[tuple[bool, bool]]]:
        runtime = MemoryRuntime()
        handler = Chatty(timeout=None, runtime=runtime).run(run_id="r")
        run = runtime.get("r")
        seen = []
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((run.state.is_idle(), run.state.is_asleep()))
            handler.ctx.send_event(HumanResponseEvent())
            await asyncio.sleep(1)
            seen.append((run.state.is_idle(), run.state.is_asleep()))
            await asyncio.sleep(100)
        await handler
        events = [event async for event in handler.stream_events(expose_internal=True)]
        return sum(isinstance(event, WorkflowIdleEvent) for event in events), seen

    idle_times, seen = run_virtual(main())
    assert idle_times == 3
    assert seen == [(True, False), (False, True)] * 3


def test_event_that_comes_with_the_wait_leaves_no_idle_moment() -> None:
    class Quick(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            handlers[0].ctx.send_event(HumanResponseEvent(text="early"))
            answer = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=answer.get("text"))

    handlers: list[Any] = []

    async def main() -> tuple[str, int]:
        handlers.append(Quick(timeout=None).run())
        events = [event async for event in handlers[0].stream_events(expose_internal=True)]
        return await handlers[0], sum(isinstance(event, WorkflowIdleEvent) for event in events)

    result, idle_times = run_virtual(main())
    assert result == "early"
    assert idle_times == 0


async def test_waiting_run_is_held_without_its_handler_and_a_finished_one_by_nobody(until_idle: Any) -> None:
    runtime = MemoryRuntime()
    handler: Any = Asking(runtime=runtime).run(run_id="r")
    await until_idle(handler)
    del handler
    gc.collect()
    run: Any = runtime.get("r")
    run.send(HumanResponseEvent(text="still here"))
    assert (await run.outcome()).result == "still here"
    gone = weakref.ref(run)
    del run
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_given_clock_is_what_runs_read() -> None:
    runtime = MemoryRuntime(clock=lambda: 123.0)
    workflow = Prompting(runtime=runtime)
    assert runtime.now() == 123.0
    handler = workflow.run(run_id="r")
    run = runtime.get("r")
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    await handler
    assert {tick.at for tick in run.journal} == {123.0}


async def test_a_restored_context_of_an_idle_run_is_idle(until_idle: Any) -> None:
    workflow = Asking()
    handler = workflow.run()
    await until_idle(handler)
    saved = handler.ctx.to_dict()
    await handler.cancel_run()
    assert (handler.ctx.is_running, handler.ctx.is_idle) == (False, False)

    restored = Context.from_dict(workflow, saved)
    assert (restored.is_running, restored.is_idle) == (True, True)
    again = workflow.run(ctx=restored)
    await again.send_event(HumanResponseEvent(kind=None, text="yes"))
    assert await again == "yes"
    assert (restored.is_running, restored.is_idle) == (False, False)
