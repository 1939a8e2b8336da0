"""What holds a run now: one sentence for people, and the causes as data for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

CauseKind = Literal[
    "ended", "unanswered", "damaged", "lease", "no_worker", "parked", "paused", "not_started", "cancelling", "busy",
    "queued", "backoff", "timer", "child", "waiter", "stuck", "timeout",
]  # fmt: skip
"""In the order in which one is more decisive than another: the sentence is that of the first that holds.

`ended`: the run is over. `unanswered`: no worker of the cluster says how it is. `damaged`: its journal cannot be read.
`lease`: its owner is silent, and another takes it over; of a run that only waits for input, this comes last.
`no_worker`: it could go on, or something has come for it, but no worker has it. `parked`: the code of its workers
cannot go on with it. `paused`: it starts nothing until it is resumed. `not_started`: no worker has begun it.
`cancelling`: it was cancelled, and its clean-up step is not done. `busy`: a step or an action executes. `queued`: work
waits for a free worker of its step. `backoff`: the next attempt at a step waits. `timer`: a sleep, a wait of a flow or
the delay of a loop. `child`: another run has to end. `waiter`: an event has to come. `stuck`: it is idle, although no
step, timer or waiter can move it. `timeout`: the run's own timeout, told beside what holds it.
"""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds a run. Fields that say nothing about its kind are None."""

    kind: CauseKind
    sentence: str
    step: str | None = None
    """The step, or the action of a flow."""
    since: datetime | None = None
    until: datetime | None = None
    """When it is over by itself: a timer, the deadline of a waiter, the end of a lease."""
    event_type: str | None = None
    """The event that is waited for, by its wire name."""
    waiter_id: str | None = None
    requirements: dict[str, Any] | None = None
    """Fields that the event must have, without what is secure."""
    refused: str | None = None
    """What was wrong with the last answer to the waiter, if that was refused: fields and reasons, never values."""
    attempt: int | None = None
    """The attempt that executes, or the next one; from 1."""
    max_attempts: int | None = None
    """How many attempts the retry policy allows; None if it does not say."""
    error: str | None = None
    """What the attempt before failed with, or the run."""
    child_id: str | None = None
    """The run that has to end."""
    owner: str | None = None
    """The process that holds the run, by its name."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run is where it is."""

    run_id: str
    workflow: str
    status: Literal["running", "completed", "failed", "cancelled"]
    kind: CauseKind
    """That of the first cause, which is the most decisive one."""
    sentence: str
    """What holds the run, in one sentence."""
    at: datetime
    """When this was so, by the clock of the process that answered."""
    causes: list[Cause]
    """All that holds the run, the most decisive first; never empty. Of each kind at most 20."""
