"""Plain data: the values that a flow keeps, which every store can hold and every replay finds again."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from loom.expressions.errors import ExpressionError, FunctionError
from loom.expressions.meter import ELEMENT, NODE, SLOT, spend
from loom.expressions.values import INT_MAX, INT_MIN

if TYPE_CHECKING:
    from loom.expressions import Environment
    from loom.flows.program import Value

_DEPTH = 100
_DEEPEST = 200
_HEAVIEST = 1 << 28
_SHOWN = 200
"""Characters of a path that a message shows, about."""
_PART = 100
"""Weight of each part of a value; a text weighs its characters besides."""

NESTS = frozenset({
    "action", "actions", "addproperty", "array", "createarray", "mergeobjects", "result", "setproperty", "union",
})  # fmt: skip
"""Functions that put values into others. A value that holds another twice costs no memory, but its text doubles. Done
forty times over, it would fill every store."""

MAKES_ODD_VALUES = frozenset({
    "add", "base64tostring", "chunk", "datauritostring", "decimal", "decodebase64", "decodeuricomponent", "div",
    "first", "float", "json", "last", "max", "min", "mod", "mul", "reverse", "skip", "slice", "split", "sub",
    "substring", "take", "uricomponenttostring", "xml", "xpath",
})  # fmt: skip
"""Functions whose results no store can hold as they are: decimals, NaN, infinity, lone surrogates."""


def sized(value: Value) -> Value:
    """Wrap a compiled template so that it fails if its result is too large to be written."""

    def size(env: Environment) -> Any:
        made = value(env)
        try:
            check_weight(made)
        except FunctionError as error:
            raise ExpressionError(str(error)) from None
        return made

    return size


def check_weight(value: Any) -> int:
    """Return how deep a value is nested. Raises `FunctionError` if that is too deep, or the value too large."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return 0
    level, weight = [value], 0
    for depth in range(1, _DEEPEST + 1):
        inner: list[Any] = []
        spend(sum(map(len, level)) * ELEMENT)
        for one in level:
            weight += _PART * len(one)
            if weight > _HEAVIEST:
                raise FunctionError("The value is too large to be kept: it has parts that hold the same value often.")
            for item in one.values() if type(one) is dict else one:
                kind = type(item)
                if kind is str:
                    weight += len(item)
                elif kind is dict or kind is list:
                    inner.append(item)
        if not inner:
            return depth
        level = inner
    raise FunctionError(f"The value is nested more than {_DEEPEST} levels deep.")


CARRIED_MOST, CARRIED_CUT = 150, 100
"""A result of an iteration that is nested deeper than the first is cut to the second, so that it is seldom copied."""


def cut_below(value: Any, levels: int, made: dict[tuple[int, int], Any] | None = None) -> Any:
    """Copy a value with null in place of objects and arrays below a number of levels.

    `made` holds the parts that were copied: what a value holds twice stays one object.
    """
    if type(value) is not dict and type(value) is not list:
        return value
    if not levels:
        return None
    made = {} if made is None else made
    key = id(value), levels
    if key not in made:
        spend(len(value) * NODE, len(value) * SLOT)
        if type(value) is dict:
            made[key] = {name: cut_below(item, levels - 1, made) for name, item in value.items()}
        else:
            made[key] = [cut_below(item, levels - 1, made) for item in value]
    return made[key]


def cleaned(value: Value) -> Value:
    """Wrap a compiled template so that its results are plain data."""

    def clean(env: Environment) -> Any:
        try:
            return plain_result(value(env))
        except FunctionError as error:
            raise ExpressionError(str(error)) from None

    return clean


def copy_of(value: Any) -> Any:
    """Copy plain data for a caller that may change it: a run's state and a program never change."""
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_of(item) for item in value]
    return value


def plain_result(value: Any) -> Any:
    """Convert the result of a function to plain data. Raises `FunctionError` if it is nested too deep."""
    try:
        return plain_value(value)
    except ValueError:
        raise FunctionError(f"The value is nested more than {_DEPTH} levels deep.") from None


def plain_value(value: Any, path: str = "", depth: int = 0) -> Any:
    """Convert a value to plain data. Raises `ValueError` with the path of a part that JSON has no form for.

    Numbers beyond 64 bits become floats, NaN and infinity become texts, lone surrogates become U+FFFD.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int):
        return value if INT_MIN <= value <= INT_MAX else _number(value)
    if isinstance(value, float | Decimal):
        return _number(value)
    if depth >= _DEPTH:
        raise ValueError(f"{path} is nested more than {_DEPTH} levels deep.")
    if isinstance(value, dict | list):
        spend(len(value) * NODE, len(value) * SLOT)
    if isinstance(value, dict):
        return {_key(key, path): plain_value(item, below(path, f".{key}"), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, below(path, f"[{index}]"), depth + 1) for index, item in enumerate(value)]
    raise ValueError(f"{path} is a {type(value).__name__}, which JSON has no form for.")


def below(path: str, part: str) -> str:
    """Extend a path, for a message. A long one is cut: a path per element must not copy long keys."""
    return f"{path}{part[:_SHOWN]}" if len(path) < _SHOWN else path


def _number(value: float | Decimal) -> float | str:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{path} has the key {key!r}, and keys must be text.")
    cleaned_key: str = plain_value(key)
    return cleaned_key
