"""How a process works on stored runs."""

from __future__ import annotations

import os
from typing import Any, Literal, get_args

import msgspec

from loom.effects.actions.ssrf import MAX_RESPONSE_BYTES, STORED_SHARE
from loom.effects.off_loop import MAX_VALUES
from loom.runtime.durable.problems import Webhook
from loom.steps.ports import RUN_DEPTH
from loom.store.keyring import Keyring, parse_keys

JOURNAL_KEYS = "LOOM_JOURNAL_KEYS"

WhenLocked = Literal["refuse", "client", "standby"]
"""What a process becomes that registers workflows while another one works on the same SQLite file."""

_IDLE_S = 60.0
_SUSPENDED_S = 24 * 3600.0
"""How long idle runs stay in memory by default: without a suspended body, and with one."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `loom.connect`. Times are in seconds."""

    idle_timeout: float | msgspec.UnsetType | None = msgspec.UNSET
    """How long a run stays in memory that nothing happens to; 0: not at all, None: for ever. If it is not given: 60
    seconds, but up to a day for runs that hold a suspended body, see `max_suspended`."""
    max_suspended: int = 5_000
    """How many runs with a suspended body stay in memory after their first 60 seconds, if `idle_timeout` is not given.
    Those that have rested longest leave first: their bodies run again from the beginning."""
    max_in_memory: int | None = None
    """How many runs may be in memory. Those that nothing happens to make room; others wait for their turn."""
    max_descendants: int | None = 1_000
    """How many runs that descend from one run may be in memory. Others wait for their turn, so that one run with
    thousands of children leaves time and memory to the runs of others. None: any number."""
    max_memory: int | None = None
    """How many bytes of memory the process may use (its resident set) before it takes no more work: it starts and
    claims no run, and runs that wait leave memory, until it is below nine tenths of that. None: any number."""
    watchdog: float | None = 1.0
    """After how many seconds without a turn of the event loop the log names the run and the step that hold it; None:
    never. It costs a thread that asks the loop four times a second while runs are in memory."""
    name: str = ""
    """What this process is called among others."""
    when_locked: WhenLocked = "refuse"
    """What this process becomes if another one works on the SQLite file already. `refuse`: it raises `StoreLocked`.
    `client`: it starts runs, sends events and reads, and never works on runs. `standby`: likewise, until the other
    process has ended; then it takes over. Other stores have room for several, so there it does nothing."""
    lease: float = 15.0
    """How long others wait for a sign of life of this process before they take over its runs."""
    poll_interval: float = 1.0
    """How often the store is looked at, beside the news that it gives."""
    retention: float | None = None
    """How long ended runs are kept; None: for ever."""
    http_allow: tuple[str, ...] | list[str] | str | None = None
    """Hosts, addresses and networks, or a comma list, that HTTP actions may reach though they are not public; None:
    `LOOM_HTTP_ALLOW`."""
    handlers: Any = None
    """A `loom.ActionHandlers` that does the actions of flows; None: what is registered with `loom.action`,
    `loom.connector` and their like."""
    callback_url: str | None = None
    """Where services reach the server that takes their callbacks, such as `https://loom.example.com`; None:
    `LOOM_CALLBACK_URL`. `loom serve` knows its own address."""
    schedules: bool = True
    """See to the schedules and listeners that the triggers of registered flows ask for."""
    definitions: bool = False
    """Work for all flows that are stored as definitions, not only for what is registered here: those that were put by
    another process are taken up after a few poll intervals, and at the next opening."""
    decorate: Any = None
    """Called with the adapter of each run that comes into memory; returns the one to use, such as a
    `RunAdapterDecorator` around it. None: the adapter as it is."""
    tracing: bool = True
    """Give spans to OpenTelemetry, if the program has set a provider before it connects."""
    prune: bool = False
    """Drop the ticks and events that a snapshot covers: the past cannot be looked at any more."""

    journal_keys: Keyring | str | None = None
    """What journals are signed with, as `id1:base64,id0:base64`: the first key signs, all of them are known. The word
    `unsigned` lets journals pass from before there was a key. None: `LOOM_JOURNAL_KEYS`, else nothing is signed."""

    max_state: int | None = 64 * 1024 * 1024
    """How many bytes the state of a run may have, where an element of an array or object counts 32 at least; it is
    looked at when a snapshot is due. A run that has more is parked until the limit is raised."""
    max_history: int | None = None
    """How many ticks a run may have, if its past is kept. One that has more is parked until the limit is raised."""

    max_depth: int | None = RUN_DEPTH
    """How long a chain of executions of steps may be, each caused by the one before, since something last came from
    outside or a timer fired, in workflows that set no limit. A run that reaches it is parked until it is raised. It is
    stored with the start: runs that began with a lower one get this, runs that began without one get none."""

    max_response: int = MAX_RESPONSE_BYTES
    """How many bytes the answer to a request of a flow may have, unpacked; never more than a quarter of `max_state`. An
    action whose answer is larger fails."""
    max_response_values: int = MAX_VALUES
    """How many values such an answer may decode to; they are counted before that."""

    safe: bool = False
    """Recover no run but to cancel it, so that an operator can look at a store whose runs kill the process. Starts and
    events are stored, and wait for the next process."""
    probation: float = 2.0
    """How long a run that may have killed its process is recovered alone, after the second death. It is doubled with
    every further one."""

    on_problem: Any = None
    """Called with a `Problem` when a run of this store fails, is parked or is stuck; async or not. It gets each at
    least once: if it raises, it is called again later."""
    problem_webhook: Webhook | str | None = None
    """An address that gets the same, as signed requests."""
    problem_secret: str | None = None
    """What signs them; several, with commas, while they are exchanged. None: `LOOM_PROBLEM_SECRET`."""
    problem_interval: float = 10.0
    """How often hooks of other processes are looked for; on Temporal, runs with problems."""

    @property
    def webhook(self) -> Webhook | None:
        """`problem_webhook` with its secrets."""
        assert not isinstance(self.problem_webhook, str)
        return self.problem_webhook

    @property
    def idle_s(self) -> float | None:
        """Tell how long a run that holds no body stays in memory; None: for ever."""
        return _IDLE_S if self.idle_timeout is msgspec.UNSET else self.idle_timeout

    @property
    def suspended_s(self) -> float | None:
        """How long a run that holds a suspended body stays in memory while there is room; None: for ever."""
        return _SUSPENDED_S if self.idle_timeout is msgspec.UNSET else self.idle_timeout

    @property
    def response_bytes(self) -> int:
        """`max_response`, so that one answer alone cannot outgrow the run that asked for it."""
        return min(self.max_response, max(1, self.max_state // STORED_SHARE)) if self.max_state else self.max_response

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
        if isinstance(self.problem_webhook, str):
            webhook = Webhook(self.problem_webhook, self.problem_secret)
            msgspec.structs.force_setattr(self, "problem_webhook", webhook)
            msgspec.structs.force_setattr(self, "problem_secret", None)

    def _check_functions(self) -> None:
        for name, what in (("on_problem", "a problem"), ("decorate", "the adapter of a run")):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function that takes {what}, got {function!r}.")

    def _check_words(self) -> None:
        if self.when_locked not in get_args(WhenLocked):
            raise ValueError(f"when_locked is refuse, client or standby, got {self.when_locked!r}.")

    def _check_types(self) -> None:
        if self.handlers is not None:
            from loom.effects.actions.handlers import ActionHandlers  # a process that only looks does without

            if not isinstance(self.handlers, ActionHandlers):
                raise TypeError(f"handlers must be a loom.ActionHandlers, got {self.handlers!r}.")
        if not isinstance(self.http_allow, tuple | list | str | None):
            raise TypeError(f"http_allow must be a list of hosts, such as ['localhost:8080'], got {self.http_allow!r}.")

    def __post_init__(self) -> None:
        self._read_keys()
        self._check_words()
        for name, value in (
            ("idle_timeout", self.idle_s), ("retention", self.retention), ("max_suspended", self.max_suspended)
        ):  # fmt: skip
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}.")
        self._check_functions()
        for name in ("lease", "poll_interval", "problem_interval", "probation"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        self._check_types()
        if self.watchdog is not None and not self.watchdog > 0:
            raise ValueError(f"watchdog must be greater than 0, or None, got {self.watchdog}.")
        for name in (
            "max_in_memory", "max_descendants", "max_memory", "max_state", "max_history", "max_depth", "max_response",
            "max_response_values",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
