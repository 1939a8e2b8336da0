"""What the attacks share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loom.runtime.durable.info import RunInfo
from loom.runtime.durable.runtime import DurableRuntime


async def until(runtime: DurableRuntime, run_id: str, holds: Callable[[RunInfo], bool]) -> RunInfo:
    """The run, as soon as something holds for it."""
    async with asyncio.timeout(60):
        while not holds(info := await runtime.get(run_id)):
            news = runtime.watchers.subscribe(run_id)
            await asyncio.wait([news], timeout=0.02)
            runtime.watchers.forget(run_id, news)
    return info


def is_parked(info: RunInfo) -> bool:
    """Whether a run has stalled."""
    return info.parked is not None
