"""A state under construction: the kernel's workbench.

A `Draft` is the only mutable thing in the engine. It is made from a state, changed by one tick after the other, and
frozen to the next state when a caller asks for it. A caller that keeps one across ticks must be able to make it anew
from the last state, in case a tick raises halfway: see `Run`.

Its methods are the changes that must keep two things in step: a number and its counter, a timer and its command. Timers
of retries, of sleeps and of the planner will move the run by themselves. While one of them is armed, the run is asleep
rather than idle. Timeouts, of a waiter or of the run, do not count as such.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from loom.core.commands import (
    CommandCancelTimer,
    CommandPublishEvent,
    CommandStartTimer,
    CommandWarn,
    WorkflowCommand,
)
from loom.core.records import EventRecord, Notice, Published, num_workers
from loom.core.state import MOVING, BrokerState, InternalStepWorkerState, RunFields

if TYPE_CHECKING:
    from loom.core.planner import Planner
    from loom.core.state import Timer
    from loom.core.ticks import TickAddEvent

    _Fields = RunFields
else:
    # Plain slots are read and written faster than the fields of a struct, and nothing here needs more.
    _Fields = object

FieldReader = Callable[[EventRecord, str], Any]
"""Reads a field of an event's body, None if it has none: the engine cannot look inside a body by itself."""

_NAMES = RunFields.__struct_fields__
_values_of = attrgetter(*_NAMES)


class Draft(_Fields):
    """The fields of a `BrokerState`, open for change, with the commands so far and what the kernel may ask."""

    if not TYPE_CHECKING:
        __slots__ = (*_NAMES, "commands", "derived", "planner", "read_field")

    def __init__(self, state: BrokerState, planner: Planner, read_field: FieldReader) -> None:
        for name, value in zip(_NAMES, _values_of(state), strict=True):
            setattr(self, name, value)
        self.planner = planner
        self.read_field = read_field
        self.commands: list[WorkflowCommand] = []
        self.derived: list[TickAddEvent] = []
        """Events that the run made itself: `CommandQueueEvent`s, to be reduced within the same transition."""

    def worker(self, step: str) -> InternalStepWorkerState:
        """Return the state of a step, a new one if it has none yet."""
        worker = self.workers.get(step)
        return worker if worker is not None else InternalStepWorkerState(num_workers(self.config, step))

    def next_seq(self) -> int:
        """Return a new number for an outward command, timer or waiter."""
        self.sequence += 1
        return self.sequence

    def publish(self, event: Published) -> None:
        """Put something on the stream, at the next cursor."""
        self.commands.append(CommandPublishEvent(self.published, event))
        self.published += 1

    def warn(self, message: str) -> None:
        """Warn the operator, through the log."""
        self.commands.append(CommandWarn(Notice(message)))

    def arm(self, timer: Timer) -> int:
        """Start a timer and return its number."""
        number = self.next_seq()
        self.timers = self.timers.set(number, timer)
        if timer.purpose in MOVING:
            self.asleep += 1
        self.commands.append(CommandStartTimer(number, timer.due, timer.purpose))
        return number

    def disarm(self, number: int | None) -> None:
        """Cancel a timer, if it is armed."""
        if number is not None and self.take_timer(number) is not None:
            self.commands.append(CommandCancelTimer(number))

    def take_timer(self, number: int) -> Timer | None:
        """Remove a timer that has fired and return it; None if it was disarmed or has fired before."""
        timer = self.timers.get(number)
        if timer is not None:
            self.timers = self.timers.delete(number)
            if timer.purpose in MOVING:
                self.asleep -= 1
        return timer

    def rearm_all(self) -> None:
        """Ask for every armed timer again, in the order in which they were started."""
        for number in sorted(self.timers):
            timer = self.timers[number]
            self.commands.append(CommandStartTimer(number, timer.due, timer.purpose))

    def freeze(self) -> BrokerState:
        """Return the state as it is now."""
        return BrokerState(*_values_of(self))
