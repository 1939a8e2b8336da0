"""Which steps get which events, in which order, and on which workers."""

from __future__ import annotations

import asyncio

import pytest
from limited_workers import Done, Job, Limited
from steps_rig import eventually, of_type, streamed

from loom import Context, Event, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StepState, StepStateChanged, UnhandledEvent, WorkflowIdleEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Animal(Event):
    name: str = ""


class Dog(Animal):
    pass


class Ask(InputRequiredEvent):
    question: str = ""


class TwoSteps(Workflow):
    @step
    async def first(self, ev: StartEvent) -> Job:
        return Job(n=ev.n)

    @step
    async def second(self, ev: Job) -> StopEvent:
        return StopEvent(result=ev.n + 1)


async def test_event_goes_to_the_step_that_accepts_its_type():
    assert await TwoSteps(timeout=5).run(n=1) == 2


class ExactMatch(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Dog | None:
        ctx.send_event(Dog(name="rex"))
        return None

    @step
    async def base(self, ev: Animal) -> StopEvent:
        return StopEvent(result=f"base got {type(ev).__name__}")

    @step
    async def exact(self, ev: Dog) -> StopEvent:
        return StopEvent(result=f"exact got {type(ev).__name__}")


async def test_matching_is_by_exact_type():
    assert await ExactMatch(timeout=5, disable_validation=True).run() == "exact got Dog"


class SubclassMatch(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Dog:
        return Dog(name="rex")

    @step(accept_event_subclasses=True)
    async def base(self, ev: Animal) -> StopEvent:
        return StopEvent(result=type(ev).__name__)


async def test_step_that_accepts_subclasses_matches_by_isinstance():
    assert await SubclassMatch(timeout=5).run() == "Dog"


class Everyone(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Job:
        return Job(n=7)

    @step
    async def left(self, ev: Job) -> Done:
        return Done(n=ev.n)

    @step
    async def right(self, ev: Job) -> Done:
        return Done(n=-ev.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        both = ctx.collect_events(ev, [Done, Done])
        return StopEvent(result=sorted(e.n for e in both)) if both else None


async def test_event_goes_to_every_step_that_accepts_it():
    assert await Everyone(timeout=5).run() == [-7, 7]


class Aimed(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        ctx.send_event(Job(n=1), step="right")
        return None

    @step
    async def left(self, ev: Job) -> StopEvent:
        return StopEvent(result="left")

    @step
    async def right(self, ev: Job) -> StopEvent:
        return StopEvent(result="right")


async def test_aimed_event_goes_to_one_step():
    assert await Aimed(timeout=5).run() == "right"


class WrongAim(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        problems = []
        for target in ("nowhere", "start"):
            try:
                ctx.send_event(Job(), step=target)
            except WorkflowRuntimeError as error:
                problems.append(str(error))
        return StopEvent(result=problems)


async def test_wrong_target_is_an_error_at_the_call():
    unknown, wrong = await WrongAim(timeout=5).run()
    assert unknown == "Step nowhere does not exist"
    assert wrong.startswith("Step start does not accept event of type")
    assert "Job" in wrong


async def test_wrong_target_is_an_error_at_the_handler_too():
    handler = Waiting(timeout=5).run()
    with pytest.raises(WorkflowRuntimeError, match="Step nowhere does not exist"):
        handler.ctx.send_event(Job(), step="nowhere")
    await handler.cancel_run()


class Waiting(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Done)
        return StopEvent()


async def test_queue_is_fifo_and_bounded_by_num_workers():
    workflow = Limited()
    handler = workflow.run()
    for n, gate in enumerate(workflow.gates):
        await eventually(lambda n=n: n in workflow.begun)
        gate.set()
    assert sorted(await handler) == list(range(6))
    assert workflow.begun == list(range(6))
    assert workflow.most == 2


async def test_worker_ids_are_the_smallest_free_ones():
    workflow = Limited()
    handler = workflow.run()
    seen: list[tuple[str, str]] = []
    async for event in handler.stream_events(expose_internal=True):
        if not isinstance(event, StepStateChanged) or event.name != "work" or event.step_state != StepState.RUNNING:
            continue
        seen.append(event.worker_id)
        if len(seen) == 2:
            workflow.gates[1].set()  # worker 1 becomes free while worker 0 is busy
        if len(seen) == 3:
            workflow.gates[0].set()
        if len(seen) == 4:
            for gate in workflow.gates:
                gate.set()
            break
    await handler
    assert seen == ["0", "1", "1", "0"]


class HeadOfQueue(Workflow):
    order: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(3):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: Job) -> Done:
        self.order.append(f"{ev.n}.{ctx.retry_info().retry_number}")
        if ev.n == 0 and ctx.retry_info().retry_number == 0:
            raise ValueError("once")
        return Done(n=ev.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        return StopEvent() if ctx.collect_events(ev, [Done] * 3) else None


async def test_retry_goes_to_the_head_of_the_queue():
    workflow = HeadOfQueue(timeout=5)
    workflow.order = []
    await workflow.run()
    assert workflow.order == ["0.0", "0.1", "1.0", "2.0"]


class Unheard(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.send_event(Job(n=3))
        ctx.send_event(Ask(question="?"))
        return StopEvent(result="ok")


async def test_event_that_nothing_takes_is_reported_and_is_no_error():
    handler = Unheard(timeout=5).run()
    events = await streamed(handler, internal=True)
    assert await handler == "ok"
    (report,) = of_type(events, UnhandledEvent)
    assert report.event_type == "Job"
    assert report.qualified_name.endswith(".Job")
    assert report.step_name is None
    assert report.idle is False


async def test_unheard_event_from_outside_in_an_idle_run_says_so():
    handler = Waiting(timeout=5).run()
    stream = handler.stream_events(expose_internal=True)
    async for event in stream:
        if isinstance(event, WorkflowIdleEvent):
            break
    handler.ctx.send_event(Job())
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, UnhandledEvent):
            assert event.event_type == "Job"
            assert event.idle is True
            break
    await handler.cancel_run()


class Asking(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Ask:
        return Ask(question="really?")

    @step
    async def answer(self, ev: Done) -> StopEvent:
        return StopEvent(result=ev.n)


async def test_returned_input_request_is_published_by_itself():
    handler = Asking(timeout=5, disable_validation=True).run()
    async for event in handler.stream_events():
        assert type(event) is Ask
        assert event.question == "really?"
        break
    handler.ctx.send_event(Done(n=4))
    assert await handler == 4


class StopWins(Workflow):
    cancelled: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | Done | None:
        ctx.send_event(Job())
        ctx.send_event(Done())
        return None

    @step
    async def slow(self, ev: Job) -> StopEvent:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append("slow")
            raise
        return StopEvent(result="slow")

    @step
    async def quick(self, ev: Done) -> StopEvent:
        await asyncio.sleep(0)
        return StopEvent(result="quick")


async def test_returned_stop_event_ends_the_run_and_cancels_the_rest():
    workflow = StopWins(timeout=5)
    workflow.cancelled = []
    handler = workflow.run()
    events = await streamed(handler)
    assert await handler == "quick"
    assert workflow.cancelled == ["slow"]
    assert [type(e) for e in events] == [StopEvent]


class SentStop(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job:
        ctx.send_event(StopEvent(result="sent"))
        await asyncio.sleep(0)
        return Job()

    @step
    async def end(self, ev: Job) -> StopEvent:
        return StopEvent(result="returned")


async def test_stop_event_that_is_sent_ends_nothing():
    assert await SentStop(timeout=5).run() == "returned"


class SendsThenReturns(Workflow):
    seen: list[int]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job:
        ctx.send_event(Job(n=1))
        ctx.send_event(Job(n=2))
        return Job(n=3)

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Job) -> StopEvent | None:
        self.seen.append(ev.n)
        return StopEvent(result=self.seen) if ev.n == 3 else None


async def test_sent_events_come_in_order_and_before_the_result():
    workflow = SendsThenReturns(timeout=5)
    workflow.seen = []
    assert await workflow.run() == [1, 2, 3]


class Branches(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        ctx.send_event(Job(n=1))
        ctx.send_event(Job(n=2))
        return None

    @step(num_workers=1)
    async def work(self, ev: Job) -> StopEvent | None:
        return None if ev.n == 1 else StopEvent(result=ev.n)


async def test_none_ends_the_branch_only():
    assert await Branches(timeout=5).run() == 2
