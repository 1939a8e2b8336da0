# Steps take what their engine hands them, used or not.
# ruff: noqa: ARG002, ASYNC110
"""One run with many waiters: what it costs to answer one of them, each of which wants a value of its own."""

import asyncio
import time
from statistics import median
from typing import Any

from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

FEW, ANSWERED = 10, 9


def _workflow(waiters: int) -> Any:
    import loom

    class Ask(loom.Event):
        n: int

    class Reply(loom.HumanResponseEvent):
        n: int

    class Told(loom.Event):
        n: int

    class Many(loom.Workflow):
        @loom.step
        async def begin(self, ctx: loom.Context, ev: loom.StartEvent) -> Ask | None:
            for n in range(waiters):
                ctx.send_event(Ask(n=n))
            return None

        @loom.step(num_workers=waiters)
        async def ask(self, ctx: loom.Context, ev: Ask) -> Told:
            reply = await ctx.wait_for_event(Reply, requirements={"n": ev.n}, waiter_id=f"w{ev.n}", timeout=None)
            return Told(n=reply.n)

        @loom.step
        async def tell(self, ctx: loom.Context, ev: Told) -> loom.StopEvent | None:
            ctx.write_event_to_stream(ev)
            return loom.StopEvent(result=0) if ev.n < 0 else None

    workflow = Many(timeout=None)
    workflow.reply = Reply
    workflow.told = Told
    return workflow


async def _milliseconds(url: str, waiters: int) -> float:
    """The median time from sending an answer until the step after it has told of it."""
    import loom

    workflow = _workflow(waiters)
    async with loom.connect(url) as runtime:
        runtime.register(workflow, name="many")
        handler = await runtime.start("many", {})
        while (await runtime.get(handler.run_id)).idle_since is None:
            await asyncio.sleep(0.02)
        told = (event async for event in handler.stream_events() if isinstance(event, workflow.told))
        seconds = []
        for number in range(ANSWERED):
            started = time.perf_counter()
            await runtime.send_event(handler.run_id, workflow.reply(n=number))
            assert (await anext(told)).n == number
            seconds.append(time.perf_counter() - started)
        await runtime.cancel(handler.run_id)
    return median(seconds) * 1e3


def measure(size: int) -> Figures:
    with sqlite_url() as url:
        few = asyncio.run(_milliseconds(url, FEW))
    with sqlite_url() as url:
        many = asyncio.run(_milliseconds(url, max(size, FEW)))
    return {"ms": many, "ratio": many / few}


CASE = Case(
    name="many-waiters",
    title="one of 2,000 waiters in one run on SQLite is answered",
    order=64,
    size=2_000,
    metrics=(Metric("ms", "ms per answer"), Metric("ratio", "x of the same with 10 waiters")),
    peers={"loom": measure},
    targets=(absolute("at most 1.3x of the same with 10 waiters", "ratio", at_most=1.3),),
    warm_up=20,
)
