"""How a function of the language is declared: its registration, and what it asks of its arguments. Pure.

A function takes plain values and returns one: `None`, `bool`, `int`, `float`, `Decimal`, `str`, `list`, `dict`. It
never changes what it is given. It raises `FunctionError` if it is given something else than it wants; the error names
the argument as an author would, and the kind that it has.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.expressions.errors import FunctionError
from loom.expressions.meter import ELEMENT, FEW, FREE, MAX_ITEMS, MAX_TEXT, SLOT, spend
from loom.expressions.values import INT_MAX, INT_MIN, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Function(NamedTuple):
    """A function of the language."""

    name: str
    call: Callable[..., Any]
    min_args: int
    max_args: int | None
    """The most arguments; None: any number."""
    asks: bool
    """Whether its first argument is the environment, before the arguments that the author writes."""


FUNCTIONS: dict[str, Function] = {}
"""All functions that have been registered, by their names in lower case."""


def function(
    name: str, min_args: int, max_args: int | None = -1, *, asks: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a name. It takes `min_args` to `max_args` arguments, exactly `min_args` by default."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        most = min_args if max_args == -1 else max_args
        FUNCTIONS[name.lower()] = Function(name, call, min_args, most, asks)
        return call

    return register


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
