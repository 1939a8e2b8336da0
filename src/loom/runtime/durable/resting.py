"""Runs that nothing happens to, and when they have rested enough to leave memory.

A run that holds a suspended body may stay longer than others, while there is room: when it leaves memory, its body has
to run again from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Resting:
    """Runs that could be released, oldest first. Those that have rested for long enough are handed over."""

    __slots__ = ("_alarm", "_held", "_held_timeout", "_loop", "_max_held", "_release", "_since", "_timeout")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout: float | None,
        release: Callable[[str], None],
        held_timeout: float | None = None,
        max_held: int = 0,
    ) -> None:
        self._loop = loop
        self._timeout = timeout
        self._release = release
        self._held_timeout = held_timeout
        """How long runs with a suspended body may rest; None: as long as others."""
        self._max_held = max_held
        """How many of them may rest for longer than others."""
        self._since: dict[str, tuple[float, bool]] = {}
        """By the loop's time since when, and whether the run holds a body."""
        self._held: dict[str, float] = {}
        """Runs that rest for longer than others, for the sake of their bodies."""
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since) + len(self._held)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._since or run_id in self._held

    def add(self, run_id: str, holds_body: bool = False) -> None:
        """A run begins to rest."""
        self.drop(run_id)
        self._since[run_id] = self._loop.time(), holds_body and self._held_timeout is not None
        self._arm()

    def drop(self, run_id: str) -> None:
        """A run has something to do, or is gone."""
        self._since.pop(run_id, None)
        self._held.pop(run_id, None)

    def take_oldest(self) -> str:
        """The run that has rested longest; whoever asks next gets another one."""
        oldest = next(iter(self._held or self._since))
        self.drop(oldest)
        return oldest

    def close(self) -> None:
        """Hand over nothing more."""
        self._timeout = None
        if self._alarm is not None:
            self._alarm.cancel()

    def _arm(self) -> None:
        """Look again when the next one has rested for long enough."""
        if self._timeout is None:
            return
        due = []
        if self._since:
            due.append(next(iter(self._since.values()))[0] + self._timeout)
        if self._held and self._held_timeout is not None:
            due.append(next(iter(self._held.values())) + self._held_timeout)
        if due and (self._alarm is None or min(due) < self._alarm.when()):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(min(due), self._look)

    def _look(self) -> None:
        self._alarm = None
        if self._timeout is None:
            return
        now = self._loop.time() + 1e-6
        while self._since:
            run_id, (since, holds_body) = next(iter(self._since.items()))
            if since > now - self._timeout:
                break
            # Its turn has come; if it cannot go now, it rests again later.
            del self._since[run_id]
            if holds_body:
                self._held[run_id] = since
            else:
                self._release(run_id)
        while self._held:
            run_id, since = next(iter(self._held.items()))
            if len(self._held) <= self._max_held and since > now - (self._held_timeout or 0.0):
                break
            del self._held[run_id]
            self._release(run_id)
        self._arm()
