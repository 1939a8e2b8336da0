"""The tree of an expression. Pure; may import nothing of Loom.

Positions are indexes into the whole template string.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it is written: a text, a number, true, false or null."""

    value: str | int | float | bool | None
    position: int


@dataclass(frozen=True, slots=True)
class Access:
    """One step into a value: `.name`, `['name']`, `[0]` or `[any expression]`."""

    key: Expression
    optional: bool
    """With `?`: what is not there reads as null."""
    position: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, and the steps into its result from left to right."""

    name: str
    arguments: tuple[Expression, ...]
    accesses: tuple[Access, ...]
    position: int


Expression: TypeAlias = Literal | Call
