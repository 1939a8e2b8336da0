"""The casing of the invariant culture, what it calls white space, and long texts mapped character by character. Pure.

Each character is mapped to one character or stays as it is: there are no two letters for the sharp s, and
neither the dotless small i nor the dotted capital I nor the long s has another case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""All white space."""

_PIECE = 64 * 1024
_WITHOUT_OTHER_CASE = "\u0130\u0131\u017f"


class _Casing(dict[int, str]):
    """A table for `str.translate` that learns each character when it first meets it."""

    def __init__(self, convert: Callable[[str], str]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, code: int) -> str:
        character = chr(code)
        other = character if character in _WITHOUT_OTHER_CASE else self._convert(character)
        self[code] = other if len(other) == 1 else character
        return self[code]


_LOWER, _UPPER = _Casing(str.lower), _Casing(str.upper)


def lower(text: str) -> str:
    """The text in lower case."""
    return text.lower() if text.isascii() else translated(text, _LOWER)


def upper(text: str) -> str:
    """The text in upper case. Two texts are equal without regard to case if they are equal in upper case."""
    return text.upper() if text.isascii() else translated(text, _UPPER)


def translated(text: str, table: Mapping[int, str | None]) -> str:
    """The text with each character replaced as a table for `str.translate` says.

    It goes by pieces: `str.translate` takes more than a second for ten million characters, and would let no other
    thread in for as long.
    """
    if len(text) <= _PIECE:
        return text.translate(table)
    return "".join([text[at : at + _PIECE].translate(table) for at in range(0, len(text), _PIECE)])
