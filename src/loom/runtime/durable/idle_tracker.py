"""Idle runs in memory, and when they have been idle for long enough to leave it.

A run that holds a suspended body may stay longer than others, while there is room: when it leaves memory, its body has
to run again from its beginning.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class IdleTracker:
    """Idle runs, oldest first. The tracker hands over each run that has been idle for long enough."""

    __slots__ = (
        "_alarm", "_alarm_at", "_held", "_held_timeout", "_loop", "_max_held", "_release", "_since", "_timeout",
        "_young",
    )  # fmt: skip

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
        """Seconds for which a run with a suspended body may be idle; None: as long as others."""
        self._max_held = max_held
        """The number of runs that may be idle for longer than others."""
        self._since: dict[str, float] = {}
        """Runs without a body, with the loop's time since when they are idle."""
        self._young: dict[str, float] = {}
        """Runs that hold a body, and have not been idle for longer than others may."""
        self._held: dict[str, float] = {}
        """Runs that stay for longer than others, for the sake of their bodies."""
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0.0
        """When the alarm is due, in the loop's time. uvloop's handle does not tell once that moment has passed."""

    def __len__(self) -> int:
        return len(self._since) + len(self._young) + len(self._held)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._since or run_id in self._young or run_id in self._held

    def add(self, run_id: str, holds_body: bool = False) -> None:
        """Track a run that is idle from now on."""
        self.drop(run_id)
        runs = self._young if holds_body and self._held_timeout is not None else self._since
        runs[run_id] = self._loop.time()
        self._arm()

    def drop(self, run_id: str) -> None:
        """Track a run no more: it has something to do, or is gone."""
        self._since.pop(run_id, None)
        self._young.pop(run_id, None)
        self._held.pop(run_id, None)

    def take_oldest(self) -> str:
        """Take the run that costs least to release: the oldest without a body, else the oldest with one.

        It is tracked no more, so that the next call gives another one.
        """
        oldest = next(iter(self._since or self._held or self._young))
        self.drop(oldest)
        return oldest

    def close(self) -> None:
        """Hand over nothing more."""
        self._timeout = None
        if self._alarm is not None:
            self._alarm.cancel()

    def _arm(self) -> None:
        """Set the alarm for when the next run has been idle for long enough."""
        if self._timeout is None:
            return
        due = [next(iter(runs.values())) + self._timeout for runs in (self._since, self._young) if runs]
        if self._held and self._held_timeout is not None:
            due.append(next(iter(self._held.values())) + self._held_timeout)
        if due and (self._alarm is None or min(due) < self._alarm_at):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = min(due)
            self._alarm = self._loop.call_at(self._alarm_at, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self._timeout is None:
            return
        now = self._loop.time() + 1e-6
        for run_id, _ in _older(self._since, now - self._timeout):
            self._release(run_id)  # if it cannot go now, it is tracked again later
        self._held.update(_older(self._young, now - self._timeout))
        while self._held:
            run_id, since = next(iter(self._held.items()))
            if len(self._held) <= self._max_held and since > now - (self._held_timeout or 0.0):
                break
            del self._held[run_id]
            self._release(run_id)
        self._arm()


def _older(runs: dict[str, float], moment: float) -> list[tuple[str, float]]:
    """Take out the runs that have been idle since a moment or longer, oldest first."""
    found = list(takewhile(lambda item: item[1] <= moment, runs.items()))
    for run_id, _ in found:
        del runs[run_id]
    return found
