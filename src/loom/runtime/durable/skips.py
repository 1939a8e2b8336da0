"""Which delays of a stored run a caller may end now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.state import skippable
from loom.runtime.durable.names import OWN
from loom.store.errors import NothingToSkip

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.store.records import RunRow

_SHOWN_TIMERS = 20


def check_skip(row: RunRow, state: BrokerState, timer: int | None, now: float) -> None:
    """Raise `NothingToSkip`, if a run has no delay that a caller may end, or not this one."""
    if row.workflow.startswith(OWN):
        raise NothingToSkip(row.run_id, "it belongs to the engine, which keeps its times")
    if row.head.parked is not None:
        raise NothingToSkip(row.run_id, "it is parked, and its delays begin to count when it is resumed")
    if skippable(state.timers, max(now, state.at), timer):
        return
    others = skippable(state.timers, max(now, state.at))
    if timer is None or not others:
        raise NothingToSkip(row.run_id, "no step of it sleeps or backs off, and no action waits for a time")
    known = ", ".join(map(str, others[:_SHOWN_TIMERS]))
    raise NothingToSkip(row.run_id, f"timer {timer} is none that can be skipped, which are {known}")
