"""How many runs there are."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from loom.api.answers import Answer

Count = Annotated[int, Meta(ge=0)]


class WorkflowCounts(Answer, frozen=True, kw_only=True):
    """How many runs of one workflow there are, by status and by what holds the running ones.

    A run may be in several: one that is paused may wait, and one that waits may be asleep.
    """

    workflow: str
    total: Count = 0
    running: Count = 0
    completed: Count = 0
    failed: Count = 0
    cancelled: Count = 0
    idle: Count = 0
    """Running ones that only something from outside can move."""
    asleep: Count = 0
    """Running ones that only a timer will move."""
    waiting: Count = 0
    """Running ones that wait for an event that a person or a program can send."""
    paused: Count = 0
    parked: Count = 0
    """Running ones that lack their code."""
    stuck: Count = 0


class Counts(Answer, frozen=True, kw_only=True):
    """How many runs there are. A count is null where the store does not know it: a cluster counts by status alone."""

    at: datetime
    """When they were counted: a server counts seldom, however often it is asked."""
    total: Count | None = None
    running: Count | None = None
    completed: Count | None = None
    failed: Count | None = None
    cancelled: Count | None = None
    idle: Count | None = None
    asleep: Count | None = None
    waiting: Count | None = None
    paused: Count | None = None
    parked: Count | None = None
    stuck: Count | None = None
    workflows: list[WorkflowCounts] = []
    """By name. Loom's own are left out, here and in the sums."""
