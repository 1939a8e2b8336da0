# Steps take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""The memory that a long run in memory keeps for each step that it has made, measured while it is still running."""

import asyncio

from bench.cases._api import step_api
from bench.measure import resident_kb
from bench.spec import Case, Figures, Metric, absolute

_SETTLED = 1_000
"""Steps before the first measurement: caches and pools are full then."""


async def _kept_bytes(peer: str, steps: int) -> float:
    api = step_api(peer)
    found: dict[str, float] = {}

    class Link(api.Event):
        n: int

    class Long(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Link:
            return Link(n=1)

        @api.step
        async def go_on(self, ev: Link) -> Link | api.StopEvent:
            if ev.n == _SETTLED:
                found["before"] = resident_kb()
            if ev.n < _SETTLED + steps:
                return Link(n=ev.n + 1)
            found["after"] = resident_kb()
            return api.StopEvent()

    await Long(timeout=None).run()
    return (found["after"] - found["before"]) * 1024 / steps


def _measured(peer: str, size: int) -> Figures:
    return {"bytes": asyncio.run(_kept_bytes(peer, size))}


CASE = Case(
    name="kept-memory",
    title="memory that a run in memory keeps per step",
    order=45,
    size=10_000,
    sizes={"llama": 2_000},
    metrics=(Metric("bytes", "bytes/step"),),
    peers={
        "loom": lambda size: _measured("loom", size),
        "llama": lambda size: _measured("llama", size),
    },
    warm_up=0,
    targets=(absolute("kept per step", "bytes", at_most=205),),
)
