"""Time zones by their Windows or IANA names. Pure but for the zone tables, which are read when first asked for.

The Windows names come from tzlocal's table, the zones from zoneinfo.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from loom.expressions.dotnet.timestamps import TICKS_PER_SECOND, Timestamp, timestamp
from loom.expressions.errors import FunctionError, not_installed
from loom.expressions.strings import remembered

UTC = timezone.utc  # noqa: UP017 - the one name serves annotations and values alike
Zone = ZoneInfo | timezone
_IANA = re.compile(r"[A-Za-z0-9_+-]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,3}")
_FIRST = datetime(1, 1, 1)  # noqa: DTZ001 - clock readings have no zone here


@remembered(256)
def zone_of(name: str) -> Zone:
    """The zone of a Windows name (in any case) or an IANA name."""
    key = name.strip()
    if key.lower() in ("utc", "z"):
        return UTC
    try:
        key = key if "/" in key else _windows_names().get(key.lower(), key)
        if _IANA.fullmatch(key) is None:  # zoneinfo would look for it among modules and files
            raise ZoneInfoNotFoundError(key)
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise FunctionError(
            f"there is no time zone {name[:80]!r}; use a Windows name such as 'Pacific Standard Time' "
            "or an IANA name such as 'Europe/Berlin'"
        ) from None


@lru_cache(maxsize=1)
def _windows_names() -> dict[str, str]:
    try:
        from tzlocal.windows_tz import win_tz
    except ImportError:
        raise not_installed("a time zone", "locale") from None
    return {windows.lower(): iana for windows, iana in win_tz.items()}


def from_utc(moment: Timestamp, zone: Zone) -> Timestamp:
    """The reading of a clock in the zone at a moment of UTC; the answer carries no zone."""
    try:
        there = _clock(moment).replace(tzinfo=UTC).astimezone(zone)
    except OverflowError:
        raise FunctionError("the time in that zone is outside the years 1 to 9999") from None
    return timestamp(moment.ticks + _ticks(there.utcoffset()), utc=False)


def to_utc(moment: Timestamp, zone: Zone) -> Timestamp:
    """The moment of UTC at which a clock in the zone shows that time; of a time that comes twice, the second."""
    clock = _clock(moment)
    # The second of two readings is the one in standard time. At a gap the two folds disagree the other way round.
    early, late = (clock.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    if _ticks(early) < _ticks(late):
        raise FunctionError(f"the time {clock.isoformat(sep=' ')} does not exist in {zone}: clocks skip it")
    return timestamp(moment.ticks - _ticks(late), utc=True)


def _clock(moment: Timestamp) -> datetime:
    """Whole seconds are enough: no zone changes within one."""
    return _FIRST + timedelta(seconds=moment.ticks // TICKS_PER_SECOND)


def _ticks(offset: timedelta | None) -> int:
    assert offset is not None
    return round(offset.total_seconds()) * TICKS_PER_SECOND
