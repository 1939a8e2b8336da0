"""Time spans as .NET writes and reads them: `[-][d.]hh:mm:ss[.fffffff]`, and formats of them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom.expressions.dotnet.timestamps import TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MINUTE, TICKS_PER_SECOND
from loom.expressions.dotnet.tokens import Token, tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.dotnet.cultures import Culture

_SPAN = re.compile(
    r"\s*(-)?(?:(\d{1,8})|(?:(\d{1,8})(?:\.|:(?=\d{1,2}:\d{1,2}:)))?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?)\s*",
    re.ASCII,
)


def parse_timespan(text: str) -> int:
    """The ticks of a time span such as `1.02:03:04.5`, `02:03` or `14` (days)."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise FunctionError(f"{text!r} is no time span such as '1.02:03:04'")
    minus, only_days, days, hours, minutes, seconds, fraction = match.groups()
    if int(hours or 0) > 23 or int(minutes or 0) > 59 or int(seconds or 0) > 59:  # noqa: PLR2004
        raise FunctionError(f"the time span {text!r} has more than 23 hours, 59 minutes or 59 seconds beside its days")
    ticks = (
        int(only_days or days or 0) * TICKS_PER_DAY
        + int(hours or 0) * TICKS_PER_HOUR
        + int(minutes or 0) * TICKS_PER_MINUTE
        + int(seconds or 0) * TICKS_PER_SECOND
        + int((fraction or "").ljust(7, "0"))
    )
    return -ticks if minus else ticks


def timespan_text(ticks: int) -> str:
    """The constant form of a time span: `[-][d.]hh:mm:ss[.fffffff]`."""
    size = abs(ticks)
    days = f"{size // TICKS_PER_DAY}." if size >= TICKS_PER_DAY else ""
    fraction = f".{size % TICKS_PER_SECOND:07}" if size % TICKS_PER_SECOND else ""
    return f"{'-' if ticks < 0 else ''}{days}{_clock(size)}{fraction}"


def format_timespan(ticks: int, fmt: str, culture: Culture) -> str:
    """The text of a time span in a standard (`c`, `t`, `T`, `g`, `G`) or custom format. Custom formats show no sign."""
    if fmt in ("", "c", "t", "T"):
        return timespan_text(ticks)
    if fmt in ("g", "G"):
        return _general(ticks, fmt == "G", culture)
    if len(fmt) == 1:
        raise FunctionError(f"there is no time span format {fmt!r}; a single letter is one of c g G")
    return "".join(_part(abs(ticks), token) for token in tokens_of(fmt, "dhmsfF"))


def _general(ticks: int, long: bool, culture: Culture) -> str:
    size, point = abs(ticks), culture.numbers.decimal
    sign, days, hours = "-" if ticks < 0 else "", size // TICKS_PER_DAY, size // TICKS_PER_HOUR % 24
    fraction = f"{size % TICKS_PER_SECOND:07}"
    if long:
        return f"{sign}{days}:{_clock(size)}{point}{fraction}"
    fraction = fraction.rstrip("0")
    return f"{sign}{f'{days}:' if days else ''}{hours}{_clock(size)[2:]}{point + fraction if fraction else ''}"


def _clock(size: int) -> str:
    hours, minutes = size // TICKS_PER_HOUR % 24, size // TICKS_PER_MINUTE % 60
    return f"{hours:02}:{minutes:02}:{size // TICKS_PER_SECOND % 60:02}"


_UNITS: dict[str, Callable[[int], int]] = {
    "d": lambda size: size // TICKS_PER_DAY,
    "h": lambda size: size // TICKS_PER_HOUR % 24,
    "m": lambda size: size // TICKS_PER_MINUTE % 60,
    "s": lambda size: size // TICKS_PER_SECOND % 60,
}
_WIDTHS = {"d": 8, "h": 2, "m": 2, "s": 2, "f": 7, "F": 7}


def _part(size: int, token: Token) -> str:
    if token.letter == "":
        if token.length == 0:
            # Unlike in date formats, separators are no literals unless they are marked as such.
            raise FunctionError(f"write {token.text!r} as '\\{token.text}' or in quotes in a time span format")
        return token.text
    if token.length > _WIDTHS[token.letter]:
        raise FunctionError(f"a time span format has no {token.text!r}")
    if token.letter in "fF":
        digits = f"{size % TICKS_PER_SECOND:07}"[: token.length]
        return digits if token.letter == "f" else digits.rstrip("0")
    return f"{_UNITS[token.letter](size):0{token.length}}"
