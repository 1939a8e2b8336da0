"""What bodies pass to their context, checked where it enters: the run's data must stay sound.

May import loom.steps.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from loom.steps.events import Event


class EventName(str):
    """An event by its name, for those who wait for what may be of any class."""

    __slots__ = ()


def event_class(what: str, given: Any) -> type[Event]:
    """An event class, or an error that says what was given instead."""
    if isinstance(given, type) and issubclass(given, Event):
        return given
    raise TypeError(f"{what}() takes event classes, not {given!r}.")


def event_object(what: str, given: Any) -> Event:
    """An event, or an error that says what was given instead."""
    if isinstance(given, Event):
        return given
    raise TypeError(f"{what}() takes events, not {given!r} of type {type(given).__name__}.")


def seconds(what: str, given: Any) -> float:
    """A finite number of seconds."""
    if not isinstance(given, Real):
        raise TypeError(f"{what} must be a number of seconds, not {given!r}.")
    if not math.isfinite(given):
        raise ValueError(f"{what} must be a finite number of seconds, not {given!r}.")
    return float(given)
