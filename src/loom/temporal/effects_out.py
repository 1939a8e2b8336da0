"""How the effects of a body leave its activity: with its result, or before it as signals. May import loom.core.

Effects keep their order: what a signal carries comes before what the next signal carries, and before the result. An
effect is dropped here only when it has arrived; one that arrives twice is recognised by the reducer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from loom.store.codec.structs import encode
from loom.temporal.names import SIGNAL_EFFECTS
from loom.temporal.payloads import MAX_PAYLOAD, Effects

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.ticks import WorkflowTick
    from loom.temporal.link import RunLink


_OFTEN = 10
"""After so many signals the next effects wait twice as long."""


class ActivitySettings(msgspec.Struct, frozen=True):
    """The times and sizes of the activity side. Nothing of a replay depends on them."""

    flush_after_s: float = 0.05
    """How long an effect waits for the body's end before it leaves as a signal, at first."""
    flush_max_s: float = 1.0
    """How long at most: signals grow the run's history, so the effects of a body that has sent many wait longer."""
    settle_s: float = 0.05
    """How long nothing may happen before a body leaves whose own task does not wait, but another one of it."""
    hold_s: float = 60.0
    """How long a body that waits is held while another task of it is within `ctx.once`."""
    grace_s: float = 0.5
    """How long a body may take to end when it is cancelled or leaves."""
    signal_bytes: int = 1_000_000
    """What one signal carries at most, if it carries several effects."""
    result_bytes: int = MAX_PAYLOAD
    """What one effect or result may have; Temporal refuses two MiB."""
    lock_poll_s: float = 0.01
    """How soon a writer asks again for its turn, at first; then twice as long each time."""
    lock_poll_max_s: float = 0.2
    lock_renew_s: float = 10.0
    """How often a writer, or who waits to be one, says that it is there. The run gives up on it after 30 seconds."""


def size_of(tick: WorkflowTick) -> int:
    """The bytes that a tick has on the wire."""
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
        """Let what was added leave in time; on the outbox's own event loop."""
        if self._due is None and self._ticks:
            delay = min(self._settings.flush_after_s * (1 + self._signals / _OFTEN), self._settings.flush_max_s)
            self._due = self._loop.call_later(delay, self._leave_soon)

    async def flush(self, unlocks: int = 0) -> None:
        """Send all effects there are, and give the store back if asked to; return when they are durable.

        What has begun to leave does so even if whoever waits for it is cancelled.
        """
        if self._ticks or unlocks or self._sending:
            await asyncio.shield(self._begin(unlocks))

    async def rest(self, last: WorkflowTick) -> tuple[WorkflowTick, ...]:
        """What goes along with the last tick of the body: as much of the effects as has not left before."""
        self._disarm()
        if self._sending:
            await asyncio.wait(tuple(self._sending))
        if sum(size for _, size in self._ticks) + size_of(last) > self._settings.result_bytes:
            await self.flush()
        ticks, self._ticks = self._ticks, []
        return tuple(tick for tick, _ in ticks)

    def close(self) -> None:
        """Nobody wants these effects any more."""
        self._disarm()
        self._ticks.clear()

    def _disarm(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def send_later(self, unlocks: int = 0) -> None:
        """Begin to send all effects there are; nobody waits for it."""
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
        """Nobody waits for what leaves by itself, so its trouble is told."""
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
        """How many of the first effects one signal may carry: as many as fit, and at least one if there is one."""
        total = 0
        for position, (_, size) in enumerate(self._ticks[:count]):
            total += size
            if position and total > self._settings.signal_bytes:
                return position
        return count
