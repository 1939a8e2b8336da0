"""What Loom asks an event loop about time, beyond asyncio.

A plain event loop offers none of it: dates are the system's, and every pause lasts as long as it was asked for.
`loom.testing.VirtualLoop` offers all of it, under these names, because its clock jumps when nothing can run:

- `wall_time()`: the date. One clock gives dates and durations, so that both jump together.
- `hold()` and `hold_until(future)`: real work is under way in a thread or a database, so the clock must stand still.
- `look_later(seconds, callback)`: a recurring look, in case a notification of a change was lost. A virtual clock may
  jump over looks, because only lost notifications depend on them.
- `keep_looking(seconds)`: for this long a look may find something of its own, such as a lease that ends.
- `calls_in_place`: the engine does long work at once instead of in a thread (`loom.effects.off_loop`).
- `skipped_s`: the seconds of virtual time that were jumped over so far, with the looks that were due in them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager


def wall_clock(loop: asyncio.AbstractEventLoop | None) -> Callable[[], float]:
    """Return the clock that gives dates on this loop, in seconds since the epoch; without a loop the system's."""
    clock: Callable[[], float] = getattr(loop, "wall_time", time.time)
    return clock


def hold_until(loop: asyncio.AbstractEventLoop) -> Callable[[asyncio.Future[Any]], None] | None:
    """Return the loop's `hold_until`, which stops its clock until a future is done; None on a plain loop."""
    found: Callable[[asyncio.Future[Any]], None] | None = getattr(loop, "hold_until", None)
    return found


def hold() -> AbstractContextManager[None]:
    """Let the running loop's clock stand still inside of `with`, while something real is awaited there."""
    held: AbstractContextManager[None] = getattr(asyncio.get_running_loop(), "hold", nullcontext)()
    return held


async def until_look(seconds: float, notification: Awaitable[Any]) -> bool:
    """Wait for a notification, at most until it is time to look again. True if the notification came first.

    On a loop whose clock jumps, the time to look may be later than in `seconds`, but no notification comes before it.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as scope:
            timer = getattr(loop, "look_later", loop.call_later)(seconds, lambda: scope.reschedule(loop.time()))
            try:
                await notification
            finally:
                timer.cancel()
    except TimeoutError:
        return False
    return True


def can_skip(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether the loop's clock may jump over looks, so that what is due must be a timer of its own."""
    return hasattr(loop, "look_later")


def keep_looking(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Let the clock jump over no look for `seconds`: a look may find what no notification tells of."""
    keep = getattr(loop, "keep_looking", None)
    if keep is not None:
        keep(seconds)


def skipped_s(loop: asyncio.AbstractEventLoop) -> float:
    """Return the seconds that were jumped over, in which no lease could be renewed and so none runs out."""
    seconds: float = getattr(loop, "skipped_s", 0.0)
    return seconds
