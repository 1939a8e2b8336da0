"""Runs that nothing happens to, and when they have rested enough to leave memory. May import asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Resting:
    """Runs that could be released, oldest first. Those that have rested for long enough are handed over."""

    __slots__ = ("_alarm", "_loop", "_release", "_since", "_timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float | None, release: Callable[[str], None]) -> None:
        self._loop = loop
        self._timeout = timeout
        self._release = release
        self._since: dict[str, float] = {}
        """By the loop's time since when."""
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._since

    def add(self, run_id: str) -> None:
        """A run begins to rest."""
        self._since.pop(run_id, None)
        self._since[run_id] = self._loop.time()
        if self._alarm is None and self._timeout is not None:
            self._alarm = self._loop.call_later(self._timeout, self._look)

    def drop(self, run_id: str) -> None:
        """A run has something to do, or is gone."""
        self._since.pop(run_id, None)

    def take_oldest(self) -> str:
        """The run that has rested longest; whoever asks next gets another one."""
        oldest = next(iter(self._since))
        del self._since[oldest]
        return oldest

    def close(self) -> None:
        """Hand over nothing more."""
        self._timeout = None
        if self._alarm is not None:
            self._alarm.cancel()

    def _look(self) -> None:
        self._alarm = None
        if self._timeout is None:
            return
        due = self._loop.time() - self._timeout
        for run_id, since in list(self._since.items()):
            if since > due + 1e-6:
                self._alarm = self._loop.call_later(since - due, self._look)
                break
            # Its turn has come; if it cannot go now, it rests again later.
            del self._since[run_id]
            self._release(run_id)
