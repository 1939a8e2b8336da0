"""The timers of a run that are armed in this process, by due time. May import loom.core."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from loom.core.ticks import TickTimeout, TickTimerFired

if TYPE_CHECKING:
    from loom.core.commands import CommandStartTimer
    from loom.core.ticks import WorkflowTick


_SPARE = 64
"""How many cancelled timers are kept, beyond as many as are armed."""


class ArmedTimers:
    """A heap of due times. Cancelled ones are skipped when they come up, and swept out when they are too many."""

    __slots__ = ("_armed", "_heap", "next_due")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._armed: dict[int, CommandStartTimer] = {}
        self.next_due: float | None = None
        """When the next timer is due."""

    def start(self, command: CommandStartTimer) -> None:
        """Arm a timer; one of the same number is replaced."""
        self._armed[command.seq] = command
        heapq.heappush(self._heap, (command.due, command.seq))
        self._look()

    def cancel(self, seq: int) -> None:
        """Disarm a timer."""
        self._armed.pop(seq, None)
        if len(self._heap) > 2 * len(self._armed) + _SPARE:
            # Most waits end long before their time: what they leave behind must not pile up until then.
            self._heap = [(command.due, command.seq) for command in self._armed.values()]
            heapq.heapify(self._heap)
        self._look()

    def _look(self) -> None:
        """Skip what is not armed any more, and note what comes next."""
        heap, armed = self._heap, self._armed
        while heap:
            due, seq = heap[0]
            command = armed.get(seq)
            if command is not None and command.due == due:
                self.next_due = due
                return
            heapq.heappop(heap)
        self.next_due = None

    def fire(self, now: float) -> list[WorkflowTick]:
        """The ticks of all timers that are due by now, none of them early."""
        fired: list[WorkflowTick] = []
        while self.next_due is not None and self.next_due <= now:
            _, seq = heapq.heappop(self._heap)
            command = self._armed.pop(seq)
            tick_type = TickTimeout if command.purpose == "timeout" else TickTimerFired
            fired.append(tick_type(at=now, timer=seq))
            self._look()
        return fired
