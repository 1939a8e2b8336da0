"""Runs that nothing happens to, and when they have rested enough to leave memory.

A run that holds a suspended body may stay longer than others, while there is room: when it leaves memory, its body has
to run again from its beginning.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Resting:
    """Runs that could be released, oldest first. Those that have rested for long enough are handed over."""

    __slots__ = ("_alarm", "_held", "_held_timeout", "_loop", "_max_held", "_release", "_since", "_timeout", "_young")

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
        self._since: dict[str, float] = {}
        """Runs without a body, and by the loop's time since when they rest."""
        self._young: dict[str, float] = {}
        """Runs that hold a body, and have not rested for longer than others may."""
        self._held: dict[str, float] = {}
        """Runs that rest for longer than others, for the sake of their bodies."""
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since) + len(self._young) + len(self._held)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._since or run_id in self._young or run_id in self._held

    def add(self, run_id: str, holds_body: bool = False) -> None:
        """A run begins to rest."""
        self.drop(run_id)
        runs = self._young if holds_body and self._held_timeout is not None else self._since
        runs[run_id] = self._loop.time()
        self._arm()

    def drop(self, run_id: str) -> None:
        """A run has something to do, or is gone."""
        self._since.pop(run_id, None)
        self._young.pop(run_id, None)
        self._held.pop(run_id, None)

    def take_oldest(self) -> str:
        """Take the run that costs least to release: the oldest without a body, else the oldest with one.

        It rests no more, so that the next call gives another one.
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
        """Look again when the next one has rested for long enough."""
        if self._timeout is None:
            return
        due = [next(iter(runs.values())) + self._timeout for runs in (self._since, self._young) if runs]
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
        for run_id, _ in _older(self._since, now - self._timeout):
            self._release(run_id)  # if it cannot go now, it rests again later
        self._held.update(_older(self._young, now - self._timeout))
        while self._held:
            run_id, since = next(iter(self._held.items()))
            if len(self._held) <= self._max_held and since > now - (self._held_timeout or 0.0):
                break
            del self._held[run_id]
            self._release(run_id)
        self._arm()


def _older(runs: dict[str, float], moment: float) -> list[tuple[str, float]]:
    """Take out the runs that have rested since a moment or longer, oldest first."""
    found = list(takewhile(lambda item: item[1] <= moment, runs.items()))
    for run_id, _ in found:
        del runs[run_id]
    return found
