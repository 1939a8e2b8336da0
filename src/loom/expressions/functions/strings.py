"""String functions: joining, cutting, searching, replacing, and the casing and trimming of the invariant culture. Pure.

Lengths and positions count UTF-16 units. The rest of the family lives in `escapes`, which comes with this module. May
import `arguments`, `casing`, `errors`, `registry`, `utf16` and `values`.
"""

from __future__ import annotations

from typing import Any

from loom.expressions.arguments import check_count, check_size, refuse, want_integer, want_string
from loom.expressions.casing import SPACES, lower, upper
from loom.expressions.errors import FunctionError
from loom.expressions.functions import escapes  # noqa: F401 - it registers the rest of the family
from loom.expressions.limits import BOX, FREE
from loom.expressions.metering import spend_text
from loom.expressions.registry import function
from loom.expressions.searching import SEARCHED_FREE, find_last, find_nth, find_nth_last, spend_search
from loom.expressions.utf16 import cut, length
from loom.expressions.values import text_of

# --- making texts -------------------------------------------------------------------------------------------------


@function("concat", 1, None)
def concat(*values: Any) -> str:
    """All values as text, one after the other."""
    texts = [text_of(value) for value in values]
    check_size(sum(map(len, texts)))
    return "".join(texts)


@function("replace", 3)
def replace(text: Any, old: Any, new: Any) -> str:
    """The text with every occurrence of `old` replaced."""
    whole, part, other = want_string("text", text), want_string("oldText", old), want_string("newText", new)
    if not part:
        raise FunctionError("expects its argument 'oldText' to have at least one character")
    if len(whole) > SEARCHED_FREE:
        spend_search(whole, part)
        spend_text(whole)
    if len(other) > len(part):
        check_size(len(whole) + whole.count(part) * (len(other) - len(part)))
    return whole.replace(part, other)


@function("split", 2)
def split(text: Any, separator: Any) -> list[str]:
    """The parts between the separators, empty ones too; without a separator the text is one part."""
    whole, between = want_string("text", text), want_string("separator", separator)
    if not between:
        return [whole]
    spend_search(whole, between)
    check_count(whole.count(between) + 1, BOX)
    spend_text(whole)
    return whole.split(between)


@function("toLower", 1)
def to_lower(text: Any) -> str:
    """The text in lower case."""
    return lower(text if type(text) is str and len(text) <= FREE else _cased(text))


@function("toUpper", 1)
def to_upper(text: Any) -> str:
    """The text in upper case."""
    return upper(text if type(text) is str and len(text) <= FREE else _cased(text))


def _cased(text: Any, name: str = "text") -> str:
    """The argument, whose case is about to be changed: beyond ASCII, character by character."""
    if not isinstance(text, str):
        raise refuse(name, "a string", text)
    if len(text) > FREE:
        spend_text(text, 2 if text.isascii() else 4)
    return text


@function("trim", 1)
def trim(text: Any) -> str:
    """The text without white space around it."""
    whole = want_string("text", text)
    spend_text(whole, 4)
    return whole.strip(SPACES)


# --- cutting ------------------------------------------------------------------------------------------------------


@function("substring", 2, 3)
def substring(text: Any, start: Any, count: Any = None) -> str:
    """So many characters from a position on, or all the rest; they must be there."""
    text, start = want_string("text", text), want_integer("startIndex", start)
    spend_text(text)
    size = length(text)
    count = size - start if count is None else want_integer("length", count)
    if start < 0 or count < 0 or start + count > size:
        raise FunctionError(
            f"cannot take {count} characters from position {start} of a text of {size}: 'startIndex' and 'length' must "
            "not be negative, and their sum not larger than the length of the text"
        )
    return cut(text, start, start + count)


@function("slice", 2, 3)
def slice_(text: Any, start: Any, end: Any = None) -> str:
    """The characters from one position up to another; a negative one counts from the end, and both are clipped."""
    text, start = want_string("text", text), want_integer("startIndex", start)
    spend_text(text)
    size = length(text)
    end = size if end is None else want_integer("endIndex", end)
    first, last = _clipped(start, size), _clipped(end, size)
    return cut(text, first, last) if first < last else ""


def _clipped(position: int, size: int) -> int:
    return min(max(position + size if position < 0 else position, 0), size)


# --- searching, without regard to case ----------------------------------------------------------------------------


@function("startsWith", 2)
def starts_with(text: Any, search: Any) -> bool:
    """Whether the text begins with another."""
    return upper(_cased(text)).startswith(upper(_cased(search, "searchText")))


@function("endsWith", 2)
def ends_with(text: Any, search: Any) -> bool:
    """Whether the text ends with another."""
    return upper(_cased(text)).endswith(upper(_cased(search, "searchText")))


@function("indexOf", 2)
def index_of(text: Any, search: Any) -> int:
    """Where the first occurrence begins, -1 if there is none."""
    text, search = _cased(text), _cased(search, "searchText")
    spend_search(text, search)
    return _in_units(text, upper(text).find(upper(search)))


@function("lastIndexOf", 2)
def last_index_of(text: Any, search: Any) -> int:
    """Where the last occurrence begins, -1 if there is none. Of nothing it is the last character."""
    text, search = _cased(text), _cased(search, "searchText")
    if not search:
        return max(length(text) - 1, 0)
    spend_search(text, search)
    return _in_units(text, find_last(upper(text), upper(search)))


@function("nthIndexOf", 3)
def nth_index_of(text: Any, search: Any, occurrence: Any) -> int:
    """Where the n-th occurrence begins, counted from the end if n is negative; -1 if there are not so many.

    Occurrences do not overlap, so that the work stays in proportion to the text.
    """
    text, search = _cased(text), _cased(search, "searchText")
    n = want_integer("occurrence", occurrence)
    if n == 0:
        raise FunctionError(
            "expects its argument 'occurrence' to be positive, or negative to count from the end, not 0"
        )
    if not search:
        size = max(length(text), 1)
        return -1 if abs(n) > size else n - 1 if n > 0 else size + n
    spend_search(text, search)
    spend_text(text, 8)  # one call for each occurrence
    position = find_nth(upper(text), upper(search), n) if n > 0 else find_nth_last(upper(text), upper(search), -n)
    return _in_units(text, position)


def _in_units(text: str, position: int) -> int:
    """A position in characters as one in units; -1 stays."""
    return position if position <= 0 or text.isascii() else length(text[:position])
