# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""Events sent one by one, eight workers, and `collect_events` with one constant list of what is expected."""

import asyncio
import time

from bench.cases import _fan_out
from bench.cases._api import step_api
from bench.cases._fan_out import WORKERS, figures
from bench.spec import Case, Figures, Metric


def _steps(peer: str, size: int) -> Figures:
    api = step_api(peer)

    class Item(api.Event):
        n: int

    class Done(api.Event):
        n: int

    expected = [Done] * size

    class FanOut(api.Workflow):
        @api.step
        async def make(self, ctx: api.Context, ev: api.StartEvent) -> Item | None:
            for n in range(size):
                ctx.send_event(Item(n=n))

        @api.step(num_workers=WORKERS)
        async def work(self, ev: Item) -> Done:
            return Done(n=ev.n)

        @api.step
        async def collect(self, ctx: api.Context, ev: Done) -> api.StopEvent | None:
            done = ctx.collect_events(ev, expected)
            return None if done is None else api.StopEvent(result=len(done))

    async def main() -> Figures:
        workflow = FanOut(timeout=None)
        started = time.perf_counter()
        assert await workflow.run() == size
        return figures(started, size)

    return asyncio.run(main())


def loom(size: int) -> Figures:
    return _steps("loom", size)


def llama(size: int) -> Figures:
    return _steps("llama", size)


CASE = Case(
    name="fan-out-collect",
    title=f"fan-out {_fan_out.SIZE:,} items, {WORKERS} workers, send_event and collect_events",
    order=21,
    size=_fan_out.SIZE,
    metrics=(Metric("us", "us/item"),),
    peers={"loom": loom, _fan_out.LARGE: loom, "llama": llama},
    targets=_fan_out.targets(),
    sizes={_fan_out.LARGE: _fan_out.SIZE * _fan_out.TIMES},
)
