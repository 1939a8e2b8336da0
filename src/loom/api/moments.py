"""Times of the engine as dates."""

from __future__ import annotations

from datetime import UTC, datetime

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def moment(seconds: float) -> datetime:
    """A time of the engine as a date.

    Seconds are what an author or a caller chose, so they may lie beyond all dates: then it is the first or the last.
    """
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return _FIRST if seconds < 0 else _LAST
