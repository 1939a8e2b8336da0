"""The table of functions: each is known by its name without case. Pure.

A function takes plain values and returns one: `None`, `bool`, `int`, `float`, `Decimal`, `str`, `list`, `dict`. It
never changes what it is given, and raises `FunctionError` if it is given something else than it wants. Families of
functions register themselves with `function`; which family has which name is in `functions/__init__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Function(NamedTuple):
    """A function of the language."""

    name: str
    call: Callable[..., Any]
    min_args: int
    max_args: int | None
    """None: any number."""
    asks: bool
    """Its first argument is the environment, before those that the author writes."""


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
