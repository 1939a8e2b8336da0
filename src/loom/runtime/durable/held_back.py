"""Runs that wait for room in memory, and places that runs lend to their children.

A workflow may limit how many of its runs are in memory. A run that waits for a child of the same workflow would hold
the very place that the child needs: so a child may use the place of the run that it descends from, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.registered import Registered


class HeldBack:
    """Runs in the order in which they came, by their code: none waits behind the limit of another workflow."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Registered, dict[str, tuple[str, ...]]] = {}
        """By code: the runs, each with the runs of the same workflow that it descends from."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, run_id: str, code: Registered, ancestors: tuple[str, ...] = ()) -> None:
        """Let a run wait."""
        self._waiting.setdefault(code, {})[run_id] = ancestors

    def drop(self, run_id: str, code: Registered) -> None:
        """A run waits no more."""
        waiting = self._waiting.pop(code, {})
        waiting.pop(run_id, None)
        if waiting:
            self._waiting[code] = waiting  # the runs of other workflows are first now

    def next(
        self, room_for: Callable[[Registered], int], lender: Callable[[Registered, tuple[str, ...]], str | None]
    ) -> str | None:
        """The first run that there is room for, or that another lends its place to; it waits no more."""
        for code, waiting in self._waiting.items():
            has_room = bool(room_for(code))
            for run_id, ancestors in waiting.items():
                if has_room or (ancestors and lender(code, ancestors) is not None):
                    self.drop(run_id, code)
                    return run_id
        return None


class Loans:
    """Who uses whose place: runs that are in memory, or about to be, and do not count, since another lends them its."""

    __slots__ = ("_lenders",)

    def __init__(self) -> None:
        self._lenders: dict[str, str] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._lenders

    def lend(self, borrower: str, lender: str) -> None:
        """Let a run use the place of another."""
        self._lenders[borrower] = lender

    def is_lent(self, run_id: str) -> bool:
        """Whether another run uses the place of this one."""
        return run_id in self._lenders.values()

    def end(self, run_id: str) -> None:
        """A run has left memory: who used its place has that now, be it the run's own or lent to it."""
        lender = self._lenders.pop(run_id, None)
        for borrower in [borrower for borrower, other in self._lenders.items() if other == run_id]:
            if lender is None:
                del self._lenders[borrower]
            else:
                self._lenders[borrower] = lender
