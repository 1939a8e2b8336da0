"""The state store as steps and handlers use it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import BaseModel, Field
from steps_rig import until_idle

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.state_store import DictState


class Go(Event):
    n: int = 0


class Done(Event):
    pass


class Counter(BaseModel):
    count: int = 0
    names: list[str] = Field(default_factory=list)


class Untyped(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Go:
        await ctx.store.set("user.name", "Ada")
        await ctx.store.set("tags", ["a", "b"])
        return Go()

    @step
    async def end(self, ctx: Context, ev: Go) -> StopEvent:
        return StopEvent(
            result=(
                await ctx.store.get("user.name"),
                await ctx.store.get("tags.1"),
                await ctx.store.get("missing", default=7),
            )
        )


async def test_paths_go_through_dicts_and_lists_and_steps_share_the_store():
    assert await Untyped(timeout=5).run() == ("Ada", "b", 7)


async def test_handler_reads_the_store_after_the_run():
    handler = Untyped(timeout=5).run()
    await handler
    assert await handler.ctx.store.get("user.name") == "Ada"
    assert isinstance(await handler.ctx.store.get_state(), DictState)


async def test_missing_path_is_an_error_that_names_it():
    handler = Untyped(timeout=5).run()
    await handler
    with pytest.raises(ValueError, match=r"Path 'no\.such' not found in state"):
        await handler.ctx.store.get("no.such")
    with pytest.raises(ValueError, match=r".+"):
        await handler.ctx.store.set("", 1)


class Typed(Workflow):
    @step
    async def start(self, ctx: Context[Counter], ev: StartEvent) -> Go:
        async with ctx.store.edit_state() as state:
            state.count += 1
            state.names.append("start")
        return Go()

    @step
    async def end(self, ctx: Context[Counter], ev: Go) -> StopEvent:
        state = await ctx.store.get_state()
        return StopEvent(result=(type(state).__name__, state.count, state.names))


async def test_type_of_the_state_comes_from_the_annotations():
    assert await Typed(timeout=5).run() == ("Counter", 1, ["start"])


class Parallel(Workflow):
    @step
    async def start(self, ctx: Context[Counter], ev: StartEvent) -> Go | None:
        for n in range(10):
            ctx.send_event(Go(n=n))
        return None

    @step(num_workers=10)
    async def work(self, ctx: Context[Counter], ev: Go) -> Done:
        async with ctx.store.edit_state() as state:
            seen = state.count
            await asyncio.sleep(0)
            state.count = seen + 1
        return Done()

    @step
    async def end(self, ctx: Context[Counter], ev: Done) -> StopEvent | None:
        if ctx.collect_events(ev, [Done] * 10) is None:
            return None
        return StopEvent(result=await ctx.store.get("count"))


async def test_edits_of_parallel_steps_do_not_lose_each_other():
    assert await Parallel(timeout=5).run() == 10


async def test_readers_see_committed_state_only_and_never_wait():
    class Peeks(Workflow):
        @step
        async def start(self, ctx: Context[Counter], ev: StartEvent) -> StopEvent:
            async with ctx.store.edit_state() as state:
                state.count = 5
                before = await ctx.store.get("count")
            return StopEvent(result=(before, await ctx.store.get("count")))

    assert await Peeks(timeout=5).run() == (0, 5)


async def test_failed_edit_changes_nothing():
    class Fails(Workflow):
        @step
        async def start(self, ctx: Context[Counter], ev: StartEvent) -> StopEvent:
            try:
                async with ctx.store.edit_state() as state:
                    state.count = 5
                    raise LookupError("on the way")
            except LookupError:
                return StopEvent(result=await ctx.store.get("count"))

    assert await Fails(timeout=5).run() == 0


async def test_writer_inside_an_edit_is_an_error():
    class Nested(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async with ctx.store.edit_state():
                try:
                    await ctx.store.set("x", 1)
                except RuntimeError as error:
                    return StopEvent(result=str(error))
            return StopEvent()

    assert "writer called inside edit_state" in await Nested(timeout=5).run()


async def test_store_prepared_before_the_run_is_taken_over():
    workflow = Typed(timeout=5)
    ctx: Context[Counter] = Context(workflow)
    await ctx.store.set("count", 41)
    assert await workflow.run(ctx=ctx) == ("Counter", 42, ["start"])
    assert await ctx.store.get("count") == 42


async def test_finished_context_starts_a_new_run_with_its_state_kept():
    workflow = Typed(timeout=5)
    handler = workflow.run()
    await handler
    assert await workflow.run(ctx=handler.ctx) == ("Counter", 2, ["start", "start"])


async def test_runs_have_stores_of_their_own():
    workflow = Typed(timeout=5)
    results = await asyncio.gather(workflow.run(), workflow.run())
    assert results == [("Counter", 1, ["start"])] * 2


async def test_edits_from_the_handler_reach_the_run():
    class Waits(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Go)
            return StopEvent(result=await ctx.store.get("from_outside"))

    handler = Waits(timeout=5).run()
    await until_idle(handler)
    await handler.ctx.store.set("from_outside", "hello")
    handler.ctx.send_event(Go())
    assert await handler == "hello"


async def test_state_may_hold_what_cannot_be_serialised():
    class Holds(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Go:
            await ctx.store.set("lock", lock)
            async with ctx.store.edit_state() as state:
                state.other = 1
            return Go()

        @step
        async def end(self, ctx: Context, ev: Go) -> StopEvent:
            return StopEvent(result=await ctx.store.get("lock") is lock)

    lock = threading.Lock()
    assert await Holds(timeout=5).run()


async def test_clear_and_set_state():
    class Clears(Workflow):
        @step
        async def start(self, ctx: Context[Counter], ev: StartEvent) -> StopEvent:
            await ctx.store.set_state(Counter(count=9))
            nine = await ctx.store.get("count")
            await ctx.store.clear()
            return StopEvent(result=(nine, await ctx.store.get("count")))

    assert await Clears(timeout=5).run() == (9, 0)


async def test_state_types_of_two_chains_are_refused():
    class Other(BaseModel):
        x: int = 0

    class Mixed(Workflow):
        @step
        async def start(self, ctx: Context[Counter], ev: StartEvent) -> Go:
            return Go()

        @step
        async def end(self, ctx: Context[Other], ev: Go) -> StopEvent:
            return StopEvent()

    workflow = Mixed(timeout=5)
    with pytest.raises(ValueError, match="state"):
        Context(workflow).store  # noqa: B018 - the access raises


async def test_state_types_of_two_families_are_refused_at_the_start():
    class Other(BaseModel):
        pass

    class Torn(Workflow):
        @step
        async def start(self, ctx: Context[Counter], ev: StartEvent) -> Go:
            return Go()

        @step
        async def end(self, ctx: Context[Other], ev: Go) -> StopEvent:
            return StopEvent()

    with pytest.raises(ValueError, match="not in a compatible inheritance hierarchy"):
        Torn(timeout=5).run()


async def test_step_that_is_added_later_may_bring_the_state_type():
    class Grows(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ctx.store.state_type)

    workflow = Grows(timeout=5)
    assert await workflow.run() is DictState

    @step(workflow=Grows)
    async def later(ctx: Context[Counter], ev: StartEvent) -> None:
        return None

    assert await workflow.run() is Counter
