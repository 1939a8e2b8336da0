"""`host.json` of a Logic Apps project: the settings that have an equal here, and the names of the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from loom.flows.diagnostics import Problem, at

if TYPE_CHECKING:
    from loom.flows.limits import Limits

_SETTINGS = ("extensions", "workflow", "settings")
_UNTIL = "Runtime.Backend.MaximumUntilLimitCount"
_WIDTH = "Runtime.Backend.ForeachDefaultDegreeOfParallelism"
_RETENTION = "Runtime.FlowRetentionThreshold"
_DAY_S = 86_400.0
_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.\d+)?", re.ASCII)

_USELESS = frozenset({"version", "logging", "extensionbundle", "extensions", "functiontimeout", "healthmonitor"})
"""Keys of the host itself, in lower case: nothing of a workflow depends on them."""
_INSTEAD = {
    "Runtime.Backend.FlowRunTimeout": "runs have no limit of time here",
    "Runtime.Backend.Stateless.FlowRunTimeout": "runs have no limit of time here, and stateless ones are stored too",
    "Runtime.FlowDefaultSplitOnItemsLimit": "a request starts 1,000 runs at most",
    "Runtime.Trigger.MaximumRunConcurrency": "give --max-starts",
    "Runtime.Backend.HttpOperation.RequestTimeout": "give the action a limit.timeout",
    "Runtime.Backend.HttpOperation.MaxContentSize": "give max_response to loom.connect",
}
"""What does the work of a setting that is not read."""


class HostSettings(NamedTuple):
    """What a `host.json` says that has an equal here."""

    until_iterations: int | None = None
    foreach_width: int | None = None
    retention_s: float | None = None
    """Seconds that an ended run is kept; None: it does not say."""

    def limits(self, limits: Limits) -> Limits:
        """Return the limits with what the file says about loops."""
        if self.until_iterations is not None:
            limits = replace(limits, max_until_iterations=self.until_iterations)
        if self.foreach_width is not None:
            limits = replace(limits, foreach_width=self.foreach_width)
        return limits


def host_settings(data: dict[str, Any]) -> tuple[HostSettings, list[Problem]]:
    """Read a `host.json`: what maps, and a warning for each setting that does not."""
    problems: list[Problem] = []
    path, found = "", data
    for key in _SETTINGS:
        path = at(path, key)
        inner = found.get(key)
        if inner is not None and not isinstance(inner, dict):
            return HostSettings(), [Problem(path, "this must be an object", severity="warning")]
        found = inner or {}
    for key in data:
        if key.lower() not in _USELESS:
            problems.append(Problem(at("", key), "this setting has no equal in Loom", severity="warning"))
    http = data.get("extensions", {}).get("http") if isinstance(data.get("extensions"), dict) else None
    if isinstance(http, dict) and "routePrefix" in http:
        where = at("extensions.http", "routePrefix")
        problems.append(Problem(where, "addresses begin with /v1/definitions", severity="warning"))
    taken: dict[str, Any] = {}
    for key, value in found.items():
        name = {_UNTIL: "until_iterations", _WIDTH: "foreach_width", _RETENTION: "retention_s"}.get(key)
        if name is None:
            hint = _INSTEAD.get(key, "")
            problems.append(Problem(at(path, key), "this setting has no equal in Loom", hint, "warning"))
            continue
        number = _span(value) if name == "retention_s" else _count(value)
        if number is None:
            form = "a time such as 90.00:00:00" if name == "retention_s" else "a number above 0"
            problems.append(Problem(at(path, key), f"this must be {form}, not {value!r:.60}"))
        else:
            taken[name] = number
    return HostSettings(**taken), problems


def _count(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch("[1-9][0-9]{0,8}", text, re.ASCII) else None


def _span(value: Any) -> float | None:
    """Return the seconds of a time such as `7.00:00:00` (days, hours, minutes, seconds)."""
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * _DAY_S + hours * 3600.0 + minutes * 60.0 + seconds or None
