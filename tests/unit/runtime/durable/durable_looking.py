"""Looking at stored runs until something holds, for the tests beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.runtime import DurableRuntime


async def until(runtime: DurableRuntime, run_id: str, holds: Callable[[RunInfo], object]) -> RunInfo:
    """The run as soon as a condition holds for it, seen in the very turn of the event loop in which it begins to."""
    while True:
        info = await runtime.get(run_id)
        if holds(info):
            return info
        await asyncio.sleep(0)
