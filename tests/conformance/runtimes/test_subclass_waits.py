"""Waiters of a step that accepts subclasses: an event of a derived class answers a wait for its base."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until_idle, until_info, until_released

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, step


class Verdict(HumanResponseEvent):
    by: str


class Approval(Verdict):
    limit: int = 0


class FullApproval(Approval):
    pass


class PartA(Event):
    pass


class PartB(Event):
    pass


class PartC(Event):
    pass


class Told(Event):
    text: str


class Open(Watched):
    """Takes subclasses, of what it waits for too."""

    @step(accept_event_subclasses=True)
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Verdict, waiter_event=InputRequiredEvent(), waiter_id="open", timeout=None)
        return StopEvent(result=[type(answer).__name__, answer.by])


class Strict(Watched):
    """Takes exactly what it waits for."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Verdict, waiter_event=InputRequiredEvent(), waiter_id="strict", timeout=None)
        return StopEvent(result=[type(answer).__name__, answer.by])


class Both(Watched):
    """Waits in three steps at once, of which one takes subclasses, and one wants a value."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> PartA | PartB | PartC | None:
        for part in (PartA, PartB, PartC):
            ctx.send_event(part())
        return None

    @step
    async def exact(self, ctx: Context, ev: PartA) -> Told:
        return Told(text="exact " + type(await ctx.wait_for_event(Verdict, timeout=None)).__name__)

    @step(accept_event_subclasses=True)
    async def any_kind(self, ctx: Context, ev: PartB) -> Told:
        return Told(text="any " + type(await ctx.wait_for_event(Verdict, timeout=None)).__name__)

    @step(accept_event_subclasses=True)
    async def by_eva(self, ctx: Context, ev: PartC) -> Told:
        answer = await ctx.wait_for_event(Verdict, requirements={"by": "eva"}, timeout=None)
        return Told(text="eva " + type(answer).__name__)

    @step
    async def end(self, ctx: Context, ev: Told) -> StopEvent | None:
        found = ctx.collect_events(ev, [Told] * 3)
        return StopEvent(result=sorted(told.text for told in found)) if found is not None else None


@pytest.mark.parametrize("answer", [Verdict(by="ann"), Approval(by="ann"), FullApproval(by="ann", limit=3)])
@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_a_derived_event_answers_where_the_step_takes_subclasses(
    deployment: Deployment, witness: Witness, answer: Verdict, idle_timeout: float | None
) -> None:
    runtime = await deployment.open({"open": Open(witness)}, idle_timeout=idle_timeout)
    handler = await runtime.start("open", run_id="a")
    await (until_idle if idle_timeout is None else until_released)(runtime, "a")
    await runtime.send_event("a", answer)
    assert await result(handler) == [type(answer).__name__, "ann"]


async def test_a_derived_event_answers_after_a_crash_and_from_another_process(
    deployment: Deployment, witness: Witness
) -> None:
    first = await deployment.open({"open": Open(witness)})
    await first.start("open", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    sender = await deployment.open_reader({})
    await sender.send_event("a", FullApproval(by="eva"))
    second = await deployment.open({"open": Open(witness)})
    assert await result(await second.handler("a")) == ["FullApproval", "eva"]


async def test_a_derived_event_that_comes_early_is_kept_for_such_a_wait(
    deployment: Deployment, witness: Witness
) -> None:
    witness.hold("begun")

    class Late(Watched):
        @step(accept_event_subclasses=True)
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await self.witness.at("begun")
            answer = await ctx.wait_for_event(Verdict, timeout=None)
            return StopEvent(result=[type(answer).__name__, answer.by])

    runtime = await deployment.open({"late": Late(witness)})
    handler = await runtime.start("late", run_id="a")
    await witness.came("begun")
    await runtime.send_event("a", Approval(by="ann"))
    witness.let("begun")
    assert await result(handler) == ["Approval", "ann"]


async def test_a_derived_event_does_not_answer_a_step_that_takes_exact_types(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"strict": Strict(witness)})
    handler = await runtime.start("strict", run_id="a")
    await until_idle(runtime, "a")
    await runtime.send_event("a", Approval(by="ann"))
    await until_info(runtime, "a", lambda info: info.kept_events == 1)
    await runtime.send_event("a", Verdict(by="eva"))
    assert await result(handler) == ["Verdict", "eva"]


async def test_one_derived_event_answers_all_that_take_it_and_no_other(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"both": Both(witness)})
    handler = await runtime.start("both", run_id="a")
    await until_info(runtime, "a", lambda info: len(info.active_waiters) == 3)
    await runtime.send_event("a", Approval(by="ann"))
    info = await until_info(runtime, "a", lambda info: len(info.active_waiters) == 2)
    assert sorted(waiter["step"] for waiter in info.active_waiters) == ["by_eva", "exact"]
    await runtime.send_event("a", FullApproval(by="eva"))
    await until_info(runtime, "a", lambda info: len(info.active_waiters) == 1)
    await runtime.send_event("a", Verdict(by="ann"))
    assert await result(handler) == ["any Approval", "eva FullApproval", "exact Verdict"]
