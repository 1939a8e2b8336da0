"""What other languages have operators for: arithmetic, comparison and logic. Pure.

Two numbers of different kinds meet in the wider one: decimal over float over integer. Integers are 64 bits wide and
refuse to overflow, floats become infinite, decimals have 96 bits and at most 28 places.

`if`, `and`, `or` and `coalesce` are defined here as if all their arguments had been evaluated. A compiled call (see
`calls`) evaluates only the arguments that it needs.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import function, want_array, want_boolean, want_integer, want_number
from loom.expressions.meter import ELEMENT, FEW, SLOT, spend
from loom.expressions.values import DECIMAL_MAX, INT_MAX, INT_MIN, compare, decimal_of, equals, fit_decimal

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.environment import Environment


# --- logic ------------------------------------------------------------------------------------------------------------


@function("and", 1, None)
def all_of(*operands: Any) -> bool:
    """Say whether all are true."""
    return all(want_boolean("expression", operand) for operand in operands)


@function("or", 1, None)
def any_of(*operands: Any) -> bool:
    """Say whether one is true."""
    return any(want_boolean("expression", operand) for operand in operands)


@function("not", 1)
def negation(operand: Any) -> bool:
    """The opposite."""
    return not want_boolean("expression", operand)


@function("if", 3)
def choice(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Choose one value if the condition is true, the other if it is false."""
    return if_true if want_boolean("expression", condition) else if_false


@function("coalesce", 1, None)
def coalesce(*candidates: Any) -> Any:
    """The first value that is not null. The compiler evaluates no more than it needs."""
    return next((value for value in candidates if value is not None), None)


# --- comparison -------------------------------------------------------------------------------------------------------

function("equals", 2)(equals)


@function("greater", 2)
def greater(a: Any, b: Any) -> bool:
    """Say whether the first comes after the second."""
    return compare(a, b) > 0


@function("greaterOrEquals", 2)
def greater_or_equals(a: Any, b: Any) -> bool:
    """Say whether the first does not come before the second."""
    return compare(a, b) >= 0


@function("less", 2)
def less(a: Any, b: Any) -> bool:
    """Say whether the first comes before the second."""
    return compare(a, b) < 0


@function("lessOrEquals", 2)
def less_or_equals(a: Any, b: Any) -> bool:
    """Say whether the first does not come after the second."""
    return compare(a, b) <= 0


# --- arithmetic -------------------------------------------------------------------------------------------------------

_MAX_RANGE = 100_000
_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Room for the exact product of two decimals."""


@function("add", 2)
def add(a: Any, b: Any) -> Any:
    """The sum."""
    x, y = _alike(a, b)
    return _fitted(_WIDE.add(x, y) if isinstance(x, Decimal) else x + y)


@function("sub", 2)
def sub(a: Any, b: Any) -> Any:
    """The difference."""
    x, y = _alike(a, b)
    return _fitted(_WIDE.subtract(x, y) if isinstance(x, Decimal) else x - y)


@function("mul", 2)
def mul(a: Any, b: Any) -> Any:
    """The product."""
    x, y = _alike(a, b)
    return _fitted(_WIDE.multiply(x, y) if isinstance(x, Decimal) else x * y)


@function("div", 2)
def div(a: Any, b: Any) -> Any:
    """The quotient; of two integers without its fraction."""
    x, y = _alike(a, b)
    if isinstance(x, float):
        return _float_quotient(x, y)
    if not y:
        raise FunctionError("cannot divide by zero")
    if isinstance(x, Decimal):
        return _fitted(_WIDE.divide(x, y))
    quotient = abs(x) // abs(y)
    return _fitted(quotient if (x < 0) == (y < 0) else -quotient)


@function("mod", 2)
def mod(a: Any, b: Any) -> Any:
    """The remainder of the division, which has the sign of the first number."""
    x, y = _alike(a, b)
    if isinstance(x, float):
        return math.fmod(x, y) if y and math.isfinite(x) else math.nan
    if not y:
        raise FunctionError("cannot divide by zero")
    if isinstance(x, Decimal):
        return _fitted(_WIDE.remainder(x, y))
    remainder = abs(x) % abs(y)
    return remainder if x >= 0 else -remainder


@function("min", 1, None)
def minimum(*numbers: Any) -> Any:
    """The smallest of some numbers, or of those in one array."""
    return _extreme(min, numbers)


@function("max", 1, None)
def maximum(*numbers: Any) -> Any:
    """The largest of some numbers, or of those in one array."""
    return _extreme(max, numbers)


@function("rand", 2, asks=True)
def rand(env: Environment, lowest: Any, beyond: Any) -> int:
    """A random integer, at least the first and below the second."""
    low, high = want_integer("minValue", lowest), want_integer("maxValue", beyond)
    if low >= high:
        raise FunctionError(f"expects 'minValue' to be less than 'maxValue', but {low} is not less than {high}")
    return low + env.random_below(high - low)


@function("range", 2)
def integer_range(start: Any, count: Any) -> list[int]:
    """`count` integers, from a start on."""
    low, length = want_integer("startIndex", start), want_integer("count", count)
    if not 1 <= length <= _MAX_RANGE:
        raise FunctionError(f"expects its argument 'count' to be from 1 to {_MAX_RANGE}, not {length}")
    _fitted(low + length - 1)
    if length > FEW:
        spend(length * ELEMENT, length * 5 * SLOT)
    return list(range(low, low + length))


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Two numbers in the wider of their kinds."""
    x, y = want_number("first number", a), want_number("second number", b)
    convert = _wider((x, y))
    return convert(x), convert(y)


def _wider(numbers: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Choose what turns each of the numbers into the widest kind among them."""
    if any(isinstance(number, Decimal) for number in numbers):
        return decimal_of
    return _float if any(isinstance(number, float) for number in numbers) else int


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:  # Data from elsewhere may have integers of any size.
        return math.inf if number > 0 else -math.inf


def _extreme(choose: Callable[..., Any], numbers: tuple[Any, ...]) -> Any:
    if len(numbers) == 1 and isinstance(numbers[0], list):
        numbers = tuple(want_array("collection", numbers[0]))
        if len(numbers) > FEW:
            spend(len(numbers) * 2 * ELEMENT, len(numbers) * SLOT)
        if not numbers:
            raise FunctionError("expects at least one number, but the array is empty")
    for number in numbers:
        want_number("number", number)
    return choose(map(_wider(numbers), numbers))


def _float_quotient(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if not x or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _fitted(number: Any) -> Any:
    """The number if its kind can hold it; a decimal loses the places that it has no room for."""
    if isinstance(number, Decimal):
        fitted = fit_decimal(number)
        if fitted is None:
            raise FunctionError(f"the result is too large for a decimal, whose limit is {DECIMAL_MAX}")
        return fitted
    if isinstance(number, int) and not INT_MIN <= number <= INT_MAX:
        raise FunctionError(f"the result {number} does not fit into 64 bits")
    return number
