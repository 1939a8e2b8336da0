"""What a body asks of its context: collected events, recorded results, child runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.body_effects import EMPTY_BUFFER, CollectBuffer, once_key
from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.persistent import Map
from loom.core.records import Failure
from loom.core.state import ChildEnd, WorkItem
from loom.core.ticks import TickRecordResult
from loom.effects.context_calls import Collector, in_order, needed_types, result_of_child
from loom.effects.event_codec import LIVE_CODEC, record_of
from loom.steps.errors import ChildRunCancelled, ChildRunFailed, ContextStateError
from loom.steps.registry import resolve, wire_name
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import run_virtual

# --- collect_events ---------------------------------------------------------------------------------------------------


class Red(Event):
    number: int


class Blue(Event):
    number: int


def command(
    buffers: dict[str, CollectBuffer] | None = None, reserved: dict[str, list[Event]] | None = None
) -> CommandRunWorker:
    kept = Map({key: tuple(map(record_of, events)) for key, events in (reserved or {}).items()})
    item = WorkItem(1, "step", record_of(Red(number=0)), reserved=kept)
    return CommandRunWorker(1, "step", item, 0, 1, 0.0, Map(buffers or {}))


def buffer_of(*events: Event) -> CollectBuffer:
    buffer = EMPTY_BUFFER
    for event in events:
        buffer = buffer.with_event(record_of(event))
    return buffer


def test_set_comes_in_the_order_of_the_expected_types() -> None:
    collector = Collector(command({"default": buffer_of(Blue(number=1), Red(number=2))}))
    found = collector.collect(Red(number=3), [Red, Blue, Red], "default", 0)
    assert found == [Red(number=2), Blue(number=1), Red(number=3)]
    [call] = collector.calls()
    assert call.took


def test_incomplete_set_is_kept_for_the_next_call_of_the_same_body() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [Red, Blue], "default", 0) is None
    assert collector.collect(Blue(number=2), [Red, Blue], "default", 0) == [Red(number=1), Blue(number=2)]
    assert [call.took for call in collector.calls()] == [False, True]


def test_after_a_full_set_the_buffer_is_empty() -> None:
    collector = Collector(command({"default": buffer_of(Red(number=1))}))
    assert collector.collect(Red(number=2), [Red, Red], "default", 0) is not None
    assert collector.collect(Red(number=3), [Red, Red], "default", 0) is None


def test_event_that_is_not_wanted_is_dropped() -> None:
    collector = Collector(command({"default": buffer_of(Red(number=1))}))
    assert collector.collect(Red(number=2), [Red, Blue], "default", 0) is None
    assert collector.collect(Blue(number=3), [Red, Blue], "default", 0) == [Red(number=1), Blue(number=3)]


def test_nothing_expected_is_a_full_set() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [], "default", 0) == []
    assert collector.calls() == ()


def test_buffers_are_apart() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [Red, Blue], "a", 0) is None
    assert collector.collect(Blue(number=2), [Red, Blue], "b", 0) is None
    assert collector.collect(Blue(number=3), [Red, Blue], "a", 0) == [Red(number=1), Blue(number=3)]


def test_retry_gets_the_set_that_the_failed_attempt_had() -> None:
    collector = Collector(command(reserved={"default": [Blue(number=1), Red(number=2)]}))
    assert collector.collect(Red(number=9), [Red, Blue], "default", 0) == [Red(number=2), Blue(number=1)]
    assert collector.calls()[0].reserved
    assert collector.collect(Red(number=10), [Red, Blue], "default", 0) is None, "once only"


def test_needs_follow_a_list_that_grows() -> None:
    expected: list[type[Event]] = [Red]
    first = needed_types(expected)
    assert needed_types(expected) is first, "a constant list is counted once"
    expected.append(Blue)
    assert len(needed_types(expected)) == 2


def test_order_with_too_few_events_leaves_gaps_out() -> None:
    assert in_order([record_of(Blue(number=1))], [Red, Blue]) == [Blue(number=1)]


def test_list_that_is_made_anew_for_every_call_is_counted_once() -> None:
    first = needed_types([Red, Blue] * 2000)
    assert needed_types([Red, Blue] * 2000) is first
    assert needed_types((Red, Blue) * 2000) is first
    assert needed_types([Red, Red] * 2000) == ((first[0][0], 4000),)


def test_list_that_is_changed_in_place_is_counted_anew() -> None:
    expected: list[type[Event]] = [Red, Blue]
    needed_types(expected)
    expected[1] = Red
    assert [number for _, number in needed_types(expected)] == [2]


# --- once -------------------------------------------------------------------------------------------------------------


THRICE = retry_policy(wait=wait_fixed(1), stop=stop_after_attempt(3))


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls

    async def later(self) -> int:
        await asyncio.sleep(1)
        return self()


async def test_result_is_recorded_before_the_body_goes_on() -> None:
    class Charges(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.once("charge", lambda: "paid"))

    handler = Charges().run()
    assert await handler == "paid"
    ticks = handler.ctx._run.journal  # type: ignore[union-attr]
    (recorded,) = [tick for tick in ticks if isinstance(tick, TickRecordResult)]
    assert (recorded.name, recorded.value) == ("charge", "paid")


def test_later_attempts_get_the_first_result() -> None:
    counter = Counter()

    class Charges(Workflow):
        @step(retry_policy=THRICE)
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            paid = await ctx.once("charge", counter.later)
            if ctx.retry_info().retry_number < 2:
                raise ValueError("not yet")
            return StopEvent(result=paid)

    async def main() -> Any:
        return await Charges(timeout=60).run()

    assert run_virtual(main()) == 1
    assert counter.calls == 1


def test_two_calls_of_a_name_give_the_first_value_also_at_the_same_time() -> None:
    counter = Counter()

    class Charges(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            both = await asyncio.gather(ctx.once("charge", counter.later), ctx.once("charge", counter.later))
            return StopEvent(result=[*both, await ctx.once("charge", counter), await ctx.once("mail", counter)])

    async def main() -> Any:
        return await Charges(timeout=60).run()

    assert run_virtual(main()) == [1, 1, 1, 2]


async def test_failing_function_records_nothing() -> None:
    counter = Counter()

    def refuse() -> int:
        raise ConnectionError("down")

    class Charges(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(ConnectionError):
                await ctx.once("charge", refuse)
            return StopEvent(result=await ctx.once("charge", counter))

    assert await Charges().run() == 1


async def test_nothing_is_a_result_too() -> None:
    calls = []

    class Charges(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for _ in range(2):
                await ctx.once("charge", lambda: calls.append(1))
            return StopEvent()

    await Charges().run()
    assert calls == [1]


def test_saved_context_brings_the_results_along() -> None:
    counter = Counter()

    class Asks(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            paid = await ctx.once("charge", counter)
            answer = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=[paid, answer.text])

    async def main() -> Any:
        workflow = Asks(timeout=100)
        handler = workflow.run()
        await asyncio.sleep(1)
        saved = handler.ctx.to_dict()
        await handler.cancel_run()
        assert saved["loom"]["records"] == {"1": {"charge": "1"}}
        again = workflow.run(ctx=Context.from_dict(workflow, saved))
        again.ctx.send_event(HumanResponseEvent(text="yes"))
        return await again

    assert run_virtual(main()) == [1, "yes"]
    assert counter.calls == 1


async def test_key_of_a_record_is_no_wait_of_any_other_kind() -> None:
    class Mixes(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.sleep(0)
            return StopEvent(result=await ctx.once("0", lambda: "recorded"))

    assert once_key("0") == "once:0"
    assert await Mixes().run() == "recorded"


async def test_once_is_for_steps_only() -> None:
    class Plain(Workflow):
        @step
        async def work(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    handler = Plain().run()
    with pytest.raises(ContextStateError):
        handler.ctx.once("charge", lambda: 1)
    await handler


# --- child runs -------------------------------------------------------------------------------------------------------


class Total(StopEvent):
    total: int


def answer(**fields: Any) -> CommandResumeWorker:
    return CommandResumeWorker(1, "work", "child:0", **fields)


def test_result_is_what_awaiting_the_handler_would_give() -> None:
    done = ChildEnd("r:1", "completed")
    assert result_of_child(answer(event=record_of(StopEvent(result=7)), child=done), LIVE_CODEC) == 7
    assert result_of_child(answer(event=record_of(Total(total=7)), child=done), LIVE_CODEC) == Total(total=7)


def test_failure_is_an_error_that_tells_of_the_child() -> None:
    failed = ChildEnd("r:1", "failed", Failure("builtins.ValueError", "no"))
    with pytest.raises(
        ChildRunFailed, match=r"^no\nChild run 'r:1' failed with ValueError: its history says where.$"
    ) as told:
        result_of_child(answer(child=failed), LIVE_CODEC)
    assert (told.value.run_id, told.value.original_type) == ("r:1", "builtins.ValueError")
    assert not isinstance(told.value, ChildRunCancelled)


def test_other_ends_say_what_they_are() -> None:
    with pytest.raises(ChildRunFailed, match="'r:1' timed out"):
        result_of_child(answer(child=ChildEnd("r:1", "timed_out")), LIVE_CODEC)
    with pytest.raises(ChildRunCancelled, match="'r:1' was cancelled"):
        result_of_child(answer(child=ChildEnd("r:1", "cancelled")), LIVE_CODEC)


def test_errors_have_names_of_their_own() -> None:
    for error in (ChildRunFailed, ChildRunCancelled):
        assert resolve(wire_name(error)) is error
        assert str(error("why")) == "why"


class Pays(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        if ev.amount < 0:
            raise ValueError("no such amount")
        await asyncio.sleep(ev.amount)
        return StopEvent(result=ev.amount)


class Orders(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.run_child(Pays(timeout=100), amount=2)
        more = await asyncio.gather(*(ctx.run_child(Pays(timeout=100), amount=amount) for amount in (5, 3)))
        with pytest.raises(ChildRunFailed, match="no such amount"):
            await ctx.run_child(Pays(timeout=100), amount=-1)
        return StopEvent(result=[first, *more])


def test_body_gets_the_results_of_its_children() -> None:
    async def main() -> Any:
        return await Orders(timeout=100).run()

    assert run_virtual(main()) == [2, 5, 3]


def test_saved_context_of_a_waiting_parent_asks_for_its_child_again() -> None:
    class Waits(Workflow):
        children = 0

        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.children += 1
            return StopEvent(result=await ctx.run_child(Pays(timeout=100), amount=3))

    async def main() -> Any:
        workflow = Waits(timeout=100)
        handler = workflow.run()
        await asyncio.sleep(1)
        saved = handler.ctx.to_dict()
        await handler.cancel_run()
        result = await workflow.run(ctx=Context.from_dict(workflow, saved))
        return result, workflow.children

    assert run_virtual(main()) == (3, 2)
