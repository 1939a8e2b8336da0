"""What functions ask of their arguments: the kind they want, or an error that names the argument and its kind. Pure.

The name of an argument is what an author would call it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.kinds import INT_MAX, INT_MIN, kind_of
from loom.expressions.limits import ELEMENT, FEW, FREE, MAX_ITEMS, MAX_TEXT, SLOT
from loom.expressions.metering import spend


def refuse(name: str, wanted: str, value: Any) -> FunctionError:
    """The error for an argument of a wrong kind. The caller raises it."""
    return FunctionError(f"expects its argument '{name}' to be {wanted}, not {kind_of(value)}")


def want_string(name: str, value: Any) -> str:
    """The argument, which must be a string. A long one costs its length."""
    if isinstance(value, str):
        if len(value) > FREE:
            spend(len(value))
        return value
    raise refuse(name, "a string", value)


def want_integer(name: str, value: Any) -> int:
    """The argument, which must be an integer; a float without a fraction will do."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    raise refuse(name, "an integer", value)


def want_number(name: str, value: Any) -> int | float | Decimal:
    """The argument, which must be an integer, a float or a decimal."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    raise refuse(name, "a number", value)


def want_boolean(name: str, value: Any) -> bool:
    """The argument, which must be true or false."""
    if isinstance(value, bool):
        return value
    raise refuse(name, "a boolean", value)


def want_array(name: str, value: Any) -> list[Any]:
    """The argument, which must be an array."""
    if isinstance(value, list):
        return value
    raise refuse(name, "an array", value)


def want_object(name: str, value: Any) -> dict[str, Any]:
    """The argument, which must be an object."""
    if isinstance(value, dict):
        return value
    raise refuse(name, "an object", value)


def check_size(characters: int) -> None:
    """Refuse to build a text of that size, or count it. Ask before it is built."""
    if characters > FREE:
        if characters > MAX_TEXT:
            raise FunctionError(f"would make a text of {characters:,} characters; at most {MAX_TEXT:,} are allowed")
        spend(characters, characters)


def check_count(elements: int, size: int = SLOT) -> None:
    """Refuse to build an array or object of that size, or count it. `size`: bytes of each element. Ask before."""
    if elements > FEW:
        if elements > MAX_ITEMS:
            raise FunctionError(f"would make {elements:,} elements; at most {MAX_ITEMS:,} are allowed")
        spend(elements * ELEMENT, elements * size)
