"""Strings as the language sees them, where Python sees them otherwise. Pure.

- Lengths and positions count UTF-16 units: a character beyond U+FFFF takes two.
- Casing and white space follow the invariant culture of .NET.
- Searching says what it costs, and a search from the end is linear.
- Percent-encoding follows RFC 3986.
- `remembered` caches what a function makes of a short text.
"""

from __future__ import annotations

import re
from functools import lru_cache, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from loom.expressions.meter import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- UTF-16 units -----------------------------------------------------------------------------------------------------


def count_units(text: str) -> int:
    """Count the UTF-16 units of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_units(text: str, start: int, end: int | None = None) -> str:
    """Cut out the units from `start` up to, not including, `end`; both are at least 0 and may lie beyond the text.

    A cut through a character of two units leaves U+FFFD in the place of its half.
    """
    if text.isascii():
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) == 2 * len(text):
        return text[start:end]
    return units[2 * start : None if end is None else 2 * end].decode("utf-16-le", "replace")


def ordinal_key(text: str) -> bytes:
    """Make the key that a text sorts by, unit by unit."""
    return text.encode("utf-16-be", "surrogatepass")


# --- casing and white space -------------------------------------------------------------------------------------------

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
    """The text in lower case, with each character mapped to one character or kept.

    There are no two letters for the sharp s. Neither the dotless small i nor the dotted capital I nor the long s has
    another case.
    """
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


# --- searching --------------------------------------------------------------------------------------------------------

_SHORT = 30_000
SEARCHED_FREE = 256
"""Characters of a text in which a search costs no more than a call."""
_COMPARED = 16
"""Characters that are compared for one unit."""


def spend_search(text: str, part: str) -> None:
    """Count a search for a part before it is done.

    Python's search is linear in long texts. In short ones, it takes the product of both lengths.
    """
    size = len(text)
    if size > SEARCHED_FREE:
        spend(size + (size * len(part) // _COMPARED if size < _SHORT else 0))


def find_last(text: str, part: str) -> int:
    """Find where the last occurrence begins, -1 if there is none."""
    position = text[::-1].find(part[::-1])
    return position if position < 0 else len(text) - position - len(part)


def find_nth(text: str, part: str, n: int) -> int:
    """Find where the n-th occurrence begins, -1 if there are fewer. Occurrences do not overlap."""
    position = text.find(part)
    while n > 1 and position >= 0:
        position = text.find(part, position + len(part))
        n -= 1
    return position


def find_nth_last(text: str, part: str, n: int) -> int:
    """Find where the n-th occurrence from the end begins, -1 if there are fewer. Occurrences do not overlap."""
    position = find_nth(text[::-1], part[::-1], n)
    return position if position < 0 else len(text) - position - len(part)


# --- percent-encoding -------------------------------------------------------------------------------------------------

_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
_PERCENT_ESCAPES = [chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256)]
# Not with `{2}`: up to Python 3.11.3 such a group keeps the `%` of `%zz`, where it does not match.
_PERCENT_RUN = re.compile("(?:%[0-9A-Fa-f][0-9A-Fa-f])++")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def utf8_bytes(text: str) -> bytes:
    """The bytes of a text; half a character, which some texts have, becomes U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def percent_encoded_length(text: str) -> int:
    """Count the characters that the text will have when it is encoded."""
    data = utf8_bytes(text)
    return len(data) + 2 * len(data.translate(None, _UNRESERVED))


def percent_encode(text: str) -> str:
    """Escape all but letters, digits and `-_.~` as `%XX`, in UTF-8."""
    return "".join([_PERCENT_ESCAPES[byte] for byte in utf8_bytes(text)])


def percent_decode(text: str) -> str:
    """The text with its escapes resolved. One that is no UTF-8 stays, and so does a `+`."""
    return _PERCENT_RUN.sub(_decoded, text)


def percent_decode_bytes(text: str) -> bytes:
    """The bytes that a text encodes: its escapes as bytes, and everything else in UTF-8."""
    parts, end = [], 0
    for match in _PERCENT_RUN.finditer(text):
        parts += [utf8_bytes(text[end : match.start()]), _bytes(match)]
        end = match.end()
    return b"".join([*parts, utf8_bytes(text[end:])])


def _bytes(match: re.Match[str]) -> bytes:
    return bytes.fromhex(match[0].replace("%", ""))


def _decoded(match: re.Match[str]) -> str:
    # Bytes that are no UTF-8 come out as U+DC80 and up, and are escaped again.
    text = _bytes(match).decode("utf-8", "surrogateescape")
    return text if text.isascii() else _NOT_UTF8.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", text)


# --- a cache of results by text ---------------------------------------------------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")


class Remembered(Generic[P, R]):
    """A function of a text that remembers its last results, unless the text is long.

    Texts come from authors and callers. A cache that counts entries alone would keep the largest thousand of them.
    """

    def __init__(self, function: Callable[Concatenate[str, P], R], most: int, longest: int) -> None:
        self._function = function
        self._longest = longest
        self._cached = cast("Any", lru_cache(maxsize=most)(function))
        update_wrapper(self, function)

    def __call__(self, text: str, *args: P.args, **kwargs: P.kwargs) -> R:
        """Give what was remembered for these arguments. A long text is worked out anew each time."""
        call: Callable[Concatenate[str, P], R] = self._cached if len(text) <= self._longest else self._function
        return call(text, *args, **kwargs)

    def cache_clear(self) -> None:
        """Forget all results."""
        self._cached.cache_clear()


def remembered(most: int, longest: int = 256) -> Callable[[Callable[Concatenate[str, P], R]], Remembered[P, R]]:
    """Remember the last `most` results of a function, by texts of up to `longest` characters."""
    return lambda function: Remembered(function, most, longest)
