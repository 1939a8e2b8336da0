"""The options of `loom.connect` by name, as editors complete them and type checkers know them.

What each of them means is written at the field of `Settings`, or of the settings of a Temporal cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, get_type_hints

import msgspec

from loom.api.problems import Problem
from loom.api.times import seconds_of
from loom.core.adapter import RunDecorator
from loom.runtime.durable.problems import Webhook
from loom.runtime.durable.settings import Settings, WhenLocked
from loom.store.keyring import Keyring

if TYPE_CHECKING:
    from loom.effects.actions.handlers import ActionHandlers  # noqa: TC004 - a process that only looks does without

SettingsT = TypeVar("SettingsT", bound=Settings)

Duration = float | str
"""A length of time: seconds, or a text such as `90s`, `5m`, `2h`, `7d`."""


class ConnectOptions(TypedDict, total=False):
    """What `loom.connect` takes beside the address of a store."""

    idle_timeout: Duration | None
    max_suspended: int
    max_in_memory: int | None
    max_descendants: int | None
    max_memory: int | None
    watchdog: Duration | None
    name: str
    when_locked: WhenLocked
    lease: Duration
    poll_interval: Duration
    retention: Duration | None
    http_allow: tuple[str, ...] | list[str] | str | None
    handlers: ActionHandlers | None
    callback_url: str | None
    schedules: bool
    definitions: bool
    decorate: RunDecorator | None
    tracing: bool
    prune: bool
    journal_keys: Keyring | str | None
    max_state: int | None
    max_history: int | None
    max_depth: int | None
    max_response: int
    max_response_values: int
    safe: bool
    probation: Duration
    on_problem: Callable[[Problem], object] | None
    problem_webhook: Webhook | str | None
    problem_secret: str | None
    problem_interval: Duration
    heartbeat_timeout: Duration
    retry_interval: Duration
    grace: Duration
    sticky_timeout: Duration
    max_steps: int | None
    max_cached_workflows: int | None


_LENGTHS = frozenset(
    name
    for name, hint in get_type_hints(ConnectOptions, localns={"ActionHandlers": object}).items()
    if hint in (Duration, Duration | None)
)
"""The options that are lengths of time."""


def settings_of(kind: type[SettingsT], options: ConnectOptions) -> SettingsT:
    """Make settings of options. `TypeError` names an option that nobody knows, `ValueError` one that makes no sense."""
    given = cast("dict[str, Any]", options)
    known = {field.name for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in known:
            raise TypeError(f"loom.connect() has no option {name!r} here.{_near(name, known)}")
    return kind(**{name: _seconds(name, value) if name in _LENGTHS else value for name, value in given.items()})


def _seconds(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return seconds_of(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _near(name: str, known: set[str]) -> str:
    from loom.flows.diagnostics import did_you_mean  # only for an error

    return did_you_mean(name, known)
