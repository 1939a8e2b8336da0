"""How a process works on stored runs. May import msgspec, the keys of loom.store and the limits beside it."""

from __future__ import annotations

import os

import msgspec

from loom.runtime.durable.limits import Limits
from loom.store.keyring import Keyring, parse_keys

JOURNAL_KEYS = "LOOM_JOURNAL_KEYS"


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
    callback_url: str | None = None
    """Where services reach the server that takes their callbacks, such as `https://loom.example.com`; None:
    `LOOM_CALLBACK_URL`. `loom serve` knows its own address."""
    schedules: bool = True
    """See to the schedules that the triggers of registered flows ask for."""
    definitions: bool = False
    """Work for all flows that are stored as definitions, not only for what is registered here: those that were put by
    another process are taken up after a few poll intervals, and at the next opening."""
    tracing: bool = True
    """Give spans to OpenTelemetry, if the program has set a provider before it connects."""
    prune: bool = False
    """Drop the ticks and events that a snapshot covers: the past cannot be looked at any more."""

    journal_keys: Keyring | str | None = None
    """What journals are signed with, as `id1:base64,id0:base64`: the first key signs, all of them are known. The word
    `unsigned` lets journals pass from before there was a key. None: `LOOM_JOURNAL_KEYS`, else nothing is signed."""

    max_state: int | None = 64 * 1024 * 1024
    """How many bytes the state of a run may have; it is looked at when a snapshot is due. A run that has more is parked
    until the limit is raised."""
    max_history: int | None = None
    """How many ticks a run may have, if its past is kept. One that has more is parked until the limit is raised."""

    @property
    def limits(self) -> Limits:
        """How large runs may become."""
        return Limits(self.max_state, None if self.prune else self.max_history)

    @property
    def allowed_hosts(self) -> tuple[str, ...] | None:
        """`http_allow` as a list."""
        given = self.http_allow
        return tuple(given.split(",")) if isinstance(given, str) else tuple(given) if given is not None else None

    @property
    def keyring(self) -> Keyring | None:
        """`journal_keys` as keys."""
        assert not isinstance(self.journal_keys, str)
        return self.journal_keys

    def _read_keys(self) -> None:
        """As text they could be shown by whatever shows settings."""
        keys = os.environ.get(JOURNAL_KEYS, "") if self.journal_keys is None else self.journal_keys
        if isinstance(keys, str):
            ring = parse_keys(keys, what=JOURNAL_KEYS, lenient="unsigned") if keys else None
            msgspec.structs.force_setattr(self, "journal_keys", ring)

    def __post_init__(self) -> None:
        self._read_keys()
        for name in ("idle_timeout", "retention"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}.")
        for name in ("lease", "poll_interval"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if not isinstance(self.http_allow, tuple | list | str | None):
            raise TypeError(f"http_allow must be a list of hosts, such as ['localhost:8080'], got {self.http_allow!r}.")
        for name in ("max_in_memory", "max_state", "max_history"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
