# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""A list of events, eight workers, and a step that takes the results as a `list[E]`."""

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

    class FanOut(api.Workflow):
        @api.step
        async def make(self, ev: api.StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(size)]

        @api.step(num_workers=WORKERS)
        async def work(self, ev: Item) -> Done:
            return Done(n=ev.n)

        @api.step
        async def join(self, evs: list[Done]) -> api.StopEvent:
            return api.StopEvent(result=len(evs))

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
    name="fan-out-join",
    title=f"fan-out {_fan_out.SIZE:,} items, {WORKERS} workers, collected by a list[E] join",
    order=20,
    size=_fan_out.SIZE,
    metrics=(Metric("us", "us/item"),),
    peers={
        "loom": loom,
        _fan_out.LARGE: loom,
        "llama": llama,
        "langgraph": _fan_out.langgraph,
        "pydantic-graph": _fan_out.pydantic_graph,
        "asyncio": _fan_out.bare_asyncio,
    },
    targets=_fan_out.targets(),
    sizes={_fan_out.LARGE: _fan_out.SIZE * _fan_out.TIMES},
)
