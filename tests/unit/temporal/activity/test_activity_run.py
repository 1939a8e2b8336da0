"""What a body does inside an activity, and how it reaches the run: the real reducer, no server."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from activity_world import QUICK, World
from hand_made import START
from msgspec.structs import replace
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import (
    TickChildEnded,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPublishEvent,
    TickRecordResult,
    TickStepResult,
)
from loom.effects.event_codec import MissingTypeError
from loom.steps.errors import ContextStateError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Noted(Event):
    text: str = ""


class Shown(Event):
    number: int = 0


# -- effects --------------------------------------------------------------------------------------------------------


class Quick(Workflow):
    @step
    async def first(self, ev: StartEvent, ctx: Context) -> Noted | None:
        ctx.write_event_to_stream(Shown(number=1))
        ctx.send_event(Noted(text="sent"))
        return None

    @step
    async def second(self, ev: Noted) -> StopEvent:
        return StopEvent(result=ev.text)


async def test_the_effects_of_a_quick_body_come_with_its_result() -> None:
    world = World(Quick(), settings=replace(QUICK, flush_after_s=60))
    world.start()
    await world.settle()
    assert world.result == "sent"
    assert world.signals == []
    assert [type(tick).__name__ for tick in world.reports[0].ticks] == [
        "TickPublishEvent",
        "TickAddEvent",
        "TickStepResult",
    ]


async def test_the_effects_of_a_slow_body_leave_before_its_end_and_in_order() -> None:
    arrived = asyncio.Event()

    class Slow(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            ctx.write_event_to_stream(Shown(number=1))
            ctx.write_event_to_stream(Shown(number=2))
            await arrived.wait()
            ctx.write_event_to_stream(Shown(number=3))
            return StopEvent(result="done")

    world = World(Slow())
    world.on_signal = lambda name, value: arrived.set()
    world.start()
    await world.settle()
    assert [len(value.ticks) for _, value in world.signals] == [2]
    assert [event.number for event in world.published[:3]] == [1, 2, 3]
    assert world.result == "done"


async def test_a_sync_body_has_its_effects_from_its_thread_in_order() -> None:
    threads = []

    class Blocking(Workflow):
        @step
        def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            threads.append(threading.get_ident())
            for number in range(20):
                ctx.write_event_to_stream(Shown(number=number))
            return StopEvent(result="done")

    world = World(Blocking())
    world.start()
    await world.settle()
    assert threads != [threading.get_ident()]
    assert [event.number for event in world.published[:20]] == list(range(20))


async def test_many_effects_leave_in_signals_that_temporal_takes() -> None:
    class Talking(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            for number in range(10):
                ctx.write_event_to_stream(Noted(text=f"{number}" * 1000))
            return StopEvent(result="done")

    world = World(Talking(), settings=replace(QUICK, signal_bytes=3000, result_bytes=4000))
    world.start()
    await world.settle()
    assert [len(value.ticks) for _, value in world.signals] == [2, 2, 2, 2, 2]
    assert [event.text[0] for event in world.published[:10]] == list("0123456789")
    assert world.result == "done"


async def test_what_is_done_after_the_end_of_a_body_reaches_the_run_too() -> None:
    ended = asyncio.Event()

    class Lingering(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> Noted:
            async def later() -> None:
                await ended.wait()
                ctx.write_event_to_stream(Shown(number=7))

            self.later = asyncio.create_task(later())
            return Noted()

        @step
        async def last(self, ev: Noted) -> StopEvent | None:
            return None

    world, arrived = World(Lingering()), asyncio.Event()
    world.on_signal = lambda name, value: arrived.set()
    world.start()
    await world.settle()
    ended.set()
    await arrived.wait()
    assert [tick.source for tick in world.told(TickPublishEvent)] == [None]


async def test_a_failing_body_is_data_with_the_verdict_of_its_policy() -> None:
    class Failing(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(5), stop=stop_after_attempt(2)))
        async def only(self, ev: StartEvent) -> StopEvent:
            raise KeyError("lost")

    world = World(Failing(timeout=None))
    world.start()
    await world.settle()
    (result,) = world.told(TickStepResult)
    assert (result.failure.type, result.retry_delay_s) == ("builtins.KeyError", 5)
    world.fire()
    await world.settle()
    assert world.outcome.status == "failed"


async def test_how_long_retries_have_taken_is_told_by_the_clock_of_the_cluster() -> None:
    elapsed: list[float] = []

    class Asked:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> None:
            elapsed.append(elapsed_time)

    class Failing(Workflow):
        @step(retry_policy=Asked())
        async def only(self, ev: StartEvent) -> StopEvent:
            raise KeyError("lost")

    world = World(Failing(timeout=None))
    world.start()
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, started_time=datetime.fromtimestamp(START + 20, tz=UTC))
    await world.perform(env=env)
    assert elapsed == [pytest.approx(20, abs=5)]


# -- waiting --------------------------------------------------------------------------------------------------------


async def test_a_body_that_waits_leaves_and_begins_again_without_repeating_itself() -> None:
    begun = []

    class Asking(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            begun.append(1)
            ctx.write_event_to_stream(Shown(number=1))
            first = await ctx.wait_for_event(HumanResponseEvent, waiter_id="a")
            ctx.write_event_to_stream(Shown(number=2))
            second = await ctx.wait_for_event(HumanResponseEvent, waiter_id="b")
            return StopEvent(result=first.response + second.response)

    world = World(Asking())
    world.start()
    await world.settle()
    assert isinstance(world.reports[-1].ticks[-1], TickLeaveStep)
    assert not world.scheduled
    world.send(HumanResponseEvent(response="x"))
    await world.settle()
    world.send(HumanResponseEvent(response="y"))
    await world.settle()
    assert world.result == "xy"
    assert len(begun) == 3
    assert [event.number for event in world.published[:-1]] == [1, 2]
    assert len(world.told(TickPublishEvent)) == 2


async def test_an_event_that_came_early_answers_a_wait() -> None:
    class Late(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(HumanResponseEvent)).response)

    world = World(Late())
    world.start()
    world.send(HumanResponseEvent(response="early"))
    await world.settle()
    assert world.result == "early"


async def test_a_sleep_and_the_timeout_of_a_wait_are_timers_of_the_run() -> None:
    class Patient(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            await ctx.sleep(60)
            try:
                await ctx.wait_for_event(HumanResponseEvent, timeout=60)
            except TimeoutError:
                return StopEvent(result="nobody")
            return StopEvent(result="somebody")

    world = World(Patient(timeout=None))
    world.start()
    await world.settle()
    world.fire()
    await world.settle()
    world.fire()
    await world.settle()
    assert world.result == "nobody"


async def test_waits_side_by_side_are_answered_one_after_the_other() -> None:
    class Both(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            answers = await asyncio.gather(
                ctx.wait_for_event(HumanResponseEvent, waiter_id="a", requirements={"to": "a"}),
                ctx.wait_for_event(HumanResponseEvent, waiter_id="b", requirements={"to": "b"}),
            )
            return StopEvent(result=[answer.response for answer in answers])

    world = World(Both())
    world.start()
    await world.settle()
    assert len(world.reports[-1].ticks[-1].pending) == 2
    world.send(HumanResponseEvent(response="of b", to="b"))
    await world.settle()
    assert len(world.reports[-1].ticks[-1].pending) == 1
    world.send(HumanResponseEvent(response="of a", to="a"))
    await world.settle()
    assert world.result == ["of a", "of b"]


async def test_a_wait_beside_the_body_keeps_its_place_when_the_body_runs_again() -> None:
    class Beside(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            beside = asyncio.create_task(
                ctx.wait_for_event(HumanResponseEvent, waiter_id="b", requirements={"to": "b"})
            )
            first = await ctx.wait_for_event(HumanResponseEvent, waiter_id="a", requirements={"to": "a"})
            ctx.write_event_to_stream(Shown(number=1))
            return StopEvent(result=[first.response, (await beside).response])

    world = World(Beside())
    world.start()
    await world.settle()
    world.send(HumanResponseEvent(response="of a", to="a"))
    await world.settle()
    world.send(HumanResponseEvent(response="of b", to="b"))
    await world.settle()
    assert world.result == ["of a", "of b"]


async def test_a_wait_that_the_body_gives_up_is_over_for_the_run_too() -> None:
    class Impatient(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            waiting = asyncio.create_task(ctx.wait_for_event(HumanResponseEvent))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            return StopEvent(result="gave up")

    world = World(Impatient())
    world.start()
    await world.settle()
    assert world.result == "gave up"
    assert len(world.told(TickEndWait)) == 1


@pytest.mark.parametrize("own", [True, False])
async def test_a_body_that_waits_is_held_while_it_works_a_result_out_beside(own: bool) -> None:
    charges, paid = [], asyncio.Event()

    class Paying(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            paying = asyncio.create_task(ctx.once("charge", self.charge))
            await asyncio.sleep(0)
            waiting = ctx.wait_for_event(HumanResponseEvent)
            answer = await (waiting if own else asyncio.create_task(waiting))
            return StopEvent(result=[answer.response, await paying])

        async def charge(self) -> int:
            charges.append(1)
            await paid.wait()
            return 5

    world = World(Paying())
    world.start()
    asyncio.get_running_loop().call_later(5 * QUICK.settle_s, paid.set)
    await world.settle()
    assert len(world.told(TickRecordResult)) == 1
    world.send(HumanResponseEvent(response="yes"))
    await world.settle()
    assert world.result == ["yes", 5]
    assert charges == [1]


async def test_a_result_that_itself_waits_does_not_hold_its_body_for_ever() -> None:
    class Nested(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            async def both() -> str:
                own = await ctx.wait_for_event(HumanResponseEvent, requirements={"to": "a"})
                aside = await asyncio.create_task(ctx.wait_for_event(HumanResponseEvent, requirements={"to": "b"}))
                return own.response + aside.response

            return StopEvent(result=await ctx.once("both", both))

    world = World(Nested(), settings=replace(QUICK, hold_s=0.05))
    world.start()
    await world.settle()
    world.send(HumanResponseEvent(response="x", to="a"))
    await world.settle()
    world.send(HumanResponseEvent(response="y", to="b"))
    await world.settle()
    assert world.result == "xy"


async def test_a_child_run_is_started_by_the_run_and_its_result_answers_the_body() -> None:
    class Parent(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            return StopEvent(result=await ctx.run_child("elsewhere", n=1))

    world = World(Parent())
    world.start()
    await world.settle()
    (child,) = world.children
    assert child.workflow_type == "elsewhere"
    number = int(child.workflow_id.rpartition(":")[2])
    event = world.made.code.codec.record(StopEvent(result=41))
    world.tell(TickChildEnded(at=0.0, child=number, status="completed", event=event))
    await world.settle()
    assert world.result == 41


# -- taking up ------------------------------------------------------------------------------------------------------


class Charging(Workflow):
    """Charges once, and then waits for the test to let it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: list[int] = []
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    @step
    async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
        ctx.write_event_to_stream(Shown(number=1))
        receipt = await ctx.once("charge", self.charge)
        self.reached.set()
        await self.go_on.wait()
        return StopEvent(result=receipt)

    def charge(self) -> int:
        self.charged.append(1)
        return len(self.charged)


async def test_a_recorded_result_is_safe_before_the_body_goes_on_and_found_by_the_next_attempt() -> None:
    workflow = Charging()
    world, env = World(workflow), ActivityEnvironment()
    world.start()
    (command,) = world.scheduled
    interrupted = asyncio.create_task(world.perform(command, env=env))
    await workflow.reached.wait()
    assert len(world.told(TickRecordResult)) == 1
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    workflow.go_on.set()
    await world.perform(command, attempt=2)
    assert world.result == 1
    assert workflow.charged == [1]
    assert len(world.published) == 2


async def test_another_attempt_at_what_nobody_waits_for_is_refused() -> None:
    world = World(Quick())
    world.start()
    (command,) = world.scheduled
    await world.perform(command)
    with pytest.raises(ApplicationError, match="is not wanted any more") as refused:
        await world.perform(command, attempt=2)
    assert refused.value.non_retryable


async def test_a_cancelled_activity_cancels_its_body_and_nothing_more_is_told() -> None:
    workflow = Charging()
    cleaned = []

    class Cleaning(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            try:
                workflow.reached.set()
                await workflow.go_on.wait()
            finally:
                ctx.write_event_to_stream(Shown(number=9))
                cleaned.append(1)
            return StopEvent()

    world, env = World(Cleaning()), ActivityEnvironment()
    world.start()
    performing = asyncio.create_task(world.perform(env=env))
    await workflow.reached.wait()
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert cleaned == [1]
    assert world.told(TickPublishEvent) == []


async def test_the_body_of_a_run_that_has_closed_is_abandoned() -> None:
    workflow = Charging()
    world = World(workflow)
    world.start()
    world.is_open = False
    with pytest.raises(ApplicationError, match="it has closed") as gone:
        await world.settle()
    assert gone.value.non_retryable
    assert not workflow.reached.is_set()


async def test_a_sync_body_that_blocks_its_thread_does_not_keep_the_heart_from_beating() -> None:
    beats, enough = [], threading.Event()

    class Blocking(Workflow):
        @step
        def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=enough.wait(60))

    def beat(*details: object) -> None:
        beats.append(details)
        if len(beats) == 3:
            enough.set()

    world, env = World(Blocking()), ActivityEnvironment()
    env.on_heartbeat = beat
    world.start()
    await world.perform(env=env)
    assert world.result is True


# -- limits and other code ------------------------------------------------------------------------------------------


async def test_a_result_that_temporal_would_refuse_is_a_failure_of_the_step() -> None:
    class Large(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(5), stop=stop_after_attempt(2)))
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="x" * 5000)

    world = World(Large(), settings=replace(QUICK, result_bytes=4000))
    world.start()
    await world.settle()
    (result,) = world.told(TickStepResult)
    assert result.failure.type == "builtins.ValueError"
    assert "'only' has 5" in result.failure.message
    assert "2 MiB" in result.failure.message
    assert world.outcome.status == "failed"


async def test_an_effect_that_temporal_would_refuse_is_an_error_in_the_body() -> None:
    class Large(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent | Noted:
            try:
                ctx.send_event(Noted(text="x" * 5000))
            except ValueError as error:
                return StopEvent(result=str(error))
            return StopEvent(result="sent")

        @step
        async def other(self, ev: Noted) -> None: ...

    world = World(Large(), settings=replace(QUICK, result_bytes=4000))
    world.start()
    await world.settle()
    assert "2 MiB" in world.result


async def test_a_class_that_this_worker_lacks_parks_the_run() -> None:
    class Lacking(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            raise MissingTypeError("shop.Order")

    world = World(Lacking())
    world.start()
    await world.settle()
    assert isinstance(world.reports[0].ticks[-1], TickParkRun)
    assert world.outcome.status == "parked"
    assert "shop.Order" in world.outcome.message


@pytest.mark.parametrize("now", ["wait", "once", "store", "publish"])
async def test_a_body_that_does_something_else_than_before_parks_its_run(now: str) -> None:
    does = ["send"]

    class Changing(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent | Noted:
            match does[0]:
                case "send":
                    ctx.send_event(Noted())
                case "wait":
                    await ctx.sleep(1)
                case "once":
                    await ctx.once("a", int)
                case "store":
                    await ctx.store.set("a", 1)
                case "publish":
                    ctx.write_event_to_stream(Shown())
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

        @step
        async def other(self, ev: Noted) -> None: ...

    world = World(Changing())
    world.start()
    await world.settle()
    does[0] = now
    world.send(HumanResponseEvent(response=""))
    await world.settle()
    assert world.outcome.status == "parked"
    assert "effect number 0 was 'send'" in world.outcome.message


async def test_what_only_a_handler_has_is_refused_in_a_body() -> None:
    class Curious(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            run, refused = ctx._run, []
            for ask in (lambda: run.state, run.state_to_save, run.ending, run.request_cancel, ctx.store.values):
                try:
                    ask()
                except ContextStateError as error:
                    refused.append(str(error))
            return StopEvent(result=[len(refused), ctx.is_idle, run.is_done])

    world = World(Curious())
    world.start()
    await world.settle()
    assert world.result == [5, False, False]
