"""Texts as the language counts them: in UTF-16 units, of which a character beyond U+FFFF takes two. Pure.

May import nothing of Loom. A cut through such a character leaves U+FFFD in the place of its half.
"""

from __future__ import annotations


def length(text: str) -> int:
    """How many units a text has."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut(text: str, start: int, end: int | None = None) -> str:
    """The units from `start` up to, not including, `end`; both must be at least 0 and may lie beyond the text."""
    if text.isascii():
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) == 2 * len(text):
        return text[start:end]
    return units[2 * start : None if end is None else 2 * end].decode("utf-16-le", "replace")


def ordinal(text: str) -> bytes:
    """What a text sorts by, unit by unit."""
    return text.encode("utf-16-be", "surrogatepass")
