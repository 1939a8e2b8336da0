"""A workflow with fewer workers than jobs, for the tests of queues and of what the stream shows of them."""

from __future__ import annotations

import asyncio

from loom import Context, Event, StartEvent, StopEvent, Workflow, step


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Limited(Workflow):
    """Six jobs for a step with two workers; each job is let go by hand."""

    def __init__(self) -> None:
        super().__init__(timeout=5)
        self.begun: list[int] = []
        self.most = 0
        self.now = 0
        self.gates = [asyncio.Event() for _ in range(6)]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(6):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=2)
    async def work(self, ev: Job) -> Done:
        self.begun.append(ev.n)
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gates[ev.n].wait()
        self.now -= 1
        return Done(n=ev.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        done = ctx.collect_events(ev, [Done] * 6)
        return StopEvent(result=[e.n for e in done]) if done else None
