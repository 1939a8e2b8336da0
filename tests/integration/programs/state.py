"""The state store: paths, typed state, edits, a staged store, and state that outlives a run."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio
import json

from pydantic import BaseModel, Field
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent


class Tally(BaseModel):
    count: int = 0
    names: list[str] = Field(default_factory=list)


class Next(Event):
    pass


class Typed(Workflow):
    @step
    async def first(self, ctx: Context[Tally], ev: StartEvent) -> Next:
        async with ctx.store.edit_state() as state:
            state.count += 1
            state.names.append(ev.name)
        return Next()

    @step
    async def second(self, ctx: Context[Tally], ev: Next) -> StopEvent:
        state = await ctx.store.get_state()
        await ctx.store.set("count", state.count + 10)
        return StopEvent(result=(type(state).__name__, state.count, state.names, await ctx.store.get("count")))


class Loose(Workflow):
    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("a.b.c", [1, {"d": 2}])
        found = await ctx.store.get("a.b.c.1.d")
        missing = await ctx.store.get("a.x", default="none")
        try:
            await ctx.store.get("a.x")
        except ValueError as error:
            return StopEvent(result=(found, missing, str(error), await ctx.store.get("seed", default=None)))
        return StopEvent()


async def main() -> None:
    typed = Typed(timeout=10)
    context = Context(typed)
    print(await typed.run(ctx=context, name="ada"))
    print(await typed.run(ctx=context, name="bob"))
    data = json.loads(json.dumps(context.to_dict()))
    print(data["state"]["state_type"], data["is_running"], data["version"])
    again = Context.from_dict(typed, data)
    print(await typed.run(ctx=again, name="cyd"))
    loose = Loose(timeout=10)
    staged = Context(loose)
    await staged.store.set("seed", 42)
    print(await loose.run(ctx=staged))


asyncio.run(main())
