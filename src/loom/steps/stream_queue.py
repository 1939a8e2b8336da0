"""The run's events in an `asyncio.Queue`, for programs that still read them that way. May import loom.steps.ports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.steps.events import Event
    from loom.steps.ports import RunPort

_pumps: set[asyncio.Task[None]] = set()


def stream_into_queue(run: RunPort) -> asyncio.Queue[Event]:
    """A queue that gets all events of a run, from its beginning to its end."""
    queue: asyncio.Queue[Event] = asyncio.Queue()

    async def pump() -> None:
        async for _, event in run.read_stream(-1, internal=True):
            queue.put_nowait(event)

    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(pump())
    # The loop keeps only weak references to its tasks.
    _pumps.add(task)
    task.add_done_callback(_pumps.discard)
    return queue
