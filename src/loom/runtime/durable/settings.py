"""How a process works on stored runs. May import msgspec."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `loom.connect`. Times are in seconds."""

    idle_timeout: float | None = 60.0
    """How long a run stays in memory that nothing happens to; 0: not at all, None: for ever."""
    max_in_memory: int | None = None
    """How many runs may be in memory. Those that nothing happens to make room; others wait for their turn."""
    name: str = ""
    """What this process is called among others."""
    lease: float = 15.0
    """How long others wait for a sign of life of this process before they take over its runs."""
    poll_interval: float = 1.0
    """How often the store is looked at, beside the news that it gives."""
    retention: float | None = None
    """How long ended runs are kept; None: for ever."""
    http_allow: tuple[str, ...] | list[str] | str | None = None
    """Hosts, addresses and networks, or a comma list, that HTTP actions may reach though they are not public; None:
    `LOOM_HTTP_ALLOW`."""
    schedules: bool = True
    """See to the schedules that the triggers of registered flows ask for."""
    prune: bool = False
    """Drop the ticks and events that a snapshot covers: the past cannot be looked at any more."""

    @property
    def allowed_hosts(self) -> tuple[str, ...] | None:
        """`http_allow` as a list."""
        given = self.http_allow
        return tuple(given.split(",")) if isinstance(given, str) else tuple(given) if given is not None else None

    def __post_init__(self) -> None:
        for name in ("idle_timeout", "retention"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}.")
        for name in ("lease", "poll_interval"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if not isinstance(self.http_allow, tuple | list | str | None):
            raise TypeError(f"http_allow must be a list of hosts, such as ['localhost:8080'], got {self.http_allow!r}.")
        if self.max_in_memory is not None and self.max_in_memory < 1:
            raise ValueError(f"max_in_memory must be at least 1, got {self.max_in_memory}.")
