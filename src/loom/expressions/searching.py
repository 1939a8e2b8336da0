"""Searching in texts: what it costs, and from the end without going back and forth. Pure.

Python looks for a part in time that is linear, but for short texts, where it is the product of both lengths, and but
for a search from the end, where it always is.
"""

from __future__ import annotations

from loom.expressions.metering import spend

_SHORT = 30_000
SEARCHED_FREE = 256
"""Characters of a text in which a search costs no more than a call."""
_COMPARED = 16
"""Characters that are compared for one unit."""


def spend_search(text: str, part: str) -> None:
    """Count a search for a part."""
    size = len(text)
    if size > SEARCHED_FREE:
        spend(size + (size * len(part) // _COMPARED if size < _SHORT else 0))


def find_last(text: str, part: str) -> int:
    """Where the last occurrence begins, -1 if there is none."""
    position = text[::-1].find(part[::-1])
    return position if position < 0 else len(text) - position - len(part)


def find_nth(text: str, part: str, n: int) -> int:
    """Where the n-th occurrence begins, -1 if there are fewer. Occurrences do not overlap."""
    position = text.find(part)
    while n > 1 and position >= 0:
        position = text.find(part, position + len(part))
        n -= 1
    return position


def find_nth_last(text: str, part: str, n: int) -> int:
    """Where the n-th occurrence from the end begins, -1 if there are fewer. Occurrences do not overlap."""
    position = find_nth(text[::-1], part[::-1], n)
    return position if position < 0 else len(text) - position - len(part)
