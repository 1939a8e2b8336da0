"""When a run is stuck, why it is said to be, and what a run in memory logs of it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from loom import Context, Event, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.api.problems import NOBODYS_TURN, is_stuck
from loom.core.records import EventKind, EventRecord, UnhandledReport
from loom.core.ticks import CollectCall, Source, TickAddEvent, TickStartRun, TickStepResult
from loom.runtime.run_head import StuckReason
from loom.store.records import RunHead

LOST = EventKind("shop.Lost", label="Lost")


def test_only_an_idle_run_that_waits_for_nothing_is_stuck() -> None:
    for status, *marks in itertools.product(("running", "failed"), *[(False, True)] * 4):
        idle, waits, paused, parked = marks
        stuck = is_stuck(str(status), idle=bool(idle), waits=bool(waits), paused=bool(paused), parked=bool(parked))
        assert stuck == ((status, *marks) == ("running", True, False, False, False))
        head = RunHead(
            status,  # type: ignore[arg-type]
            1,
            1,
            1.0,
            idle_since=1.0 if idle else None,
            waiting_for=("Word",) if waits else (),
            paused=bool(paused),
            parked="why" if parked else None,
            error="reason",
        )
        assert head.stuck == ("reason" if stuck else None)


def result(returned: tuple[EventRecord, ...] = (), collects: tuple[CollectCall, ...] = ()) -> TickStepResult:
    return TickStepResult(at=1.0, step="a", item=1, seq=1, returned=returned, collects=collects)


def test_reasons() -> None:
    lost = EventRecord(LOST)
    asked = EventRecord(EventKind("shop.Ask", ("workflows.events.InputRequiredEvent",), "Ask"))
    report = UnhandledReport(LOST, None, True)
    cases = [
        ([], [], NOBODYS_TURN),
        ([result()], [], "Step 'a' returned None, and nothing else was left to do."),
        ([result((lost,))], [report], "No step takes 'Lost', which step 'a' returned."),
        ([result((asked,))], [], "Step 'a' asked by 'Ask', but no step takes an answer."),
        (
            [TickAddEvent(at=1.0, event=lost, source=Source("a", 1, 1, 0)), result()],
            [report],
            "Step 'a' returned None, and nothing else was left to do. No step takes 'Lost', which step 'a' sent.",
        ),
        ([TickAddEvent(at=1.0, event=lost)], [report], "No step takes 'Lost', which came from outside."),
        (
            [TickStartRun(at=1.0, run_id="r", config=None, event=lost)],  # type: ignore[arg-type]
            [report],
            "No step takes 'Lost', which the run began with.",
        ),
        (
            [TickAddEvent(at=1.0, event=lost)],
            [UnhandledReport(LOST, None, True, kept=True)],
            "No step takes 'Lost' and none waits for it: it came from outside, and is kept.",
        ),
        (
            [result(collects=(CollectCall("default", lost, (("shop.Lost", 2),), False, 0),))],
            [],
            "Step 'a' still collects events (2 of 'Lost'), and nothing is left that could make one.",
        ),
    ]
    for ticks, published, text in cases:
        reason = StuckReason()
        reason.follow(ticks, published)  # type: ignore[arg-type]
        assert reason.text == text


def test_what_an_earlier_owner_said_holds_until_something_happens() -> None:
    reason = StuckReason("as before")
    reason.follow([], [])
    assert reason.text == "as before"
    reason.follow([result()], [])
    assert reason.text == "Step 'a' returned None, and nothing else was left to do."


class Lost(Event):
    pass


class Halts(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Lost | StopEvent:
        return Lost()


class Waits(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.wait_for_event(InputRequiredEvent))


@pytest.mark.parametrize(("workflow", "said"), [(Halts, True), (Waits, False)])
async def test_a_stuck_run_in_memory_is_logged_once(
    workflow: type[Workflow], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    handler = workflow(timeout=None, disable_validation=True).run(run_id="r")
    while not handler.ctx.is_idle:  # noqa: ASYNC110 - a turn of the loop at a time
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    found = [record.getMessage() for record in caplog.records if "stuck:" in record.getMessage()]
    assert found == (
        [f"Run r of {__name__}.Halts is stuck: No step takes 'Lost', which step 'begin' returned."] if said else []
    )
    await handler.cancel_run()
