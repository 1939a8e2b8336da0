"""How the end of a child run reaches the body that waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.core.commands import CommandResumeWorker
from loom.core.records import Failure
from loom.core.state import ChildEnd
from loom.effects.child_runs import result_of_child
from loom.effects.convert import LIVE, record_of
from loom.steps.errors import ChildRunCancelled, ChildRunFailed
from loom.steps.registry import resolve, wire_name
from loom.testing import run_virtual


class Total(StopEvent):
    total: int


def answer(**fields: Any) -> CommandResumeWorker:
    return CommandResumeWorker(1, "work", "child:0", **fields)


def test_result_is_what_awaiting_the_handler_would_give() -> None:
    done = ChildEnd("r:1", "completed")
    assert result_of_child(answer(event=record_of(StopEvent(result=7)), child=done), LIVE) == 7
    assert result_of_child(answer(event=record_of(Total(total=7)), child=done), LIVE) == Total(total=7)


def test_failure_is_an_error_that_tells_of_the_child() -> None:
    failed = ChildEnd("r:1", "failed", Failure("builtins.ValueError", "no"))
    with pytest.raises(
        ChildRunFailed, match=r"^no\nChild run 'r:1' failed with ValueError: its history says where.$"
    ) as told:
        result_of_child(answer(child=failed), LIVE)
    assert (told.value.run_id, told.value.original_type) == ("r:1", "builtins.ValueError")
    assert not isinstance(told.value, ChildRunCancelled)


def test_other_ends_say_what_they_are() -> None:
    with pytest.raises(ChildRunFailed, match="'r:1' timed out"):
        result_of_child(answer(child=ChildEnd("r:1", "timed_out")), LIVE)
    with pytest.raises(ChildRunCancelled, match="'r:1' was cancelled"):
        result_of_child(answer(child=ChildEnd("r:1", "cancelled")), LIVE)


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
