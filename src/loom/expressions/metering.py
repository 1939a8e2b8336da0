"""What all calls of one evaluation may build together. Pure; may import `errors` and `limits`.

Each call is bounded by itself, so only a text with many calls can build too much. Only such a text is metered: its
calls tell how large their results are, and the evaluation has an allowance for all of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from loom.expressions.errors import ExpressionError
from loom.expressions.limits import MAX_TOTAL

if TYPE_CHECKING:
    from loom.expressions.calls import Compiled, Place
    from loom.expressions.environment import Environment

_FREE = 1024
"""Smaller results cost nothing: a text has too few calls for them to add up."""
_UNITS_OF_AN_ELEMENT = 16


class _Allowance:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_TOTAL


_ALLOWANCE: ContextVar[_Allowance] = ContextVar("allowance of an evaluation")


def metered(call: Compiled, place: Place) -> Compiled:
    """A call that pays for its result."""

    def pay(env: Environment) -> Any:
        value = call(env)
        if isinstance(value, str | list | dict) and len(value) > _FREE:
            allowance = _ALLOWANCE.get()
            allowance.left -= len(value) * (1 if isinstance(value, str) else _UNITS_OF_AN_ELEMENT)
            if allowance.left < 0:
                message = "the expression builds too much: its calls together may make"
                raise ExpressionError(
                    f"{message} {MAX_TOTAL:,} characters or {MAX_TOTAL // _UNITS_OF_AN_ELEMENT:,} elements", *place
                )
        return value

    return pay


def with_allowance(evaluate: Compiled) -> Compiled:
    """An evaluation with an allowance of its own for its metered calls."""

    def bounded(env: Environment) -> Any:
        token = _ALLOWANCE.set(_Allowance())
        try:
            return evaluate(env)
        finally:
            _ALLOWANCE.reset(token)

    return bounded
