"""Runs that are idle although nothing can move them: told apart from runs that wait, found, and shown with a reason."""

from __future__ import annotations

import logging

import pytest
from runtime_deployments import Deployment
from runtime_watching import result, until_idle, until_info

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in


class Work(Event):
    """What the last step takes."""


class Lost(Event):
    """What no step takes."""


class Page(Event):
    """What a step takes that is sent from outside."""

    number: int


class Word(HumanResponseEvent):
    text: str = ""


class Stuck(Workflow):
    """Ends, or stops short of it, by what it was started with."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Work | Page | None:
        if ev.how == "none":
            return None
        if ev.how == "lost":
            return Lost()  # type: ignore[return-value]
        if ev.how == "collect":
            ctx.collect_events(Work(), [Work, Work])
            return None
        if ev.how == "sent":
            ctx.send_event(Lost())
            return None
        await ctx.wait_for_event(Word, timeout=None)
        return Work()

    @step
    async def turn(self, ev: Page) -> Work:
        return Work()

    @step
    async def finish(self, ev: Work) -> StopEvent:
        return StopEvent(result="done")


class Asks(Workflow):
    """Asks by an event, and has a step that takes the answer."""

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent()

    @step
    async def answered(self, ev: Word) -> StopEvent:
        return StopEvent(result=ev.text)


REASONS = {
    "none": "Step 'begin' returned None, and nothing else was left to do.",
    "lost": "No step takes 'Lost', which step 'begin' returned.",
    "collect": "Step 'begin' still collects events (2 of 'Work'), and nothing is left that could make one.",
    "sent": (
        "Step 'begin' returned None, and nothing else was left to do. No step takes 'Lost', which step 'begin' sent."
    ),
}


async def stuck(runtime: DurableRuntime, **filters: bool) -> list[str]:
    return sorted([info.run_id async for info in runtime.list(**{"stuck": True, **filters})])


async def test_a_run_is_stuck_when_it_is_idle_and_nobody_waits(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="loom"):
        runtime = await deployment.open({"w": Stuck(), "asks": Asks()}, idle_timeout=0)
        for how in [*REASONS, "wait"]:
            await runtime.start("w", {"how": how}, run_id=how)
        await runtime.start("asks", run_id="asks")
        for how, reason in REASONS.items():
            info = await until_info(runtime, how, lambda info: info.stuck)
            assert (info.stuck, info.status, info.error) == (reason, "running", None)
        for waiting in ("wait", "asks"):
            await until_idle(runtime, waiting)
            info = await runtime.get(waiting)
            assert info.stuck is None
            assert info.active_waiters
        assert await stuck(runtime) == sorted(REASONS)
        assert sorted([info.run_id async for info in runtime.list(idle=True, stuck=False)]) == ["asks", "wait"]
        # A client without the code, or another process, is told the same.
        other = await deployment.open_reader({"w": Stuck(), "asks": Asks()})
        assert (await other.get("none")).stuck == REASONS["none"]
        assert await stuck(other) == sorted(REASONS)
    said = [record.getMessage() for record in caplog.records if "is stuck" in record.getMessage()]
    assert sorted(said) == sorted(f"Run {how} of w is stuck: {reason}" for how, reason in REASONS.items())


async def test_a_stuck_run_that_is_paused_or_told_something_is_not_stuck(deployment: Deployment) -> None:
    runtime = await deployment.open({"w": Stuck()}, idle_timeout=0)
    await runtime.start("w", {"how": "none"}, run_id="a")
    await until_info(runtime, "a", lambda info: info.stuck)
    await runtime.pause("a")
    info = await until_info(runtime, "a", lambda info: info.paused)
    assert (info.stuck, await stuck(runtime)) == (None, [])
    await runtime.resume("a")
    info = await until_info(runtime, "a", lambda info: info.stuck)
    assert info.stuck == REASONS["none"]
    assert await stuck(runtime) == ["a"]
    # What nobody waits for is kept, and is the newest thing that can be said of it.
    await runtime.send_event("a", Word(text="x"))
    info = await until_info(runtime, "a", lambda info: info.kept_events)
    assert info.stuck == "No step takes 'Word' and none waits for it: it came from outside, and is kept."
    await runtime.send_event("a", Work())
    assert await result(await runtime.handler("a")) == "done"
    assert (await runtime.get("a")).stuck is None
    assert await stuck(runtime) == []


async def test_a_stuck_run_tells_of_the_event_that_it_was_refused(deployment: Deployment) -> None:
    runtime = await deployment.open({"w": Stuck()}, idle_timeout=0)
    client = await deployment.open()
    await runtime.start("w", {"how": "none"}, run_id="a")
    await until_info(runtime, "a", lambda info: info.stuck)
    page = stand_in(wire_name(Page))
    await client.send_event("a", page(number="three"))
    info = await until_info(runtime, "a", lambda info: info.stuck and info.stuck != REASONS["none"])
    assert info.stuck is not None
    assert info.stuck.startswith("Step 'turn' was sent 'Page', which does not fit its class: number: Input should be")
    assert info.stuck in (await runtime.why("a")).sentence
    await client.send_event("a", page(number=3))
    assert await result(await runtime.handler("a")) == "done"
