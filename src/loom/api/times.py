"""Times of the engine as dates, and lengths of time in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import overload

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_UNITS = ((604800.0, "w"), (86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
_SPAN = r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*"


def moment(seconds: float) -> datetime:
    """Convert a time of the engine, in seconds since 1970, to a date in UTC.

    An author or a caller chose the seconds, so they may lie beyond all dates: then the first or the last date is given.
    """
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return _FIRST if seconds < 0 else _LAST


@overload
def maybe_moment(seconds: float) -> datetime: ...
@overload
def maybe_moment(seconds: float | None) -> datetime | None: ...
def maybe_moment(seconds: float | None) -> datetime | None:
    """Convert a time of the engine that may be missing."""
    return None if seconds is None else moment(seconds)


def span(seconds: float) -> str:
    """Write a length of time for people, in its two largest units: `3m`, `2h 5m`."""
    if seconds < 0.9995:  # noqa: PLR2004 - the rest is rounded to a second
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 else "0s"  # noqa: PLR2004 - half of the last digit
    seconds = max(seconds, 1.0)
    for position, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            whole = int(seconds // size)
            words = f"{whole}{unit}"
            if position + 1 < len(_UNITS):
                smaller, name = _UNITS[position + 1]
                rest = int((seconds - whole * size) // smaller)
                words += f" {rest}{name}" if rest and whole < 10 else ""  # noqa: PLR2004 - 12h 5m is not more telling
            return words
    return "0s"


def seconds_of(text: str) -> float:
    """Read a length of time as people write it: `90`, `90s`, `5m`, `2h`, `7d` or `4w`. `ValueError` for other texts."""
    found = re.fullmatch(_SPAN, text, re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} is not a length of time: use seconds, or a unit as in 90s, 5m, 2h, 7d.")
    return float(found[1]) * next((size for size, unit in _UNITS if unit == found[2]), 1.0)
