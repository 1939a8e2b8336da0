"""How much work a driver lets one drain of a run do in place. Pure.

A planner may do much in one transition. It counts in units that are equal on every machine, and a driver that must not
be held up says how many it has patience for. Past them the planner raises `TooCostly`; the transition has not happened,
and the driver does it again where it may take longer. What comes out is the same: patience decides where, never what.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextvars import Token


class TooCostly(Exception):
    """A transition costs more than its driver has patience for here."""


class Patience:
    """The units that are left for the transitions under way; used as a `with`."""

    __slots__ = ("_token", "left")

    def __init__(self, units: int) -> None:
        self.left = units
        self._token: Token[Patience | None] | None = None

    def __enter__(self) -> Patience:
        self._token = _PATIENCE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _PATIENCE.reset(self._token)


_PATIENCE: ContextVar[Patience | None] = ContextVar("patience of the driver", default=None)


def bear(units: int) -> None:
    """Count work that is about to be done and that no budget counts; `TooCostly` if the driver has no patience left."""
    found = _PATIENCE.get()
    if found is not None:
        found.left -= units
        if found.left < 0:
            raise TooCostly


def patience() -> Patience | None:
    """The patience of the driver, None if it has all the time."""
    return _PATIENCE.get()
