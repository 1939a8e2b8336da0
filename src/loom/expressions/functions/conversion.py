"""Conversion functions: text, booleans, numbers, JSON, arrays, base64, data URIs and URI components. Pure.

Numbers and their texts go through the formats of .NET, in the culture that the author names. XML is left to `xml`,
which `json` imports when it meets some.
"""

from __future__ import annotations

import binascii
import re
from decimal import Decimal
from math import isnan
from typing import Any, NamedTuple

from loom.expressions.dotnet.numbers import format_number, parse_decimal, parse_float
from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import check_size, function, refuse, want_number, want_string
from loom.expressions.meter import ELEMENT, spend_text
from loom.expressions.strings import (
    count_units,
    percent_decode,
    percent_decode_bytes,
    percent_encode,
    percent_encoded_length,
    utf8_bytes,
)
from loom.expressions.value_text import (
    base64_bytes,
    decode_text,
    envelope,
    envelope_bytes,
    envelope_text,
    parse_json,
    text_of,
)
from loom.expressions.values import (
    CONTENT,
    CONTENT_TYPE,
    INT_MAX,
    INT_MIN,
    decimal_of,
    fit_decimal,
    is_envelope,
    is_number,
    number_text,
)

_SHOWN = 60


@function("string", 1)
def string(value: Any) -> str:
    """A value as text."""
    return text_of(value)


@function("bool", 1)
def bool_(value: Any) -> bool:
    """A boolean, a number that is not 0, or the text `true` or `false` in any case."""
    if isinstance(value, bool):
        return value
    if is_number(value):
        return bool(value != 0)
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if isinstance(value, str):
        raise FunctionError(f"expects its argument 'value' to be 'true' or 'false', not '{value[:_SHOWN]}'")
    raise refuse("value", "a boolean, a number, 'true' or 'false'", value)


# --- numbers ----------------------------------------------------------------------------------------------------------


@function("int", 1, 2)
def int_(value: Any, locale: Any = None) -> int:
    """A number without fraction as an integer.

    A text is read as a float first, as the service does it, so its digits after the 15th may change.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        number: float | Decimal | None = parse_float(value, _locale(locale), trailing_sign=False)
        if number is None:
            raise _unreadable(value, "an integer")
    elif isinstance(value, float | Decimal):
        number = value
    else:
        raise refuse("value", "a number or its text", value)
    return _whole(number)


def _whole(number: float | Decimal) -> int:
    if isnan(number):
        return INT_MIN  # As the service does it.
    if not INT_MIN <= number <= INT_MAX or int(number) > INT_MAX:
        raise FunctionError(f"cannot make an integer of {number_text(number)}: integers go from {INT_MIN} to {INT_MAX}")
    if number != int(number):
        raise FunctionError(f"cannot make an integer of {number_text(number)}, which has a fraction")
    return int(number)


@function("float", 1, 2)
def float_(value: Any, locale: Any = None) -> float:
    """A number, or its text in a culture, as a float."""
    if is_number(value):
        return float(value)
    if not isinstance(value, str):
        raise refuse("value", "a number or its text", value)
    number = parse_float(value, _locale(locale))
    if number is None:
        raise _unreadable(value, "a float")
    return number


@function("decimal", 1)
def decimal(value: Any) -> Decimal:
    """A number, or its text without exponent, as a decimal that keeps its places."""
    if is_number(value):
        number = fit_decimal(decimal_of(value))
    elif isinstance(value, str):
        number = parse_decimal(value)
    else:
        raise refuse("value", "a number or its text", value)
    if number is None:
        raise _unreadable(text_of(value), "a decimal")
    return number


_INT64_DIGITS = 19
_INTEGER = re.compile(r"[+-]?[0-9][0-9,]*")


@function("isInt", 1)
def is_int(text: Any) -> bool:
    """Say whether a string is the text of an integer."""
    digits = want_string("value", text).strip()
    if _INTEGER.fullmatch(digits) is None:
        return False
    sign = "-" if digits.startswith("-") else ""
    significant = digits.lstrip("+-").replace(",", "").lstrip("0")
    return len(significant) <= _INT64_DIGITS and INT_MIN <= int(sign + (significant or "0")) <= INT_MAX


@function("isFloat", 1, 2)
def is_float(text: Any, locale: Any = "") -> bool:
    """Say whether a string is the text of a number in a culture, by default the invariant one."""
    return parse_float(want_string("value", text), want_string("locale", locale)) is not None


@function("formatNumber", 2, 3)
def format_number_function(number: Any, fmt: Any, locale: Any = "en-US") -> str:
    """A number in a .NET format of a culture."""
    from loom.expressions.dotnet.cultures import culture_of

    culture = culture_of(want_string("locale", locale))
    return format_number(want_number("number", number), want_string("format", fmt), culture.numbers)


def _locale(locale: Any) -> str | None:
    return None if locale is None else want_string("locale", locale)


def _unreadable(text: str, wanted: str) -> FunctionError:
    return FunctionError(f"cannot make {wanted} of '{text[:_SHOWN]}'")


# --- JSON and arrays --------------------------------------------------------------------------------------------------


@function("json", 1)
def json(value: Any) -> Any:
    """Read the value of a JSON text, or of JSON or XML in an envelope."""
    if isinstance(value, str):
        return parse_json(value)
    if not is_envelope(value):
        raise refuse("value", "a JSON text or XML", value)
    text = envelope_text(value)
    if _is_xml(value[CONTENT_TYPE]):
        from loom.expressions.functions.xml import json_of_xml

        return json_of_xml(text)
    return parse_json(text)


def _is_xml(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/xml", "+xml"))


@function("array", 1)
def array(value: Any) -> list[Any]:
    """An array of this one value."""
    return [value]


@function("createArray", 1, None)
def create_array(*values: Any) -> list[Any]:
    """An array of these values."""
    return list(values)


# --- lengths in bytes -------------------------------------------------------------------------------------------------


@function("utf8Length", 1)
def utf8_length(text: Any) -> int:
    """Count the bytes of the text in UTF-8. Half a character counts as U+FFFD: three bytes, like itself."""
    return len(want_string("value", text).encode("utf-8", "surrogatepass"))


@function("utf16Length", 1)
def utf16_length(text: Any) -> int:
    """Count the bytes of the text in UTF-16."""
    return 2 * count_units(want_string("value", text))


# --- base64 and envelopes ---------------------------------------------------------------------------------------------

_BYTES = "application/octet-stream"
_TEXT = "text/plain"
_JSON = "application/json"
_UTF8 = "utf-8"


@function("base64", 1)
def base64(value: Any) -> str:
    """A value as base64."""
    return _base64(_content(value))


@function("decodeBase64", 1)
@function("base64ToString", 1)
def base64_to_string(value: Any) -> str:
    """The text of which this is the base64."""
    return decode_text(base64_bytes(want_string("value", value)), _UTF8)


@function("base64ToBinary", 1)
def base64_to_binary(value: Any) -> dict[str, Any]:
    """The envelope of which this is the base64, kept as it is written."""
    text = want_string("value", value)
    base64_bytes(text)
    return {CONTENT_TYPE: _BYTES, CONTENT: text}


@function("binary", 1)
def binary(value: Any) -> dict[str, Any]:
    """A value as bytes in their envelope."""
    return _enveloped(_BYTES, _content(value))


def _content(value: Any) -> bytes:
    """The bytes of a value: of an envelope what is in it, of everything else its text."""
    if value is None:
        raise refuse("value", "a value", value)
    return envelope_bytes(value) if is_envelope(value) else utf8_bytes(text_of(value))


def _enveloped(content_type: str, data: bytes) -> dict[str, Any]:
    check_size(len(data) // 3 * 4)
    return envelope(content_type, data)


def _base64(data: bytes) -> str:
    check_size(len(data) // 3 * 4)
    return binascii.b2a_base64(data, newline=False).decode("ascii")


# --- data URIs --------------------------------------------------------------------------------------------------------

_MEDIA_TYPE = re.compile("[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


class _DataUri(NamedTuple):
    """`data:<media type>;<parameters>;base64,<content>`, taken apart."""

    media_type: str
    parameters: list[str]
    is_base64: bool
    content: str

    def text(self) -> str:
        """The content of a URI that is not in base64, still escaped; here, unlike elsewhere, `+` is a space."""
        spend_text(self.content, ELEMENT)
        return self.content.replace("+", " ")


@function("dataUri", 1)
def data_uri(value: Any) -> str:
    """A value as a data URI in base64."""
    data = _content(value)
    if is_envelope(value):
        content_type = want_string(CONTENT_TYPE, value[CONTENT_TYPE])
    else:
        content_type = f"{_TEXT if isinstance(value, str) else _JSON};charset={_UTF8}"
    return f"data:{content_type};base64,{_base64(data)}"


@function("dataUriToString", 1)
def data_uri_to_string(value: Any) -> str:
    """The text in a data URI. It must be UTF-8, which is looked at in the first parameter only, as the service does."""
    uri = _data_uri(value)
    name, _, charset = (uri.parameters or [""])[0].partition("=")
    if name.lower() == "charset" and charset.lower() != _UTF8:
        raise FunctionError(f"can only read a data URI of charset {_UTF8}, not '{charset}'")
    if uri.is_base64:
        return decode_text(base64_bytes(uri.content), _UTF8)
    return percent_decode(uri.text())


@function("decodeDataUri", 1)
@function("dataUriToBinary", 1)
def data_uri_to_binary(value: Any) -> dict[str, Any]:
    """The content of a data URI in its envelope. Base64 is kept as it is written."""
    uri = _data_uri(value)
    if not _MEDIA_TYPE.fullmatch(uri.media_type):
        raise FunctionError(f"'{uri.media_type[:_SHOWN]}' in the data URI is no media type such as '{_TEXT}'")
    for parameter in uri.parameters:
        name, _, setting = parameter.partition("=")
        if "=" in setting:
            raise FunctionError(f"the parameter '{parameter}' of the data URI has two equals signs")
        if name.lower() == "charset":
            decode_text(b"", setting.lower())  # Refuses a charset that nobody knows.
    content_type = ";".join([uri.media_type, *uri.parameters])
    if uri.is_base64:
        return {CONTENT_TYPE: content_type, CONTENT: uri.content}
    return _enveloped(content_type, percent_decode_bytes(uri.text()))


def _data_uri(value: Any) -> _DataUri:
    uri = want_string("value", value)
    scheme, colon, rest = uri.partition(":")
    header, comma, content = rest.partition(",")
    if scheme.lower() != "data" or not colon or not comma:
        raise FunctionError(f"expects its argument 'value' to be a data URI such as 'data:,text', not '{uri[:_SHOWN]}'")
    segments = header.split(";")
    is_base64 = segments[-1].lower() == "base64"
    if is_base64:
        segments.pop()
    if "" in segments[1:]:
        raise FunctionError(f"the data URI '{uri[:_SHOWN]}' has a semicolon too many")
    media_type = segments[0] if segments else ""
    return _DataUri(media_type or _TEXT, segments[1:], is_base64, content)


# --- URI components ---------------------------------------------------------------------------------------------------


@function("encodeUriComponent", 1)
@function("uriComponent", 1)
def uri_component(value: Any) -> str:
    """A text as it is written inside a URI."""
    text = want_string("value", value)
    check_size(percent_encoded_length(text))
    spend_text(text, 8)
    return percent_encode(text)


def _escaped(value: Any) -> str:
    """The argument, whose escapes are about to be read one by one."""
    text = want_string("value", value)
    spend_text(text, ELEMENT)
    return text


@function("decodeUriComponent", 1)
@function("uriComponentToString", 1)
def uri_component_to_string(value: Any) -> str:
    """The text of which this is the URI component."""
    return percent_decode(_escaped(value))


@function("uriComponentToBinary", 1)
def uri_component_to_binary(value: Any) -> dict[str, Any]:
    """The bytes of which this is the URI component, in their envelope."""
    return _enveloped(_BYTES, percent_decode_bytes(_escaped(value)))
