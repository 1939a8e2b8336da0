"""Events that do not fit their class: refused if nobody had checked them, and the wait goes on; else the run parks."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, soon, tick_names, until_idle, until_info, until_released

from loom import Context, HumanResponseEvent, InputRequiredEvent, RunInfo, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.events import Event
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in


class Question(InputRequiredEvent):
    text: str = ""


class Approval(HumanResponseEvent):
    approved: bool
    by: str


class Asking(Watched):
    """Waits for an answer within an hour."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("ask")
        answer = await ctx.wait_for_event(Approval, waiter_event=Question(text="well?"), waiter_id="boss", timeout=3600)
        return StopEvent(result=answer.by)


class Taking(Watched):
    """Asks by an event; a step takes the answer."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="well?")

    @step
    async def take(self, ev: Approval) -> StopEvent:
        return StopEvent(result=ev.by)


def unchecked(**fields: Any) -> Event:
    """An answer as it is sent where its class is not known."""
    return stand_in(wire_name(Approval))(**fields)


def refusal(info: RunInfo) -> Any:
    """What the first waiter says of the answer that was refused last."""
    return info.active_waiters[0].get("refused") if info.active_waiters else None


async def refusals(runtime: DurableRuntime, run_id: str) -> list[Any]:
    """What the stream says of refused answers, once the run has ended."""
    handler = await runtime.handler(run_id)
    return [event async for event in handler.stream_events() if type(event).__name__ == "AnswerRefusedEvent"]


async def test_a_wrong_answer_is_refused_and_the_wait_goes_on(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness)})
    client = await deployment.open()
    await runtime.start("asking", run_id="a")
    before = (await until_idle(runtime, "a")).active_waiters[0]
    assert await client.send_event("a", unchecked(approved=True, by_whom="ann"), event_id="1")
    info = await until_info(runtime, "a", lambda info: info.idle_since and refusal(info))
    assert info.status == "running"
    assert refusal(info)["event_type"] == "Approval"
    assert refusal(info)["reason"] == "by: Field required"
    after = {name: value for name, value in info.active_waiters[0].items() if name != "refused"}
    assert after == before
    # The id stays with the event that had it: another answer is another event.
    assert not await client.send_event("a", unchecked(approved=True, by="ann"), event_id="1")
    assert await client.send_event("a", unchecked(approved=True, by="ann"), event_id="2")
    assert await result(await runtime.handler("a")) == "ann"
    [told] = await soon(refusals(runtime, "a"))
    assert (told.event_type, told.step, told.reason) == ("Approval", "ask", "by: Field required")
    names = await tick_names(runtime, "a")
    assert names.count("TickRefuseEvent") == 1
    if deployment.holds_bodies:
        assert witness.count("ask") == 1


async def test_a_wrong_answer_to_a_run_outside_of_memory(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness)}, idle_timeout=0.02)
    await runtime.start("asking", run_id="a")
    before = (await until_idle(runtime, "a")).active_waiters[0]
    await until_released(runtime, "a")
    for _ in range(2):
        await (await deployment.open()).send_event("a", unchecked(approved="maybe", by="ann"))
    info = await until_info(runtime, "a", lambda info: refusal(info) and info.idle_since and not info.kept_events)
    assert info.active_waiters[0]["deadline"] == before["deadline"]
    await until_released(runtime, "a")
    await runtime.send_event("a", Approval(approved=True, by="ann"))
    assert await result(await runtime.handler("a")) == "ann"
    assert len(await soon(refusals(runtime, "a"))) == 2


async def test_a_wrong_answer_to_a_step_is_dropped_and_the_run_waits(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"taking": Taking(witness)})
    client = await deployment.open()
    await runtime.start("taking", run_id="a")
    await until_idle(runtime, "a")
    await client.send_event("a", unchecked(approved=True))
    info = await until_info(runtime, "a", lambda info: info.idle_since and refusal(info))
    assert (info.status, refusal(info)["reason"]) == ("running", "by: Field required")
    await runtime.send_event("a", Approval(approved=True, by="ann"))
    assert await result(await runtime.handler("a")) == "ann"
    assert [told.step for told in await soon(refusals(runtime, "a"))] == ["take"]


def _code(*required: str) -> tuple[type[Event], type[Watched]]:
    """A version of a class of events, and a workflow that waits for it."""
    body = {"__annotations__": dict.fromkeys(("text", *required), str), "__module__": __name__}
    cls: Any = type("Changing", (HumanResponseEvent,), {**body, "__qualname__": "Changing"})

    class Waits(Watched):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.witness.saw("ask")
            try:
                word = await ctx.wait_for_event(cls, timeout=None)
            except Exception as error:  # noqa: BLE001 - a body that catches everything
                return StopEvent(result=repr(error))
            await self.witness.at("after")
            return StopEvent(result=word.text)

    return cls, Waits


async def test_a_checked_answer_that_does_not_fit_parks_the_run(deployment: Deployment, witness: Witness) -> None:
    word, waits = _code()
    first = await deployment.open({"waits": waits(witness)})
    await first.start("waits", run_id="a")
    await until_idle(first, "a")
    witness.hold("after")
    await first.send_event("a", word(text="x"))
    await witness.came("after")
    await deployment.crash(first)
    _, narrower = _code("by")
    second = await deployment.open({"waits": narrower(witness)})
    info = await until_info(second, "a", lambda info: info.parked)
    assert info.status == "running"
    assert info.parked is not None
    assert "Changing does not fit its class: by: Field required" in info.parked
    await deployment.close(second)
    witness.let("after")
    _, wider = _code()
    third = await deployment.open({"waits": wider(witness)})
    assert await result(await third.handler("a")) == "x"
    assert "TickRefuseEvent" not in await tick_names(third, "a")


async def test_a_right_answer_where_the_class_is_known_is_checked_by_the_sender(deployment: Deployment) -> None:
    runtime = await deployment.open({"asking": Asking()})
    await runtime.start("asking", run_id="a")
    await until_idle(runtime, "a")
    with pytest.raises(ValueError, match=r"Approval does not fit its class: by: Field required"):
        await runtime.send_event("a", unchecked(approved=True))
    await runtime.send_event("a", unchecked(approved=True, by="ann"))
    assert await result(await runtime.handler("a")) == "ann"


async def test_an_instance_that_nobody_validated_is_checked_by_the_sender(deployment: Deployment) -> None:
    runtime = await deployment.open({"asking": Asking()})
    await runtime.start("asking", run_id="a")
    await until_idle(runtime, "a")
    changed = Approval(approved=True, by="ann")
    changed.by = None  # type: ignore[assignment]
    for wrong, reason in (
        (Approval.model_construct(approved=True), "by: Field required"),
        (changed, "by: Input should be a valid string"),
    ):
        with pytest.raises(ValueError, match=f"Approval does not fit its class: {reason}"):
            await runtime.send_event("a", wrong)
    await runtime.send_event("a", Approval(approved=True, by="ann"))
    assert await result(await runtime.handler("a")) == "ann"


async def test_a_sender_whose_class_is_older_does_not_park_the_run(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness)})
    client = await deployment.open()
    await runtime.start("asking", run_id="a")
    await until_idle(runtime, "a")
    # What a client makes of a class that had no `by` yet: it fitted there, and does not fit the run's class.
    await client.send_event("a", Approval.model_construct(approved=True))
    info = await until_info(runtime, "a", lambda info: info.parked or (info.idle_since and refusal(info)))
    assert info.parked is None
    await client.send_event("a", Approval(approved=True, by="ann"))
    assert await result(await runtime.handler("a")) == "ann"
