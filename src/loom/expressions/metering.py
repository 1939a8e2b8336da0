"""What evaluations cost: units of work and bytes built, counted while functions work. Pure.

A function that looks at much, or builds much, says so with `spend` before it does it. The evaluating code says what may
be spent, by a `Meter` that holds for all evaluations within `metered_by`: for all of one action together. Without a
meter nothing is counted. Costs are numbers of characters, elements and nodes, so they are equal on every machine.

Runs that began before there were budgets have an allowance for each text with many calls instead.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from loom.expressions.errors import ExpressionError, FunctionError
from loom.expressions.limits import FREE, MAX_BYTES, MAX_TOTAL, MAX_UNITS

if TYPE_CHECKING:
    from contextvars import Token

    from loom.expressions.calls import Compiled, Place
    from loom.expressions.environment import Environment

_UNITS_OF_AN_ELEMENT = 16


class Meter:
    """What the expressions of one action have cost so far, and the most that they may."""

    __slots__ = ("bytes", "is_over", "most_bytes", "most_units", "units")

    counts = True
    """Whether it replaces the allowance of each text."""

    def __init__(self, most_units: float = MAX_UNITS, most_bytes: float = MAX_BYTES) -> None:
        self.units = 0
        self.bytes = 0
        self.most_units = most_units
        self.most_bytes = most_bytes
        self.is_over = False
        """Whether something was refused."""

    def spend(self, units: int, size: int = 0) -> None:
        """Count work that is about to be done; raise if it is too much."""
        self.units += units
        self.bytes += size
        if self.units > self.most_units or self.bytes > self.most_bytes:
            self.exceed()

    def exceed(self) -> None:
        """Refuse: the budget of the action is spent."""
        self.is_over = True
        raise FunctionError(
            "builds too much or works too long: all expressions of one action together may take "
            f"{MAX_UNITS:,} units of work and build {MAX_BYTES:,} bytes"
        )


_METER: ContextVar[Meter | None] = ContextVar("meter of the evaluations under way", default=None)


class metered_by:  # noqa: N801 - used as a statement, and a class is the cheapest one
    """Let a meter count what is evaluated inside of a `with`."""

    __slots__ = ("_meter", "_token")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._token: Token[Meter | None] | None = None

    def __enter__(self) -> None:
        self._token = _METER.set(self._meter)

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _METER.reset(self._token)


def meter() -> Meter | None:
    """The meter that counts now, if there is one."""
    return _METER.get()


def refuses() -> bool:
    """Whether what older runs were allowed is refused: everywhere but in them."""
    counting = _METER.get()
    return counting is None or counting.counts


def spend(units: int, size: int = 0) -> None:
    """Count units of work, and bytes that are built, for the action that is under way."""
    counting = _METER.get()
    if counting is not None:
        counting.spend(units, size)


def spend_text(text: str, factor: int = 1) -> None:
    """Count a text that is read and built again as a whole."""
    count = len(text)
    if count > FREE:
        spend(count * factor, count)


# -- the allowance of older runs --------------------------------------------------------------------------------------


class _Allowance:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_TOTAL


_ALLOWANCE: ContextVar[_Allowance | None] = ContextVar("allowance of an evaluation", default=None)


def metered(call: Compiled, place: Place) -> Compiled:
    """A call that pays for its result, if there is an allowance to pay from."""

    def pay(env: Environment) -> Any:
        value = call(env)
        if isinstance(value, str | list | dict) and len(value) > FREE:
            allowance = _ALLOWANCE.get()
            if allowance is None:
                return value
            allowance.left -= len(value) * (1 if isinstance(value, str) else _UNITS_OF_AN_ELEMENT)
            if allowance.left < 0:
                message = "the expression builds too much: its calls together may make"
                raise ExpressionError(
                    f"{message} {MAX_TOTAL:,} characters or {MAX_TOTAL // _UNITS_OF_AN_ELEMENT:,} elements", *place
                )
        return value

    return pay


def with_allowance(evaluate: Compiled) -> Compiled:
    """An evaluation with an allowance of its own for its metered calls, where no budget holds."""

    def bounded(env: Environment) -> Any:
        counting = _METER.get()
        if counting is not None and counting.counts:
            return evaluate(env)
        token = _ALLOWANCE.set(_Allowance())
        try:
            return evaluate(env)
        finally:
            _ALLOWANCE.reset(token)

    return bounded
