"""The processes that work on runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from loom.api.answers import Answer

Count = Annotated[int, Meta(ge=0)]


class Worker(Answer, frozen=True, kw_only=True):
    """A process that works on runs. What the store does not know of it is null."""

    name: str
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
