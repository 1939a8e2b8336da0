"""When schedules are due: what callers may say about it, in one form, and the occurrences of that form.

The form is a recurrence of Logic Apps, or `{"cron": …, "timeZone": …}`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from loom.expressions.dotnet.recurrence import check_recurrence, next_occurrence
from loom.expressions.dotnet.zones import zone_of
from loom.expressions.errors import FunctionError
from loom.flows.cron import check_cron, next_cron

_UNITS = (("Second", 1), ("Minute", 60), ("Hour", 3_600))
_MOST_UNITS = 9_999_999
"""The longest interval that a recurrence may have, in its unit."""


def timing_of(
    recurrence: dict[str, Any] | None, cron: str | None, every: float | None, time_zone: str | None
) -> dict[str, Any]:
    """The one form of what a caller says; a ValueError names all that is wrong with it."""
    if sum(given is not None for given in (recurrence, cron, every)) != 1:
        raise ValueError("A schedule needs one of recurrence={...}, cron='...' and every=seconds.")
    if every is not None:
        if time_zone is not None:
            raise ValueError("every=... counts seconds as they pass: time_zone goes with cron or a recurrence.")
        return _interval(every)
    timing = {"cron": cron} if recurrence is None else _checked(recurrence)
    if time_zone is not None and timing.get("timeZone", time_zone) != time_zone:
        raise ValueError(f"The time zone is {timing['timeZone']!r} in the recurrence and {time_zone!r} beside it.")
    return _checked(timing if time_zone is None else {**timing, "timeZone": time_zone})


def _checked(timing: dict[str, Any]) -> dict[str, Any]:
    if problems := check_timing(timing):
        raise ValueError(f"The schedule cannot be kept: {'; '.join(problems)}.")
    return timing


def check_timing(timing: object) -> list[str]:
    """What is wrong with a timing, in a sentence each."""
    if not isinstance(timing, dict) or "cron" not in timing:
        return check_recurrence(timing)
    problems = check_cron(timing["cron"])
    problems += [f"{name} does not go with cron" for name in timing if name not in ("cron", "timeZone")]
    zone = timing.get("timeZone")
    if zone is not None:
        try:
            zone_of(str(zone))
        except FunctionError as error:
            problems.append(f"timeZone: {error}")
    return problems


def _interval(every: float) -> dict[str, Any]:
    if not every >= 1 or every % 1:
        raise ValueError(f"every must be a whole number of seconds, at least 1, not {every!r}.")
    seconds = int(every)
    for unit, size in _UNITS:
        if not seconds % size and seconds // size <= _MOST_UNITS:
            return {"frequency": unit, "interval": seconds // size}
    raise ValueError(f"every={every!r} is too long: use a recurrence.")


def pinned(timing: dict[str, Any], made_at: float) -> dict[str, Any]:
    """A timing that is counted from when the schedule was made, unless it says from when."""
    if "cron" in timing or timing.get("startTime") is not None:
        return timing
    return {**timing, "startTime": datetime.fromtimestamp(int(made_at), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def next_due(timing: dict[str, Any], after: float) -> float | None:
    """The first occurrence later than a time; None if there is none any more."""
    if "cron" in timing:
        return next_cron(timing["cron"], after, timing.get("timeZone"))
    return next_occurrence(timing, after)


def latest_due(timing: dict[str, Any], first: float, now: float) -> float:
    """The last occurrence up to now; `first` is one, and the answer if no later one has passed.

    However many have passed, few are looked at: every round leaves half of the time that the last one may lie in.
    """
    latest, end = first, now
    while (following := next_due(timing, latest)) is not None and following <= now:
        latest = following
        middle = latest + (end - latest) / 2
        jumped = next_due(timing, middle)
        if jumped is not None and jumped <= now:
            latest = jumped
        else:
            end = middle
    return latest
