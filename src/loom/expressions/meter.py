"""What expressions may cost: the limits, and the meter that counts. Pure.

An expression has no loops: it does a fixed number of calls, at most one for every three characters of its text. So
only the size of its data can make it expensive. A function that looks at much, or builds much, says so with `spend`
before it does it. The caller of an evaluation says what may be spent with a `Meter`, which holds for all evaluations
within `metered_by`, such as all of one action. Without a meter nothing is counted.

Costs are numbers of characters, elements and nodes, so they are equal on every machine and in every replay. A changed
cost would change recorded histories.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from contextvars import Token


# --- limits -----------------------------------------------------------------------------------------------------------

MAX_LENGTH = 8_192
"""Characters of one template string that has expressions in it."""
MAX_NESTING = 100
"""How deep calls, arguments and indexes may be nested in an expression."""
MAX_DEPTH = 100
"""How deep arrays and objects may be nested in each other."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of a text that a function builds."""
MAX_TOTAL = 4 * MAX_TEXT
"""Characters of all texts that the calls of one evaluation build; an element of an array counts as sixteen. It holds
for runs that began before there were budgets."""
MAX_ITEMS = 1024 * 1024
"""Elements of an array, or properties of an object, that a function builds."""
MAX_NODES = 1024 * 1024
"""Elements and properties that are looked at to write a value as text, or to say whether two are equal."""
MAX_UNITS = 64 * 1024 * 1024
"""Units of work that the expressions of one action may take together. A unit is about 10 ns of a core."""
MAX_BYTES = 128 * 1024 * 1024
"""Bytes that the expressions of one action may build together. A character counts as one byte."""


# --- costs ------------------------------------------------------------------------------------------------------------

FREE = 1024
"""A call on fewer characters costs no more than being called."""
FEW = 64
"""A call on fewer elements costs no more than being called. Elements cost more than characters, and a document can have
thousands of calls."""
CALL = 100
"""Units of one call of a function."""
ELEMENT = 16
"""Units of an element that a function copies, compares or makes without looking into it."""
NODE = 64
"""Units of a part of a value, or a node of XML, that a function looks at one by one."""
SLOT, BOX = 8, 88
"""Bytes of an element in an array, and of an array or object itself."""


# --- the meter --------------------------------------------------------------------------------------------------------


class Meter:
    """The costs of one action's expressions so far, and the most that they may cost."""

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
    """Return the meter that counts now, None if nothing is counted."""
    return _METER.get()


def refuses() -> bool:
    """Say whether the rules of budgets hold: everywhere but in runs from before budgets."""
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
