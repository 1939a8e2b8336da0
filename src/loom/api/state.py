"""The state of a run as callers see it: its steps, timers, waiters and children; of a flow its loops and actions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from loom.api.answers import Answer, Id, promises
from loom.api.attempts import ExecutingAttempt, FailedAttempt
from loom.api.runs import RefusedEvent, Waiter


class StepState(Answer, frozen=True, kw_only=True):
    """How many pieces of work a step has."""

    step: str
    executing: int
    waiting: int
    queued: int
    delayed: int


class TimerState(Answer, frozen=True, kw_only=True):
    """A timer that is armed."""

    timer: int
    due: datetime
    purpose: str
    step: str | None
    skippable: bool = False
    """Whether a caller may end it now: it delays work. Timeouts cannot be skipped."""


class KeptState(Answer, frozen=True, kw_only=True):
    """Events that came early and wait for somebody to ask for them."""

    event_type: str
    count: int


@promises(run_id=Id)
class ChildState(Answer, frozen=True, kw_only=True):
    """A child run under way."""

    run_id: str
    workflow: str
    step: str | None
    since: datetime | None


@promises(status=Literal["running", "complete", "failed", "timeout"], timeout=float | None)
class Loop(Answer, frozen=True, kw_only=True):
    """How far a loop is, or how it ended. Lengths of time are seconds.

    Of a loop that is over, limits that an expression gave are null unless the loop ended by them.
    """

    name: str
    path: str
    type: str
    status: str
    condition: str | None = None
    condition_result: bool | None = None
    iteration: int = 0
    max_iterations: int | None = None
    timeout: float | str | None = None
    start_time: datetime | None = None
    duration: float | None = None
    last_result: Any = None
    next_iteration_at: datetime | None = None
    parent: str | None = None


class ActionUnderWay(Answer, frozen=True, kw_only=True):
    """An action that something outside does, or that waits."""

    name: str
    path: str
    type: str
    status: Literal["running", "waiting", "retrying"]
    since: datetime
    due: datetime | None
    attempt: int
    error: str | None
    parent: str | None
    max_attempts: int = 1
    code: str | None = None
    failed_at: datetime | None = None
    attempt_since: datetime | None = None


@promises(path=str, type=str, iterations=int | None)
class Action(Answer, frozen=True, kw_only=True):
    """What became of an action of a flow so far; of its last repetition, if there are several."""

    name: str
    path: str | None = None
    type: str | None = None
    status: str
    code: str | None = None
    inputs: Any = None
    outputs: Any = None
    error: Any = None
    iterations: Any = None
    started: datetime | None = None
    ended: datetime | None = None


@promises(run_id=Id)
class State(Answer, frozen=True, kw_only=True):
    """A run as it is, or as it was after a tick. One whose journal cannot be read says so, and nothing else."""

    run_id: str
    tick: int
    at: datetime | None
    is_running: bool | None
    idle_since: datetime | None
    damaged: str | None
    active_waiters: list[Waiter]
    steps: list[StepState]
    timers: list[TimerState]
    kept: list[KeptState]
    children: list[ChildState]
    executing: list[ExecutingAttempt] = []
    failed_attempts: list[FailedAttempt] = []
    refused: list[RefusedEvent] = []
    loops: list[Loop]
    under_way: list[ActionUnderWay] | UnsetType = UNSET
    actions: list[Action] | UnsetType = UNSET
    variables: dict[str, Any] | UnsetType = UNSET
    store: dict[str, Any] | UnsetType = UNSET
