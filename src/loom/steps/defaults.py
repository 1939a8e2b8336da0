"""The time limits that hold where a caller has given none, and how to tell them from the same number given."""

from __future__ import annotations

from typing import Final


class Unasked(float):
    """A default. Compared by identity it says whether a caller gave a value; otherwise it is a number."""

    __slots__ = ()


RUN_TIMEOUT: Final = Unasked(45.0)
"""Seconds until a run in memory times out. A run in a store has no timeout unless one was asked for."""

WAIT_TIMEOUT: Final = Unasked(2000.0)
"""Seconds until `wait_for_event` raises `TimeoutError`."""
