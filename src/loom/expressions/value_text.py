"""Values as text, and text as values: inside other text, as JSON, and in content envelopes. Pure.

`text_of` is how a value reads inside a text. `json_text` writes compact JSON and `parse_json` reads it. `count_values`
and `is_deeper` measure a JSON text from outside before anything decodes it, because decoding multiplies: three bytes
of `[],` become a list of 56. An envelope holds binary or XML data: `{"$content-type": …, "$content": base64}`.
"""

from __future__ import annotations

import binascii
import json
import re
from decimal import Decimal
from math import isfinite
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.meter import BOX, ELEMENT, FEW, MAX_DEPTH, MAX_NODES, MAX_TEXT, NODE, refuses, spend, spend_text
from loom.expressions.strings import SPACES, translated
from loom.expressions.values import CONTENT, CONTENT_TYPE, float_text, is_envelope, kind_of, number_text


def text_of(value: Any) -> str:
    """Write a value as it reads inside a text."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int | float | Decimal):
        return number_text(value)
    if is_envelope(value):
        return envelope_text(value)
    return json_text(value)


# --- writing JSON -----------------------------------------------------------------------------------------------------


def json_text(value: Any) -> str:
    """A value as compact JSON, the way the language writes it: floats and decimals always show that they are some."""
    writer = _JsonWriter()
    writer.write(value, MAX_DEPTH)
    if writer.size > FEW:
        writer.pay()
        spend(2 * writer.size, writer.size)
    return "".join(writer.parts)


_quote = json.JSONEncoder(ensure_ascii=False).encode
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class _JsonWriter:
    """Writes JSON into parts, and stops when there are too many of them or too many characters."""

    __slots__ = ("left", "paid", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.left = self.paid = MAX_NODES

    def write(self, value: Any, depth: int) -> None:
        if not isinstance(value, dict | list):
            self._put(_scalar(value))
            return
        self.left -= len(value)
        if not depth or self.left < 0:
            raise FunctionError(f"the value is too large to write (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        if self.paid - self.left > FEW:
            self.pay()
        if isinstance(value, dict):
            self._object(value, depth - 1)
        else:
            self._array(value, depth - 1)

    def pay(self) -> None:
        """Count the parts since the last time: one by one they would cost more than they are."""
        spend((self.paid - self.left) * NODE)
        self.paid = self.left

    def _object(self, value: dict[str, Any], depth: int) -> None:
        before = "{"
        for key, item in value.items():
            self._item(f"{before}{_string(key)}:", item, depth)
            before = ","
        self._put("}" if value else "{}")

    def _array(self, value: list[Any], depth: int) -> None:
        before = "["
        for item in value:
            self._item(before, item, depth)
            before = ","
        self._put("]" if value else "[]")

    def _item(self, before: str, item: Any, depth: int) -> None:
        if isinstance(item, dict | list):
            self._put(before)
            self.write(item, depth)
        else:
            self._put(before + _scalar(item))

    def _put(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise FunctionError(f"the value has more than {MAX_TEXT:,} characters as JSON")
        self.parts.append(text)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not isfinite(value):
        return f'"{float_text(value)}"'
    if isinstance(value, float | Decimal):
        text = number_text(value)
        return text if "." in text or "E" in text else text + ".0"
    if isinstance(value, int):
        return str(value)
    raise FunctionError(f"a value of kind {kind_of(value)} cannot be written as JSON")


def _string(text: str) -> str:
    spend_text(text)
    quoted = _quote(text)
    if not quoted.isascii():
        # Not by `translate`, which takes a hundred times as long and lets no other thread in.
        for character, escape in _LINE_ENDS.items():
            quoted = quoted.replace(character, escape)
    return quoted


# --- reading JSON -----------------------------------------------------------------------------------------------------

_LARGE_NUMBER = re.compile(r"[0-9]{19}|[eE]\+?[0-9]{3}")
"""What may not fit into an int64, or be larger than any float."""
_INT64 = range(-(2**63), 2**63)
_DIGITS_OF_INT64 = 20
"""With the sign."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def parse_json(text: str) -> Any:
    """Read the value of a JSON text.

    Integers beyond 64 bits are read as floats, of duplicate keys the last wins, line ends inside strings are forgiven.
    """
    if len(text) > FEW:
        # The structure is counted before it is read: 16 MB of brackets would be half a gigabyte of arrays.
        parts = sum(map(text.count, ",:[{"))
        spend(len(text) + parts * (NODE if "\\u" in text else ELEMENT), len(text) + parts * BOX)
    reader = _SMALL if _LARGE_NUMBER.search(text) is None else _FINITE if refuses() else _LARGE
    try:
        value = reader.decode(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise FunctionError(f"the text is no JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise _too_deep() from error
    _check_depth(value)
    return value if "\\u" not in text else _without_half_pairs(value)


def _refuse_constant(word: str) -> Any:
    raise FunctionError(f"the text is no JSON: {word} is no JSON number")


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) <= _DIGITS_OF_INT64 else None
    return value if value is not None and value in _INT64 else float(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise FunctionError(f"the text is no JSON: {digits[:40]} is larger than any number")
    return value


def _finite_integer(digits: str) -> int | float:
    value = _integer(digits)
    return value if isinstance(value, int) else _finite(digits)


_SMALL = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
_LARGE = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, parse_int=_integer)
_FINITE = json.JSONDecoder(
    strict=False, parse_constant=_refuse_constant, parse_int=_finite_integer, parse_float=_finite
)


def _too_deep() -> FunctionError:
    return FunctionError(f"the JSON is nested more than {MAX_DEPTH} levels deep")


def _check_depth(value: Any) -> None:
    """Go through the levels of arrays and objects from the top, so that nothing deep comes into the language."""
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]


def _without_half_pairs(value: Any) -> Any:
    """Put U+FFFD for each half of a character that an escape like `\\ud800` leaves: no store could keep it."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_half_pairs(item) for item in value]
    if isinstance(value, dict):
        return {_without_half_pairs(key): _without_half_pairs(item) for key, item in value.items()}
    return value


# --- measuring JSON ---------------------------------------------------------------------------------------------------

# A string without its end is taken to the end, so that no text is read twice; what was taken is never given back.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TOKENS = re.compile(_STRING + r"|[\[{\]}]", re.DOTALL)


def count_values(text: str, limit: int) -> int:
    """Count the values of a JSON text, keys left out: at most as many as it has commas and opening brackets, and one.

    A text that may have more than `limit` is looked at more closely: what its strings hold does not count then. The
    count of a text that has more is any number above the limit.
    """
    count = text.count(",") + text.count("[") + text.count("{") + 1
    if count <= limit:
        return count
    for strings, found in enumerate(_STRINGS.finditer(text)):
        if strings > 2 * limit:  # each of them is a key or a value
            return limit + 1
        start, end = found.span()
        if end - start > 2:  # noqa: PLR2004 - the quotes
            count -= text.count(",", start, end) + text.count("[", start, end) + text.count("{", start, end)
    return count


def is_deeper(text: str, max_depth: int) -> bool:
    """Say whether the brackets of a text nest deeper than allowed. Most texts have too few of them for that."""
    if text.count("[") + text.count("{") <= max_depth:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth > max_depth:
                return True
        elif sign in ("]", "}"):
            depth -= 1
    return False


# --- envelopes --------------------------------------------------------------------------------------------------------

_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16-le",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "unicode": "utf-16-le",
    "utf-32": "utf-32-le",
}
_WHITE = dict.fromkeys(map(ord, SPACES + "\x1c\x1d\x1e\x1f"))
"""What `str.split` takes for white space."""


def envelope(content_type: str, data: bytes) -> dict[str, Any]:
    """Bytes in their envelope."""
    return {CONTENT_TYPE: content_type, CONTENT: binascii.b2a_base64(data, newline=False).decode("ascii")}


def envelope_bytes(value: dict[str, Any]) -> bytes:
    """The bytes in an envelope."""
    content = value[CONTENT]
    if not isinstance(content, str):
        raise FunctionError(f"the '{CONTENT}' of the content is no string but of kind {kind_of(content)}")
    return base64_bytes(content)


def envelope_text(value: dict[str, Any]) -> str:
    """The text in an envelope, read in the charset that its content type names, UTF-8 if it names none."""
    return decode_text(envelope_bytes(value), _charset_of(value[CONTENT_TYPE]))


def base64_bytes(text: str) -> bytes:
    """Decode a base64 text; white space in it does not matter."""
    try:
        return binascii.a2b_base64(_without_white(text).encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise FunctionError(f"'{text[:60]}' is no base64") from error


def _without_white(text: str) -> str:
    """The text without white space. To split it there would make an object of every letter of `a b c d`."""
    spend_text(text, 2)
    return translated(text, _WHITE)


def _charset_of(content_type: Any) -> str:
    """The charset that a content type names, in lower case; `utf-8` if it names none."""
    if not isinstance(content_type, str):
        raise FunctionError(f"the '{CONTENT_TYPE}' of the content is no string but of kind {kind_of(content_type)}")
    charset = "utf-8"
    for parameter in content_type.split(";")[1:]:
        name, equal, value = parameter.partition("=")
        if not equal and name.strip():
            raise FunctionError(f"the content type '{content_type}' has a parameter without a value: '{name.strip()}'")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return charset


def encode_text(text: str, charset: str) -> bytes:
    """Text as bytes. Raises `FunctionError` for a charset that is not known, or that lacks one of the characters."""
    codec = _CHARSETS.get(charset)
    if codec is None:
        raise FunctionError(f"'{charset}' is no charset that Loom knows")
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        raise FunctionError(f"the charset '{charset}' lacks a character of the text") from error


def decode_text(data: bytes, charset: str) -> str:
    """Bytes as text. Bytes that mean nothing in the charset become U+FFFD, a byte-order mark is dropped."""
    codec = _CHARSETS.get(charset)
    if codec is None:
        raise FunctionError(f"'{charset}' is no charset that Loom knows")
    return data.decode(codec, "replace").removeprefix("\ufeff")
