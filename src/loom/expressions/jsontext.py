"""Reading JSON into values of the language. Pure.

Integers beyond int64 are read as floats, of duplicate keys the last wins, line ends inside strings are forgiven.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.limits import BOX, ELEMENT, FEW, MAX_DEPTH, NODE
from loom.expressions.metering import refuses, spend

_LARGE_NUMBER = re.compile(r"[0-9]{19}|[eE]\+?[0-9]{3}")
"""What may not fit into an int64, or be larger than any float."""
_INT64 = range(-(2**63), 2**63)
_DIGITS_OF_INT64 = 20
"""With the sign."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def parse_json(text: str) -> Any:
    """The value that a JSON text stands for."""
    if len(text) > FEW:
        # The structure is counted before it is read: 16 MB of brackets would be half a gigabyte of arrays.
        parts = sum(map(text.count, ",:[{"))
        spend(len(text) + parts * (NODE if "\\u" in text else ELEMENT), len(text) + parts * BOX)
    reader = _PLAIN if _LARGE_NUMBER.search(text) is None else _FINITE if refuses() else _LARGE
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


_PLAIN = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
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
    """The same with U+FFFD for what escapes like `\\ud800` alone leave of a character: no store could keep it."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_half_pairs(item) for item in value]
    if isinstance(value, dict):
        return {_without_half_pairs(key): _without_half_pairs(item) for key, item in value.items()}
    return value
