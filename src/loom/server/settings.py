"""How a server behaves: keys, origins and limits."""

from __future__ import annotations

import msgspec

from loom.flows.limits import Limits
from loom.runtime.durable.acts import RETENTION_S

MAX_PAGE = 500
"""No setting makes a page larger."""

_POSITIVE = (
    "max_body", "max_event", "max_depth", "max_values", "max_header", "arrival_timeout", "page", "max_page",
    "max_streams", "response_timeout",
)  # fmt: skip


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `create_app`. Times are in seconds, sizes in bytes."""

    require_key: bool = False
    """Ask for a key though none was made yet. As soon as there is one, a key is always asked for."""
    read_only: bool = False
    """Refuse whatever changes something. Sessions are kept in memory then, not in the store."""
    hosts: tuple[str, ...] = ()
    """Names that requests may call this server by; empty: any with keys, only names of this machine without."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use the API, such as `https://ops.example.com`; they get CORS headers."""
    max_body: int = 1024 * 1024
    """How large the body of a request may be."""
    max_event: int = 256 * 1024
    """How large the body of a request may be that sends an event."""
    max_depth: int = 64
    """How deep the JSON of a request may be nested."""
    max_values: int = 100_000
    """How many values the JSON of a request may have: they are counted before anything is decoded."""
    max_header: int = 32 * 1024
    """All headers of a request together."""
    arrival_timeout: float = 10.0
    """How long a request may take to arrive."""
    page: int = 100
    """How many items a page has if the caller does not say."""
    max_page: int = MAX_PAGE
    """How many items a page has at most, whatever the caller says."""
    max_wait: float = 60.0
    """How long a request with `wait` waits for the end of a run at most."""
    response_timeout: float = 120.0
    """How long a request that fires a flow's trigger waits for the flow's Response action."""
    max_streams: int = 100
    """Open streams per key."""
    max_connections: int | None = None
    """Open connections of a server that `loom.server.http_server` runs, streams among them; None: any number."""
    rate: float | None = None
    """Requests per second of one key, or of one address without keys; for two seconds' worth at once. None: any. How
    many wrong keys one address may try is always limited."""
    max_starts: int | None = None
    """How many runs of one key may be at work that were begun here, or of all callers without keys. Runs that have
    ended or wait for input do not count. None: any number."""
    heartbeat: float = 25.0
    """A stream says at least so often that it is alive."""
    idempotency_ttl: float = 24 * 3600.0
    """How long an `Idempotency-Key` and the answer to its request are kept."""
    retry_after: int = 1
    """What callers are told who have to come again."""
    drain: float = 10.0
    """How long a server that stops lets open requests finish."""
    audit_retention: float | None = RETENTION_S
    """How long the record of what operators did is kept; None: for ever."""
    limits: Limits = Limits()
    """What the loops of definitions may ask for that are put."""
    accept_context: bool = False
    """Take the `context` that a client of the compatible routes sends."""

    def __post_init__(self) -> None:
        for origin in self.origins:
            scheme, found, rest = origin.partition("://")
            if scheme not in ("http", "https") or not found or not rest or "/" in rest or "*" in rest:
                raise ValueError(f"{origin!r} is not an origin: use a form such as https://ops.example.com.")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        for limit in ("rate", "audit_retention", "max_connections", "max_starts"):
            value = getattr(self, limit)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{limit} must be greater than 0, or None, got {value}.")
        if self.max_page > MAX_PAGE or self.page > self.max_page:
            raise ValueError(f"page must not be above max_page, nor that above {MAX_PAGE}.")
