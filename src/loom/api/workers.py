"""The processes that work on runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from loom.api.answers import Answer

Count = Annotated[int, Meta(ge=0)]

Role = Literal["worker", "client", "standby"]
"""What a process does: it works on runs, or it only starts, sends and reads, or that until it takes over."""


class Worker(Answer, frozen=True, kw_only=True):
    """A process that works on runs, or the one that answers. What the store does not know of it is null."""

    name: str
    role: Role = "worker"
    """What it does: work on runs; only start, send and read; or that until the process that works has ended."""
    alive: bool = False
    """Whether its lease holds."""
    since: datetime | None = None
    """When it began to work on runs."""
    seen: datetime | None = None
    """Its last sign of life."""
    until: datetime | None = None
    """The end of its lease; null where a lease has no end."""
    workflows: list[str] | None = None
    """The workflows that it has the code of."""
    runs_in_memory: Count | None = None
    owned: Count | None = None
    """How many runs it owns, by the store."""
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    """Its version of Loom."""
    is_this: bool = False
    """Whether it is the process that answers."""
