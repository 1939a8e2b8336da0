"""`ctx.once`: worked out once per piece of work, recorded before the body goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.body_effects import once_key
from loom.core.ticks import TickRecordResult
from loom.steps.errors import ContextStateError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import run_virtual

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
