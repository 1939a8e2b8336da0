"""The server about itself: whether it works, and what operators did."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from loom.api.answers import Answer
from loom.api.workers import Role


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


class Session(Answer, frozen=True, kw_only=True):
    """Who is asking, and what they may do. Without keys, callers on the server's machine need none."""

    required: bool
    """Whether the server asks for a key."""
    authenticated: bool
    name: str | None = None
    """What the key is called; `local` on a server without keys; None if nobody has logged in."""
    scopes: list[str] = []
    workflows: list[str] | None = None
    """The only workflows that the key is good for; None: all."""
    csrf: str | None = None
    """What requests by cookie that change something need in the header `X-Loom-CSRF`; None without a cookie."""
    read_only: bool = False
    """Whether the server refuses whatever changes something."""
    version: str = ""
    """The version of Loom."""
    server_time: datetime | None = None


class Alive(Answer, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["live"]


class Readiness(Answer, frozen=True, kw_only=True):
    """Whether the server takes work, and if not, why."""

    status: Literal["ready", "unready"]
    reasons: list[str]
    role: Role = "client"
    """What this process does: a standby takes over when the process that works on the store has ended."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server takes work, and if not, why."""

    ready: bool
    reasons: list[str] = []
    role: Role | None = None
    """What the process that answered does; None if it does not say."""
