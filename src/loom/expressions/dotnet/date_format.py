"""Writing timestamps in .NET's standard and custom date formats. Pure; may import the other modules of `dotnet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.expressions.dotnet.cultures import INVARIANT, Culture
from loom.expressions.dotnet.timestamps import Timestamp, round_trip_text
from loom.expressions.dotnet.tokens import Token, tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LETTERS = "dfFghHKmMstyz:/"
NUMERIC, ABBREVIATED = 2, 3
"""Up to two letters are a number, three a short name, more a long one."""
MAX_FRACTION_DIGITS = 7
_NOON = 12
RFC1123 = "ddd, dd MMM yyyy HH':'mm':'ss 'GMT'"
SORTABLE = "yyyy'-'MM'-'dd'T'HH':'mm':'ss"
UNIVERSAL = "yyyy'-'MM'-'dd HH':'mm':'ss'Z'"
ROUND_TRIP = "yyyy'-'MM'-'dd'T'HH':'mm':'ss'.'fffffffK"

_FIXED = {"r": RFC1123, "R": RFC1123, "s": SORTABLE, "u": UNIVERSAL, "o": ROUND_TRIP, "O": ROUND_TRIP}
_OF_CULTURE: dict[str, Callable[[Culture], str]] = {
    "d": lambda culture: culture.short_date,
    "D": lambda culture: culture.long_date,
    "f": lambda culture: f"{culture.long_date} {culture.short_time}",
    "F": lambda culture: f"{culture.long_date} {culture.long_time}",
    "U": lambda culture: f"{culture.long_date} {culture.long_time}",
    "g": lambda culture: f"{culture.short_date} {culture.short_time}",
    "G": lambda culture: f"{culture.short_date} {culture.long_time}",
    "m": lambda culture: culture.month_day,
    "M": lambda culture: culture.month_day,
    "t": lambda culture: culture.short_time,
    "T": lambda culture: culture.long_time,
    "y": lambda culture: culture.year_month,
    "Y": lambda culture: culture.year_month,
}


def custom_pattern(fmt: str, culture: Culture) -> tuple[str, Culture]:
    """The custom pattern that a format means, and the culture to write it in: one character is a standard format."""
    if len(fmt) != 1:
        return fmt, culture
    if fmt in _FIXED:
        return _FIXED[fmt], INVARIANT
    if fmt in _OF_CULTURE:
        return _OF_CULTURE[fmt](culture), culture
    raise FunctionError(
        f"there is no date format {fmt!r}; a single letter is one of d D f F g G M o R s t T u U y, "
        f"and '%{fmt}' is the custom format of one letter"
    )


def format_timestamp(moment: Timestamp, fmt: str, culture: Culture) -> str:
    """The text of a timestamp in a standard or custom format; an empty format is `o`."""
    if fmt in ("", "o", "O"):
        return round_trip_text(moment)
    pattern, culture = custom_pattern(fmt, culture)
    tokens = list(tokens_of(pattern, LETTERS))
    out: list[str] = []
    for index, token in enumerate(tokens):
        if token.letter == "":
            out.append(token.text)
        elif token.letter == "F":
            _append_trimmed_fraction(out, moment, token)
        elif token.letter == "M":
            out.append(_month(moment, token.length, culture, tokens, index))
        else:
            out.append(_WRITERS[token.letter](moment, token.length, culture))
    return "".join(out)


def _append_trimmed_fraction(out: list[str], moment: Timestamp, token: Token) -> None:
    digits = _fraction(moment, token.length).rstrip("0")
    if digits:
        out.append(digits)
    elif out and out[-1] == ".":
        out.pop()


def _month(moment: Timestamp, count: int, culture: Culture, tokens: Sequence[Token], index: int) -> str:
    month = moment.day.month
    if count <= NUMERIC:
        return f"{month:0{count}}"
    # Beside the number of a day, some languages write the month in the genitive.
    of_day = any(token.letter == "d" and token.length <= NUMERIC for token in _neighbours(tokens, index))
    if count == ABBREVIATED:
        return (culture.short_genitive_months if of_day else culture.short_months)[month - 1]
    return (culture.genitive_months if of_day else culture.months)[month - 1]


def _neighbours(tokens: Sequence[Token], index: int) -> list[Token]:
    """The tokens with letters right before and after one."""
    before = next((token for token in reversed(tokens[:index]) if token.letter), None)
    after = next((token for token in tokens[index + 1 :] if token.letter), None)
    return [token for token in (before, after) if token is not None]


def _day(moment: Timestamp, count: int, culture: Culture) -> str:
    if count <= NUMERIC:
        return f"{moment.day.day:0{count}}"
    weekday = moment.day.isoweekday() % 7
    return (culture.short_days if count == ABBREVIATED else culture.days)[weekday]


def _fraction(moment: Timestamp, count: int, _: Culture | None = None) -> str:
    if count > MAX_FRACTION_DIGITS:
        raise FunctionError("a date format has at most seven digits of a second")
    return f"{moment.fraction:07}"[:count]


def _year(moment: Timestamp, count: int, _: Culture) -> str:
    year = moment.day.year
    return f"{year % 100:0{count}}" if count <= NUMERIC else f"{year:0{count}}"


def _period(moment: Timestamp, count: int, culture: Culture) -> str:
    period = culture.am if moment.hour < _NOON else culture.pm
    return period[:1] if count == 1 else period


def _two(value: int, count: int) -> str:
    return f"{value:0{min(count, 2)}}"


_WRITERS: dict[str, Callable[[Timestamp, int, Culture], str]] = {
    "d": _day,
    "f": _fraction,
    "g": lambda _moment, _count, culture: culture.era,
    "h": lambda moment, count, _: _two((moment.hour + 11) % 12 + 1, count),
    "H": lambda moment, count, _: _two(moment.hour, count),
    "K": lambda moment, count, _: "Z" * count if moment.utc else "",
    "m": lambda moment, count, _: _two(moment.minute, count),
    "s": lambda moment, count, _: _two(moment.second, count),
    "t": _period,
    "y": _year,
    # Timestamps are in UTC or in no zone, and then .NET takes the zone of the host, which is UTC here.
    "z": lambda _moment, count, _: ("+0", "+00", "+00:00")[min(count, 3) - 1],
    ":": lambda _moment, count, culture: culture.time_separator * count,
    "/": lambda _moment, count, culture: culture.date_separator * count,
}
