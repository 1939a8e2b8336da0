"""A run as it will be: with everything that it was told, though its loop has not come to all of it yet.

May import loom.core, loom.effects and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.reduce import advance
from loom.core.reports import UnhandledReport
from loom.effects.convert import read_field
from loom.steps.planner import StepsPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick


def foreseen(state: BrokerState, pending: Sequence[WorkflowTick]) -> BrokerState:
    """The state after these ticks. The run itself stays where it is: reducing is pure."""
    planner, last = StepsPlanner(), len(pending) - 1
    for position, tick in enumerate(pending):
        marked = tick if position == last else replace(tick, more=True)
        state, _ = advance(state, marked, planner, read_field)
    return state


def is_lost(state: BrokerState, tick: WorkflowTick) -> bool:
    """Whether nobody would take an event that came now, and there would be no room to keep it."""
    _, commands = advance(state, tick, StepsPlanner(), read_field)
    published = [command.event for command in commands if isinstance(command, CommandPublishEvent)]
    return any(isinstance(report, UnhandledReport) and not report.kept for report in published)
