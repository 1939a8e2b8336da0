"""The server about itself: whether it works, and what operators did."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from loom.api.answers import Answer


class Acted(Answer, frozen=True, kw_only=True):
    """Something that an operator did, or was refused: then `outcome` is 403."""

    at: datetime
    actor: str
    actor_name: str
    action: str
    target: str
    made: str | None
    request_id: str | None
    outcome: int | str


class Alive(Answer, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["live"]


class Readiness(Answer, frozen=True, kw_only=True):
    """Whether the server takes work, and if not, why."""

    status: Literal["ready", "unready"]
    reasons: list[str]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server takes work, and if not, why."""

    ready: bool
    reasons: list[str] = []
