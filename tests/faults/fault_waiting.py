"""Waiting for what must come about."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(look: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """Look until there is something to see, and return it. `look` may be a coroutine function."""
    async with asyncio.timeout(limit_s):
        while True:
            seen = look()
            if inspect.isawaitable(seen):
                seen = await seen
            if seen:
                return seen
            await asyncio.sleep(0.01)


async def until_idle(runtime: Any, run_id: str) -> None:
    """Until a run waits for somebody."""

    async def look() -> bool:
        return (await runtime.get(run_id)).idle_since is not None

    await until(look)


async def until_parked(runtime: Any, run_id: str) -> str:
    """Until a run is parked: the reason."""

    async def look() -> str | None:
        info = await runtime.get(run_id)
        assert info.status == "running"
        return info.parked  # type: ignore[no-any-return]

    return str(await until(look))


async def result_of(runtime: Any, run_id: str) -> Any:
    """What a run ends with."""
    async with asyncio.timeout(60):
        return await (await runtime.handler(run_id))
