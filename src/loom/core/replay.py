"""Replay: the same ticks give the same state and the same commands, always. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.draft import Draft
from loom.core.reduce import advance, no_fields, transition
from loom.core.state import BrokerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loom.core.commands import WorkflowCommand
    from loom.core.draft import FieldReader
    from loom.core.planner import Planner
    from loom.core.ticks import WorkflowTick


def replay(
    ticks: Iterable[WorkflowTick],
    planner: Planner,
    state: BrokerState | None = None,
    read_field: FieldReader = no_fields,
) -> BrokerState:
    """The state after a journal, from the beginning or from a snapshot."""
    draft = Draft(state if state is not None else BrokerState(), planner, read_field)
    for tick in ticks:
        transition(draft, tick)
        draft.commands = []
    return draft.freeze()


def replay_steps(
    ticks: Iterable[WorkflowTick],
    planner: Planner,
    state: BrokerState | None = None,
    read_field: FieldReader = no_fields,
) -> Iterator[tuple[WorkflowTick, BrokerState, list[WorkflowCommand]]]:
    """Each tick with the state after it and the commands that it led to."""
    current = state if state is not None else BrokerState()
    for tick in ticks:
        current, commands = advance(current, tick, planner, read_field)
        yield tick, current, commands
