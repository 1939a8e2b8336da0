"""Conversion functions: texts, booleans, numbers, JSON and arrays. Pure.

The rest of the family lives in `binary` and `forms`, which come with this module. May import `arguments`, `envelopes`,
`errors`, `jsontext`, `numerals`, `registry`, `utf16`, `values` and, for XML, `functions.xml`.
"""

from __future__ import annotations

from decimal import Decimal
from math import isnan
from typing import Any

from loom.expressions.arguments import refuse, want_string
from loom.expressions.envelopes import envelope_text
from loom.expressions.errors import FunctionError
from loom.expressions.functions import binary, forms  # noqa: F401 - they register the rest of the family
from loom.expressions.jsontext import parse_json
from loom.expressions.numerals import fit_decimal, parse_decimal, parse_float
from loom.expressions.registry import function
from loom.expressions.utf16 import length
from loom.expressions.values import (
    CONTENT_TYPE,
    INT_MAX,
    INT_MIN,
    decimal_of,
    is_envelope,
    is_number,
    number_text,
    text_of,
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


# --- numbers ------------------------------------------------------------------------------------------------------


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


def _locale(locale: Any) -> str | None:
    return None if locale is None else want_string("locale", locale)


def _unreadable(text: str, wanted: str) -> FunctionError:
    return FunctionError(f"cannot make {wanted} of '{text[:_SHOWN]}'")


# --- JSON and arrays ----------------------------------------------------------------------------------------------


@function("json", 1)
def json(value: Any) -> Any:
    """The value that a JSON text, or JSON or XML in an envelope, stands for."""
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


# --- lengths in bytes ---------------------------------------------------------------------------------------------


@function("utf8Length", 1)
def utf8_length(text: Any) -> int:
    """How many bytes the text has in UTF-8. Half a character counts as U+FFFD, three bytes like itself."""
    return len(want_string("value", text).encode("utf-8", "surrogatepass"))


@function("utf16Length", 1)
def utf16_length(text: Any) -> int:
    """How many bytes the text has in UTF-16."""
    return 2 * length(want_string("value", text))
