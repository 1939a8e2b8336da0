"""How a process works on runs of a cluster. May import the settings of loom.runtime and the activities' options."""

from __future__ import annotations

from typing_extensions import override

from loom.runtime.durable.settings import Settings
from loom.temporal.outgoing import ActivityOptions

_CACHED = 1000


class TemporalSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `loom.connect("temporal://...")`. Times are in seconds.

    What `Settings` says about leases, releases and pruning means nothing here: the cluster keeps the runs.
    """

    heartbeat_timeout: float = 10.0
    """A step whose worker is silent for so long is given to another one."""
    retry_interval: float = 1.0
    """How long the cluster waits before it does so."""
    grace: float = 2.0
    """How long steps under way may go on when this process stops. What is left runs again, here or elsewhere."""
    sticky_timeout: float = 5.0
    """A run is offered for so long to the process that has it in memory, then to all: so a dead one is found out."""
    max_steps: int | None = None
    """How many steps may be under way in this process; None: as many as Temporal's SDK allows, which is 100."""
    max_cached_workflows: int | None = None
    """How many runs are kept in memory between two tasks; 0: none, every task replays the run. None: `max_in_memory`,
    or 1,000."""

    @property
    def activities(self) -> ActivityOptions:
        """How steps run as activities."""
        return ActivityOptions(heartbeat_timeout=self.heartbeat_timeout, retry_interval=self.retry_interval)

    @property
    def cached(self) -> int:
        """How many runs are kept in memory."""
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
        for name in ("heartbeat_timeout", "retry_interval", "sticky_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if not self.grace >= 0:
            raise ValueError(f"grace must not be negative, got {self.grace}.")
        for name, least in (("max_steps", 1), ("max_cached_workflows", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
