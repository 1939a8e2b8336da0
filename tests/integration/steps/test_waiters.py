"""`ctx.wait_for_event`: who is answered with what, and what a waiting body meets."""

from __future__ import annotations

import asyncio

import pytest
from steps_rig import of_type, step_states, until, until_idle

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Ask(InputRequiredEvent):
    question: str = ""


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class LoudReply(Reply):
    pass


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0
    text: str = ""


class AskOnce(Workflow):
    bodies = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        reply = await ctx.wait_for_event(Reply, waiter_event=Ask(question="name?"))
        return StopEvent(result=reply.text)


async def test_body_waits_for_its_event_and_runs_once():
    workflow = AskOnce(timeout=5)
    handler = workflow.run()
    ask = await until(handler.stream_events(), Ask)
    assert ask.question == "name?"
    await handler.send_event(Reply(text="Ada"))
    assert await handler == "Ada"
    assert workflow.bodies == 1


async def test_waiter_event_is_published_once():
    handler = AskOnce(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="Ada"))
    await handler
    events = [e async for e in handler.stream_events(after=-1)]
    assert len(of_type(events, Ask)) == 1


async def test_waiting_step_shows_as_not_running_and_running_again():
    handler = AskOnce(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="x"))
    await handler
    events = [e async for e in handler.stream_events(expose_internal=True, after=-1)]
    assert step_states(events) == [
        ("ask", "running", "0"),
        ("ask", "not_running", "0"),
        ("ask", "running", "0"),
        ("ask", "not_running", "0"),
    ]


class WithRequirements(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, requirements={"who": "ada"})
        return StopEvent(result=reply.text)


async def test_requirements_compare_the_fields_of_the_event():
    handler = WithRequirements(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="no", who="bob"))
    handler.ctx.send_event(Reply(text="yes", who="ada"))
    assert await handler == "yes"


class ExtraRequirement(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, requirements={"ticket": 7})
        return StopEvent(result=reply.text)


async def test_requirements_see_extra_fields_and_missing_ones_as_none():
    handler = ExtraRequirement(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="no ticket"))
    handler.ctx.send_event(Reply(text="ticket", ticket=7))
    assert await handler == "ticket"


class Branches(Workflow):
    """Three parallel executions of one step that wait."""

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(3):
            ctx.send_event(Job(n=n))
        return None

    @step
    async def ask(self, ctx: Context, ev: Job) -> Done:
        wanted = {"who": str(ev.n)} if self.with_requirements else None
        waiter_id = f"w{ev.n}" if self.with_ids else None
        reply = await ctx.wait_for_event(
            Reply, waiter_event=Ask(question=str(ev.n)), requirements=wanted, waiter_id=waiter_id
        )
        return Done(n=ev.n, text=reply.text)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        done = ctx.collect_events(ev, [Done] * 3)
        return StopEvent(result={e.n: e.text for e in done}) if done else None

    with_requirements = with_ids = False


async def test_one_event_resolves_every_pending_waiter_that_matches():
    handler = Branches(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="all"))
    assert await handler == {0: "all", 1: "all", 2: "all"}


async def test_executions_of_one_step_have_waiters_of_their_own():
    handler = Branches(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="all"))
    await handler
    events = [e async for e in handler.stream_events(after=-1)]
    assert sorted(e.question for e in of_type(events, Ask)) == ["0", "1", "2"]


async def test_branches_get_their_own_answers_by_requirements():
    workflow = Branches(timeout=5)
    workflow.with_requirements = True
    handler = workflow.run()
    await until_idle(handler)
    for n in (2, 0, 1):
        handler.ctx.send_event(Reply(text=f"for {n}", who=str(n)))
    assert await handler == {0: "for 0", 1: "for 1", 2: "for 2"}


async def test_branches_get_their_own_answers_by_waiter_id():
    workflow = Branches(timeout=5)
    workflow.with_ids = True
    handler = workflow.run()
    await until_idle(handler)
    for n in (2, 0, 1):
        handler.ctx.send_event(Reply(text=f"for {n}"), waiter_id=f"w{n}")
    assert await handler == {0: "for 0", 1: "for 1", 2: "for 2"}


class Worker(Workflow):
    """One worker; the first job waits, the second must get the worker meanwhile."""

    seen: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        ctx.send_event(Job(n=0))
        ctx.send_event(Job(n=1))
        return None

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Job) -> StopEvent | None:
        self.seen.append(f"begin {ev.n}")
        if ev.n == 1:
            ctx.send_event(Reply(text="from the other"))
            await asyncio.sleep(0)
            self.seen.append("end 1")
            return None
        reply = await ctx.wait_for_event(Reply)
        self.seen.append("end 0")
        return StopEvent(result=reply.text)


async def test_waiting_execution_frees_its_worker_and_needs_one_to_go_on():
    workflow = Worker(timeout=5, disable_validation=True)
    workflow.seen = []
    assert await workflow.run() == "from the other"
    assert workflow.seen == ["begin 0", "begin 1", "end 1", "end 0"]


async def test_waiting_step_is_not_active_in_the_timeout_message():
    handler = AskOnce(timeout=0.05).run()
    with pytest.raises(WorkflowTimeoutError, match=r"Operation timed out after 0\.05 seconds\. No steps active"):
        await handler


class Impatient(Workflow):
    bodies = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        try:
            await ctx.wait_for_event(Reply, timeout=0.02)
        except TimeoutError as error:
            return StopEvent(result=str(error))
        return StopEvent(result="answered")


async def test_timeout_is_raised_in_the_step():
    workflow = Impatient(timeout=5)
    assert await workflow.run() == "Timed out waiting for Reply"
    assert workflow.bodies == 1


async def test_reply_in_time_beats_the_timeout_of_the_waiter():
    class Patient(Impatient):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply, timeout=60)
            return StopEvent(result="answered")

    handler = Patient(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply())
    assert await handler == "answered"


class Retried(Workflow):
    answers: list[str]

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, waiter_event=Ask(question="?"))
        self.answers.append(reply.text)
        if len(self.answers) < 3:
            raise ValueError("again")
        return StopEvent(result=self.answers)


async def test_retry_after_a_resolved_wait_sees_the_same_answer():
    workflow = Retried(timeout=5)
    workflow.answers = []
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="one"))
    assert await handler == ["one", "one", "one"]
    events = [e async for e in handler.stream_events(after=-1)]
    assert len(of_type(events, Ask)) == 1


class WaiterFirst(Workflow):
    taken: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply)
        await asyncio.sleep(0)
        self.taken.append(f"start {reply.text}")
        await self.gate.wait()
        return StopEvent()

    @step
    async def also(self, ev: Reply) -> None:
        self.taken.append(f"also {ev.text}")
        self.gate.set()


async def test_waiters_come_first_and_other_steps_get_the_event_too():
    workflow = WaiterFirst(timeout=5, disable_validation=True)
    workflow.taken, workflow.gate = [], asyncio.Event()
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r"))
    await handler
    assert sorted(workflow.taken) == ["also r", "start r"]


class WokenOnly(Workflow):
    """A step that both takes a type as input and waits for it."""

    inputs: list[str]

    @step
    async def start(self, ev: StartEvent) -> Reply:
        return Reply(text="first")

    @step
    async def chat(self, ctx: Context, ev: Reply) -> StopEvent:
        self.inputs.append(ev.text)
        more = await ctx.wait_for_event(Reply)
        return StopEvent(result=more.text)


async def test_woken_step_does_not_get_the_event_as_input_as_well():
    workflow = WokenOnly(timeout=5, disable_validation=True)
    workflow.inputs = []
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="second"))
    assert await handler == "second"
    assert workflow.inputs == ["first"]


async def test_event_aimed_at_another_step_resolves_waiters_too():
    workflow = WaiterFirst(timeout=5, disable_validation=True)
    workflow.taken, workflow.gate = [], asyncio.Event()
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r"), step="also")
    await handler
    assert sorted(workflow.taken) == ["also r", "start r"]


async def test_subclass_does_not_resolve_a_waiter_of_its_base():
    handler = AskOnce(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(LoudReply(text="LOUD"))
    handler.ctx.send_event(Reply(text="quiet"))
    assert await handler == "quiet"


class Subclasses(Workflow):
    @step(accept_event_subclasses=True)
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply)
        return StopEvent(result=type(reply).__name__)


async def test_waiter_of_a_step_that_accepts_subclasses_takes_them():
    handler = Subclasses(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(LoudReply())
    assert await handler == "LoudReply"
