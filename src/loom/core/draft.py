"""A state under construction: the kernel's workbench.

It is the only mutable thing in the engine. It is made from a state, changed by one tick after the other, and becomes
the next state when somebody looks. Whoever keeps one across ticks must be able to make it anew from the last state, in
case a tick raises halfway: see `Run`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from loom.core.commands import CommandPublishEvent, CommandWarn, WorkflowCommand
from loom.core.config import num_workers
from loom.core.records import EventRecord
from loom.core.reports import Notice, Published
from loom.core.state import BrokerState, InternalStepWorkerState, RunFields

if TYPE_CHECKING:
    from loom.core.planner import Planner
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
        """The state of a step, a new one if it has none yet."""
        worker = self.workers.get(step)
        return worker if worker is not None else InternalStepWorkerState(num_workers(self.config, step))

    def next_seq(self) -> int:
        """A new number for an outward command, timer or waiter."""
        self.sequence += 1
        return self.sequence

    def publish(self, event: Published) -> None:
        """Put something on the stream, at the next cursor."""
        self.commands.append(CommandPublishEvent(self.published, event))
        self.published += 1

    def warn(self, message: str) -> None:
        """Tell the operator."""
        self.commands.append(CommandWarn(Notice(message)))

    def freeze(self) -> BrokerState:
        """The state as it is now."""
        return BrokerState(*_values_of(self))
