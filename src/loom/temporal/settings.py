"""Options of a process that works on runs of a cluster. Nothing that a replay does depends on them."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from loom.runtime.durable.settings import Settings
from loom.temporal.payloads import MAX_PAYLOAD

_CACHED = 1000


class ActivityOptions(msgspec.Struct, frozen=True):
    """How the cluster treats activities. Times are in seconds."""

    heartbeat_timeout: float = 10.0
    """How long a worker may be silent before the cluster gives its body to another worker."""
    retry_interval: float = 1.0
    """How long the cluster waits before it does so."""


class ActivitySettings(msgspec.Struct, frozen=True):
    """Times in seconds and sizes in bytes within an activity."""

    flush_after_s: float = 0.05
    """How long an effect waits for the body's end before it leaves as a signal, at first."""
    flush_max_s: float = 1.0
    """The longest such wait. Signals grow the run's history, so effects of a body that has sent many wait longer."""
    settle_s: float = 0.05
    """How long nothing may happen before a body leaves whose own task does not wait, but another task of it does."""
    hold_s: float = 60.0
    """How long a waiting body is held while another task of it is within `ctx.once`."""
    grace_s: float = 0.5
    """How long a body may take to end when it is cancelled or leaves."""
    signal_bytes: int = 1_000_000
    """The limit for a signal that carries several effects."""
    result_bytes: int = MAX_PAYLOAD
    """The limit for one effect or result; Temporal refuses two MiB."""
    lock_poll_s: float = 0.01
    """How soon a writer asks again for its turn, at first; then twice as long each time."""
    lock_poll_max_s: float = 0.2
    lock_renew_s: float = 10.0
    """How often a writer, or a body that waits to write, renews its request. The run gives up on it after 30 s."""


class TemporalSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `loom.connect("temporal://...")`. Times are in seconds.

    Leases, releases and pruning, which `Settings` describes, mean nothing here: the cluster keeps the runs.
    """

    heartbeat_timeout: float = 10.0
    """How long a worker may be silent before its steps are given to another one."""
    retry_interval: float = 1.0
    """How long the cluster waits before it does so."""
    grace: float = 2.0
    """How long steps may go on when this process stops. Steps that are left run again, here or on another worker."""
    sticky_timeout: float = 5.0
    """How long a run is offered to the process that has it in memory, before all are asked: a dead one is found so."""
    max_steps: int | None = None
    """How many steps may run at once in this process. None: as many as Temporal's SDK allows, which is 100."""
    max_cached_workflows: int | None = None
    """How many runs stay in memory between two tasks. 0: none, every task replays the run. None: `max_in_memory`, or
    1,000 if that is None too."""

    @property
    def activities(self) -> ActivityOptions:
        """Return the options of activities."""
        return ActivityOptions(heartbeat_timeout=self.heartbeat_timeout, retry_interval=self.retry_interval)

    @property
    def cached(self) -> int:
        """Return how many runs stay in memory between two tasks."""
        if self.max_cached_workflows is not None:
            return self.max_cached_workflows
        return self.max_in_memory if self.max_in_memory is not None else _CACHED

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.safe:
            raise ValueError(
                "A cluster moves its runs by itself, so there is no safe mode for it: stop the workers, and cancel "
                "runs with `loom workflow cancel`."
            )
        if self.decorate is not None:
            raise ValueError(
                "decorate is for runs that this process moves, on memory://, sqlite:// or postgresql://. A cluster "
                "moves its runs by itself: use interceptors of Temporal's SDK there."
            )
        for name in ("heartbeat_timeout", "retry_interval", "sticky_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if not self.grace >= 0:
            raise ValueError(f"grace must not be negative, got {self.grace}.")
        for name, least in (("max_steps", 1), ("max_cached_workflows", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
