"""Which events the bodies of a workflow wait for, as its source tells."""

from __future__ import annotations

from typing import Any

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.awaited import awaited_types


class Approval(HumanResponseEvent):
    ok: bool = True


class Later(HumanResponseEvent):
    """Waited for in a method that is no step."""


class Base(Workflow):
    async def helper(self, ctx: Context) -> Any:
        return await ctx.wait_for_event(event_type=Later, timeout=None)


class Waits(Base):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        async def inner() -> Any:
            return await ctx.wait_for_event(Approval)

        await inner()
        await ctx.wait_for_event(loom.HumanResponseEvent)
        kind: Any = ev.kind
        await ctx.wait_for_event(kind)
        await self.helper(ctx)
        return StopEvent()


class Plain(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


def found(workflow: Workflow) -> list[type]:
    """What is found for a workflow."""
    return list(awaited_types(workflow._get_steps().values(), type(workflow)))


def test_types_are_found_by_name_in_steps_and_other_methods() -> None:
    assert found(Waits()) == [loom.HumanResponseEvent, Approval, Later]


def test_a_type_of_the_function_around_is_found() -> None:
    class Local(HumanResponseEvent):
        pass

    class Closure(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Local)
            return StopEvent()

    assert found(Closure()) == [Local]


def test_nothing_is_found_without_a_wait_or_without_a_source() -> None:
    assert found(Plain()) == []
    names: dict[str, Any] = {**globals()}
    code = """
class Typed(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Approval)
        return StopEvent()
"""
    exec(compile(code, "<typed>", "exec"), names)
    assert found(names["Typed"]()) == []
