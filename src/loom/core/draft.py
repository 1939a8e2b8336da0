"""A state under construction: the kernel's workbench during one transition.

It is the only mutable thing in the engine. It is made from a state, lives for one transition, and becomes the next
state; if anything raises, the old state is untouched. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from loom.core.commands import CommandPublishEvent, CommandWarn, WorkflowCommand
from loom.core.config import num_workers
from loom.core.records import EventRecord
from loom.core.reports import Notice, Published
from loom.core.state import BrokerState, InternalStepWorkerState, RunFields
from loom.core.ticks import TickAddEvent  # noqa: TC001 - msgspec reads the annotations of its structs

if TYPE_CHECKING:
    from loom.core.planner import Planner

FieldReader = Callable[[EventRecord, str], Any]
"""Reads a field of an event's body, None if it has none: the engine cannot look inside a body by itself."""

_SIZE = len(BrokerState.__struct_fields__)
_astuple = msgspec.structs.astuple


class Draft(RunFields):
    """The fields of a `BrokerState`, open for change, with the commands so far and what the kernel may ask."""

    planner: Any = None
    read_field: Any = None
    commands: list[WorkflowCommand] = msgspec.field(default_factory=list)
    derived: list[TickAddEvent] = msgspec.field(default_factory=list)
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
        return BrokerState(*_astuple(self)[:_SIZE])


def open_draft(state: BrokerState, planner: Planner, read_field: FieldReader) -> Draft:
    """A draft of the state after `state`."""
    return Draft(*_astuple(state), planner, read_field)  # type: ignore[call-arg]  # mypy counts no inherited fields
