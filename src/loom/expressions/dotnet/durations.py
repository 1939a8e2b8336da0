"""ISO 8601 durations. Pure; may import `errors` only."""

from __future__ import annotations

import re

from loom.expressions.errors import FunctionError

_DURATION = re.compile(
    r"([+-])?P(?:(\d+(?:[.,]\d+)?)Y)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)W)?(?:(\d+(?:[.,]\d+)?)D)?"
    r"(T(?:(\d+(?:[.,]\d+)?)H)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)S)?)?",
    re.ASCII,
)
_DAY = 86_400.0
_DATE_UNITS = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY)
_TIME_UNITS = (3_600.0, 60.0, 1.0)
_LONGEST_TEXT = 100


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `PT900M`, `P14D`, `P1DT2H` or `PT0.5S`; a month is 30 days, a year 365."""
    match = _DURATION.fullmatch(text.strip().upper()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise _refused(text)
    sign, *dates, time, hours, minutes, seconds = match.groups()
    times = (hours, minutes, seconds)
    if not any(part is not None for part in (*dates, *times)) or (time is not None and not any(times)):
        raise _refused(text)
    parts = zip((*dates, *times), _DATE_UNITS + _TIME_UNITS, strict=True)
    total = sum(float(part.replace(",", ".")) * unit for part, unit in parts if part is not None)
    return -total if sign == "-" else total


def _refused(text: str) -> FunctionError:
    return FunctionError(f"{text[:_LONGEST_TEXT]!r} is no ISO 8601 duration such as 'PT30S', 'PT1H' or 'P14D'")
