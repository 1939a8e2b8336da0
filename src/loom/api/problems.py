"""What is wrong with a run that does not go on: when it is stuck, and the problems that operators are told of."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

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


NOT_FOR_PEOPLE: Final = frozenset(
    {"child run", "CallbackEvent", "loom.flows.CallbackEvent", "ActorReply", "loom.flows.ActorReply"}
)
"""Names of what only the engine or a service answers: the end of a child run, a webhook, the reply of an actor."""


def is_asleep(status: str, *, idle: bool, needs_worker: bool, paused: bool, parked: bool) -> bool:
    """Say whether only a timer will move a run: a delayed retry, a sleep, or the delay of a loop.

    A paused run is not asleep: its timers start nothing.
    """
    return status == "running" and not idle and not needs_worker and not paused and not parked


def is_waiting(status: str, waiting_for: Iterable[str]) -> bool:
    """Say whether a run waits for an event that a person or a program can send."""
    return status == "running" and not NOT_FOR_PEOPLE.issuperset(waiting_for)


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
