"""String functions: joining, cutting, searching, replacing, casing, GUIDs, escapes of XML, byte-order marks. Pure.

Lengths and positions count UTF-16 units. Casing and trimming follow the invariant culture.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import check_count, check_size, function, refuse, want_integer, want_string
from loom.expressions.meter import BOX, ELEMENT, FREE, NODE, spend_text
from loom.expressions.strings import (
    SEARCHED_FREE,
    SPACES,
    count_units,
    cut_units,
    find_last,
    find_nth,
    find_nth_last,
    lower,
    spend_search,
    translated,
    upper,
)
from loom.expressions.value_text import envelope, envelope_bytes, text_of
from loom.expressions.values import CONTENT_TYPE, is_envelope

if TYPE_CHECKING:
    from loom.expressions.environment import Environment

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
    """The `count` characters from a position on, or all the rest; they must be there."""
    text, start = want_string("text", text), want_integer("startIndex", start)
    spend_text(text)
    size = count_units(text)
    count = size - start if count is None else want_integer("length", count)
    if start < 0 or count < 0 or start + count > size:
        raise FunctionError(
            f"cannot take {count} characters from position {start} of a text of {size}: 'startIndex' and 'length' must "
            "not be negative, and their sum not larger than the length of the text"
        )
    return cut_units(text, start, start + count)


@function("slice", 2, 3)
def slice_(text: Any, start: Any, end: Any = None) -> str:
    """The characters from one position up to another; a negative one counts from the end, and both are clipped."""
    text, start = want_string("text", text), want_integer("startIndex", start)
    spend_text(text)
    size = count_units(text)
    end = size if end is None else want_integer("endIndex", end)
    first, last = _clipped(start, size), _clipped(end, size)
    return cut_units(text, first, last) if first < last else ""


def _clipped(position: int, size: int) -> int:
    return min(max(position + size if position < 0 else position, 0), size)


# --- searching, without regard to case ----------------------------------------------------------------------------


@function("startsWith", 2)
def starts_with(text: Any, search: Any) -> bool:
    """Say whether the text begins with another."""
    return upper(_cased(text)).startswith(upper(_cased(search, "searchText")))


@function("endsWith", 2)
def ends_with(text: Any, search: Any) -> bool:
    """Say whether the text ends with another."""
    return upper(_cased(text)).endswith(upper(_cased(search, "searchText")))


@function("indexOf", 2)
def index_of(text: Any, search: Any) -> int:
    """Find where the first occurrence begins, -1 if there is none."""
    text, search = _cased(text), _cased(search, "searchText")
    spend_search(text, search)
    return _in_units(text, upper(text).find(upper(search)))


@function("lastIndexOf", 2)
def last_index_of(text: Any, search: Any) -> int:
    """Find where the last occurrence begins, -1 if there is none. Of nothing it is the last character."""
    text, search = _cased(text), _cased(search, "searchText")
    if not search:
        return max(count_units(text) - 1, 0)
    spend_search(text, search)
    return _in_units(text, find_last(upper(text), upper(search)))


@function("nthIndexOf", 3)
def nth_index_of(text: Any, search: Any, occurrence: Any) -> int:
    """Find where the n-th occurrence begins, counted from the end if n is negative; -1 if there are fewer.

    Occurrences do not overlap, so that the work stays in proportion to the text.
    """
    text, search = _cased(text), _cased(search, "searchText")
    n = want_integer("occurrence", occurrence)
    if n == 0:
        raise FunctionError(
            "expects its argument 'occurrence' to be positive, or negative to count from the end, not 0"
        )
    if not search:
        size = max(count_units(text), 1)
        return -1 if abs(n) > size else n - 1 if n > 0 else size + n
    spend_search(text, search)
    spend_text(text, 8)  # one call for each occurrence
    position = find_nth(upper(text), upper(search), n) if n > 0 else find_nth_last(upper(text), upper(search), -n)
    return _in_units(text, position)


def _in_units(text: str, position: int) -> int:
    """A position in characters as one in units; -1 stays."""
    return position if position <= 0 or text.isascii() else count_units(text[:position])


# --- guid ---------------------------------------------------------------------------------------------------------

_WORD = 2**32
_GUID_FORMS = {"N": "{}{}{}{}{}", "D": "{}-{}-{}-{}-{}", "B": "{{{}-{}-{}-{}-{}}}", "P": "({}-{}-{}-{}-{})"}


@function("guid", 0, 1, asks=True)
def guid(env: Environment, form: Any = "D") -> str:
    """A new random identifier in one of the forms N, D, B, P, X."""
    letter = want_string("format", form).upper()
    if letter != "X" and letter not in _GUID_FORMS:
        raise FunctionError(f"expects its argument 'format' to be one of N, D, B, P and X, not '{form}'")
    digits = "".join(f"{env.random_below(_WORD):08x}" for _ in range(4))
    # Version 4, and the variant that the standard gives to it.
    digits = f"{digits[:12]}4{digits[13:16]}{'89ab'[int(digits[16], 16) & 3]}{digits[17:]}"
    if letter == "X":
        tail = ",".join(f"0x{digits[i : i + 2]}" for i in range(16, 32, 2))
        return f"{{0x{digits[:8]},0x{digits[8:12]},0x{digits[12:16]},{{{tail}}}}}"
    return _GUID_FORMS[letter].format(digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])


# --- XML names ----------------------------------------------------------------------------------------------------

_NAME_START = (
    ":A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
)
_NAME_REST = _NAME_START + "\\-.0-9\xb7\u0300-\u036f\u203f-\u2040"
# A `_` that would begin an escape, a first character that may not be first, and any character that may not be there.
_UNFIT = re.compile(f"_(?=x(?:[0-9A-Fa-f]{{4}}|[0-9A-Fa-f]{{8}})_)|^[^{_NAME_START}]|[^{_NAME_REST}]", re.DOTALL)
_ESCAPE = re.compile("_x([0-9A-Fa-f]{8}|[0-9A-Fa-f]{4})_")
_LONGEST_ESCAPE = len("_x0001F600_")


@function("encodeXmlName", 1)
def encode_xml_name(name: Any) -> str:
    """The text as an XML name: what a name may not have becomes an escape like `_x0020_`."""
    name = want_string("name", name)
    check_size(len(name) * _LONGEST_ESCAPE)
    spend_text(name, NODE)
    return _UNFIT.sub(_escaped, name)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"_x{code:04X}_" if code <= 0xFFFF else f"_x{code:08X}_"  # noqa: PLR2004


@function("decodeXmlName", 1)
def decode_xml_name(name: Any) -> str:
    """The text of which `encodeXmlName` made this name."""
    text = want_string("name", name)
    spend_text(text, ELEMENT)
    return _ESCAPE.sub(lambda match: _character(int(match[1], 16), match[0]), text)


def _character(code: int, otherwise: str) -> str:
    """The character of a code, or what stands there if there is no such character."""
    is_character = 0 < code < 0xD800 or 0xDFFF < code <= 0x10FFFF  # noqa: PLR2004
    return chr(code) if is_character else otherwise


# --- XML values ---------------------------------------------------------------------------------------------------

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_CHARACTERS = {entity: character for character, entity in _ENTITIES.items()}
_ENTITY = re.compile("&(?:amp|lt|gt|quot|apos|#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")


@function("encodeXmlValue", 1)
def encode_xml_value(value: Any) -> str:
    """The text as it is written inside XML: the five special characters become entities."""
    text = want_string("value", value)
    check_size(len(text) + sum(text.count(character) * (len(entity) - 1) for character, entity in _ENTITIES.items()))
    spend_text(text, 4)
    return translated(text, {ord(character): entity for character, entity in _ENTITIES.items()})


@function("decodeXmlValue", 1)
def decode_xml_value(value: Any) -> str:
    """The text with its entities resolved; what is no entity stays."""
    text = want_string("value", value)
    spend_text(text, ELEMENT)
    return _ENTITY.sub(_resolved, text)


def _resolved(match: re.Match[str]) -> str:
    entity, decimal, hexadecimal = match[0], match[1], match[2]
    if decimal or hexadecimal:
        return _character(int(decimal) if decimal else int(hexadecimal, 16), entity)
    return _CHARACTERS[entity]


# --- byte-order marks ---------------------------------------------------------------------------------------------

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@function("trimByteOrderMark", 1)
def trim_byte_order_mark(content: Any) -> Any:
    """A text or binary content without the byte-order mark at its beginning."""
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    if not is_envelope(content):
        raise refuse("content", "a string or binary content", content)
    data = envelope_bytes(content)
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    return envelope(content[CONTENT_TYPE], data[len(mark) :]) if mark else content
