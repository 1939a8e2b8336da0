"""A run over time: its graph with counts, its timeline, and the iterations of its loops."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from loom.api.answers import Answer, promises
from loom.api.state import Loop

BarKind = Literal["work", "wait", "delay", "queue"]
BarStatus = Literal["ok", "failed", "running", "cancelled"]


class StepCounts(Answer, frozen=True, kw_only=True):
    """What became of a step or an action so far. `failed` are those that failed for good, `retries` further attempts.

    `attempt` is the highest that is under way or waits for its time; null without one.
    """

    node: str
    executing: int = 0
    waiting: int = 0
    queued: int = 0
    delayed: int = 0
    completed: int = 0
    failed: int = 0
    retries: int = 0
    last_at: datetime | None = None
    attempt: int | None = None
    max_attempts: int | None = None


class RunGraph(Answer, frozen=True, kw_only=True):
    """The graph of the version that a run follows, with counts per node, now or as they were after a tick.

    Of a very long run one look counts a part only, up to `tick`; the next look goes on from there.
    """

    name: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    steps: list[StepCounts] = []
    loops: list[Loop] = []
    tick: int
    partial: bool = False


class Bar(Answer, frozen=True, kw_only=True):
    """A piece of a lane: an attempt, a wait, a delay until the next attempt or iteration, or the time in a queue."""

    begin: datetime
    end: datetime | None
    kind: BarKind
    attempt: int
    status: BarStatus
    tick: int
    iteration: int | None
    error: str | None


class Density(Answer, frozen=True, kw_only=True):
    """How many bars touch a part of the window: attempts, others, and how many attempts failed in it."""

    begin: datetime
    end: datetime
    work: int
    wait: int
    failed: int


class Lane(Answer, frozen=True, kw_only=True):
    """A step or an action, with all of its bars in the window, or their density where they are too many.

    `total` counts the bars in the window; `waits` those among them that are no work.
    """

    name: str
    kind: Literal["step", "action", "loop"]
    total: int
    failed: int
    retries: int
    waits: int
    bars: list[Bar] | None
    density: list[Density] | None


class Timeline(Answer, frozen=True, kw_only=True):
    """What a run did between two moments, up to a tick. `partial`: some of it is missing."""

    begin: datetime
    end: datetime
    tick: int
    partial: bool
    lanes: list[Lane]


@promises(iteration=int)
class Iteration(Answer, frozen=True, kw_only=True):
    """One round of a loop, whatever its type. `duration` is in seconds."""

    iteration: int
    status: Literal["running", "complete", "failed", "cancelled"]
    condition_result: bool | None = None
    result: Any = None
    error: str | None = None
    begin: datetime | None = None
    end: datetime | None = None
    duration: float | None = None
    tick: int | None = None
