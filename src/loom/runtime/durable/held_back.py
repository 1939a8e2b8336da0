"""Runs that wait for room in memory. May import the rest of loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.registered import Registered


class HeldBack:
    """Runs in the order in which they came, by their code: none waits behind the limit of another workflow."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Registered, dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, run_id: str, code: Registered) -> None:
        """Let a run wait."""
        self._waiting.setdefault(code, {})[run_id] = None

    def drop(self, run_id: str, code: Registered) -> None:
        """A run waits no more."""
        waiting = self._waiting.pop(code, {})
        waiting.pop(run_id, None)
        if waiting:
            self._waiting[code] = waiting  # the runs of other workflows are first now

    def next(self, room_for: Callable[[Registered], int]) -> str | None:
        """The first run that there is room for; it waits no more."""
        for code, waiting in self._waiting.items():
            if room_for(code):
                run_id = next(iter(waiting))
                self.drop(run_id, code)
                return run_id
        return None
