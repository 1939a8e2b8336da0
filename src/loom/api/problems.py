"""What is wrong with a run that does not go on: when it is stuck, and the problems that operators are told of."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

NOBODYS_TURN = "It is idle, no step has anything to do, and none waits for an event."
"""The reason of a stuck run of which nothing more is known."""

RunStatus = Literal["running", "completed", "failed", "cancelled"]
"""A run that timed out has failed."""
ProblemKind = Literal["failed", "parked", "stuck"]


def is_stuck(status: str, *, idle: bool, waits: bool, paused: bool, parked: bool) -> bool:
    """Say whether a run is stuck: running and idle, without a waiter, neither paused nor parked.

    Such a run looks healthy, but nobody knows that it is their turn. `waits` is whether the run shows any waiter, which
    includes child runs and steps that take answers from outside.
    """
    return status == "running" and idle and not waits and not paused and not parked


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A run has failed, is parked or is stuck. Hooks get it at least once, so it may come again with the same id."""

    id: str
    """The same whenever this problem is told: the run, its tick and the kind."""
    kind: ProblemKind
    run_id: str
    workflow: str
    message: str
    """What the run failed with, or why it is parked or stuck."""
    at: datetime
    tick: int
    """The number of the run's last tick, as its history counts."""
    tags: dict[str, str] = {}
