"""A workflow whose step never ends in the first process that runs it: for a worker that is told to stop meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from loom import Context, StartEvent, StopEvent, Workflow, step


class Held(Workflow):
    """Tells in a file where its step runs."""

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        token = await ctx.once("token", os.getpid)
        if _told(Path(ev.place)) == 1:
            await asyncio.Event().wait()
        return StopEvent(result=token)


def _told(place: Path) -> int:
    """Add a line; how many there are now."""
    with place.open("a") as told:
        told.write(f"{os.getpid()}\n")
    return len(place.read_text().split())
