"""How old the lease of this process is: whether its runs are surely still its own.

A process may stand still for longer than its lease: a laptop sleeps, a debugger or SIGSTOP holds it, a body blocks the
event loop. Its bodies then go on as if nothing had been, while another process works on their runs. What they write is
refused by the store; what they do to the world is not. Before that, they can ask here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loom.store.loop_time import skipped_s

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

_FRESH = 0.5
"""The part of a lease within which nobody need be asked. The lease is renewed three times as often as it must be."""


def _nobody_looks() -> None:
    """There is no scanner yet."""


class Lease:
    """When the lease of one member was renewed, by two clocks."""

    def __init__(self, seconds: float, clock: Callable[[], float], loop: asyncio.AbstractEventLoop) -> None:
        self._fresh_s = seconds * _FRESH
        self._clock = clock
        self._loop = loop
        self._renewed_at = (-math.inf, -math.inf)
        """As of the last renewal; nothing is known before the first."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.on_doubt: Callable[[], None] = _nobody_looks
        """Called when a body waits for the next renewal: it shall come soon."""

    def now(self) -> tuple[float, float]:
        """The date, which goes on while a machine sleeps, and the loop's time, which nobody sets."""
        skipped = skipped_s(self._loop)
        return self._clock() - skipped, self._loop.time() - skipped

    def renewed(self, asked_at: tuple[float, float]) -> None:
        """Note that the store has prolonged the lease, as of the moment when it was asked to."""
        self._renewed_at = asked_at
        if self._is_fresh:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()

    @property
    def _is_fresh(self) -> bool:
        """Whether by both clocks the lease cannot be over. One that was set back tells nothing."""
        ages = [now - then for now, then in zip(self.now(), self._renewed_at, strict=True)]
        return min(ages) >= 0 and max(ages) < self._fresh_s

    def held(self) -> Awaitable[None] | None:
        """None while the lease is fresh; else what is done when the store has prolonged it once more.

        If the lease was lost, it is never done: bodies that wait are cancelled, as all bodies of this process are.
        """
        if self._is_fresh:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self.on_doubt()
        return future
