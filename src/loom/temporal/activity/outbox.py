"""How the effects of a body leave its activity: with its result, or before it as signals.

Effects keep their order: a signal comes before the next signal, and before the result. An effect is dropped here only
when it has arrived; one that arrives twice is recognized by the reducer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loom.store.codec import encode
from loom.temporal.names import SIGNAL_EFFECTS
from loom.temporal.payloads import Effects

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.ticks import WorkflowTick
    from loom.temporal.rpc import RunLink
    from loom.temporal.settings import ActivitySettings

_OFTEN = 10
"""Signals after which the next effects wait twice as long."""


def size_of(tick: WorkflowTick) -> int:
    """Return the bytes that a tick has on the wire."""
    return len(encode(tick))


class Outbox:
    """The effects of one execution that have not left yet."""

    def __init__(
        self, link: RunLink, settings: ActivitySettings, on_trouble: Callable[[Exception], None], attempt: int = 1
    ) -> None:
        self._link = link
        self._attempt = attempt
        self._settings = settings
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._ticks: list[tuple[WorkflowTick, int]] = []
        self._turn = asyncio.Lock()
        self._due: asyncio.TimerHandle | None = None
        self._signals = 0
        self._sending: set[asyncio.Task[None]] = set()

    def add(self, tick: WorkflowTick, size: int) -> None:
        """Put an effect at the end; safe from any thread. See `arm`."""
        self._ticks.append((tick, size))

    def arm(self) -> None:
        """Let added effects leave in time; on the outbox's own event loop."""
        if self._due is None and self._ticks:
            delay = min(self._settings.flush_after_s * (1 + self._signals / _OFTEN), self._settings.flush_max_s)
            self._due = self._loop.call_later(delay, self._leave_soon)

    async def flush(self, unlocks: int = 0) -> None:
        """Send all effects, and give the store back if `unlocks` is not 0; return when they are durable.

        Effects that have begun to leave do so even if the caller is cancelled.
        """
        if self._ticks or unlocks or self._sending:
            await asyncio.shield(self._begin(unlocks))

    async def rest(self, last: WorkflowTick) -> tuple[WorkflowTick, ...]:
        """Return the effects that have not left before, to go along with the last tick of the body."""
        self._disarm()
        if self._sending:
            await asyncio.wait(tuple(self._sending))
        if sum(size for _, size in self._ticks) + size_of(last) > self._settings.result_bytes:
            await self.flush()
        ticks, self._ticks = self._ticks, []
        return tuple(tick for tick, _ in ticks)

    def close(self) -> None:
        """Drop all effects: the run does not want them any more."""
        self._disarm()
        self._ticks.clear()

    def _disarm(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def send_later(self, unlocks: int = 0) -> None:
        """Begin to send all effects, and do not wait for it."""
        self._begin(unlocks).add_done_callback(self._check)

    def _leave_soon(self) -> None:
        self._due = None
        self.send_later()

    def _begin(self, unlocks: int) -> asyncio.Task[None]:
        sending = self._loop.create_task(self._send(unlocks))
        self._sending.add(sending)  # the loop itself would forget it
        sending.add_done_callback(self._sending.discard)
        return sending

    def _check(self, sending: asyncio.Task[None]) -> None:
        """Report the trouble of effects that leave by themselves: no caller awaits them."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, Exception):
            self._on_trouble(error)

    async def _send(self, unlocks: int) -> None:
        async with self._turn:
            left = len(self._ticks)
            while left or unlocks:
                count = self._fitting(left)
                part = tuple(tick for tick, _ in self._ticks[:count])
                unlocked = unlocks if count == left else 0
                await self._link.signal(SIGNAL_EFFECTS, Effects(part, unlocked, self._attempt if unlocked else 1))
                self._signals += 1
                del self._ticks[:count]
                unlocks -= unlocked
                left = min(left - count, len(self._ticks))  # they are gone if nobody wants them any more

    def _fitting(self, count: int) -> int:
        """Return how many of the first effects one signal may carry: as many as fit, but at least one."""
        total = 0
        for position, (_, size) in enumerate(self._ticks[:count]):
            total += size
            if position and total > self._settings.signal_bytes:
                return position
        return count
