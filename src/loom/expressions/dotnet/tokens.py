"""The parts of a .NET custom format for dates or time spans. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom.expressions.errors import FunctionError
from loom.expressions.meter import MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator


class Token(NamedTuple):
    """A run of one format letter, or literal text if `letter` is empty."""

    letter: str
    length: int
    """The length of the run; of a literal 1 if it was quoted or escaped, 0 if it is bare."""
    text: str


def check_format(pattern: str) -> None:
    """Refuse a format that is longer than any author writes."""
    if len(pattern) > MAX_LENGTH:
        raise FunctionError(f"the format has {len(pattern):,} characters; at most {MAX_LENGTH:,} are read")


def tokens_of(pattern: str, letters: str) -> Iterator[Token]:
    """The parts of a pattern in which each of the letters means something; quotes, `\\` and `%` are understood."""
    check_format(pattern)
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char in "'\"":
            end, text = _quoted(pattern, at)
            yield Token("", 1, text)
        elif char == "\\":
            end = at + 2
            if end > len(pattern):
                raise FunctionError(f"the format {pattern!r} ends with a lone backslash")
            yield Token("", 1, pattern[at + 1])
        elif char == "%":
            # It only says that the letter after it is alone, and so is no standard format.
            end = at + 1
            if pattern[end : end + 1] in ("", "%"):
                raise FunctionError(f"a '%' in the format {pattern!r} is followed by no format letter")
        elif char in letters:
            end = _end_of_run(pattern, at)
            yield Token(char, end - at, pattern[at:end])
        else:
            end = at + 1
            yield Token("", 0, char)
        at = end


def _quoted(pattern: str, start: int) -> tuple[int, str]:
    """Read a quoted text: its end, and the text. A backslash escapes within it, too."""
    text: list[str] = []
    quote, at = pattern[start], start + 1
    while at < len(pattern):
        if pattern[at] == quote:
            return at + 1, "".join(text)
        if pattern[at] == "\\":
            at += 1
        text.append(pattern[at : at + 1])
        at += 1
    raise FunctionError(f"a quote in the format {pattern!r} is not closed")


def _end_of_run(pattern: str, start: int) -> int:
    end = start
    while end < len(pattern) and pattern[end] == pattern[start]:
        end += 1
    return end
