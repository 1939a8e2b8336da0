"""What a server counts of its requests, and how often it counts the runs of its store. May import loom.runtime."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from loom.runtime.durable.figures import SECONDS, Histogram

if TYPE_CHECKING:
    from starlette.types import Scope

    from loom.store.ports import Store
    from loom.store.records import HeldRuns

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})

_FRESH_S = 1.0
_SHARE = 100
"""Counting takes no more than one part in so many of the time."""


class CountedRequests:
    """How many requests were answered, and how long it took until their answers began."""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str, int], int] = {}
        """By method, route and status."""
        self.seconds: dict[tuple[str, str], Histogram] = {}
        """By method and route."""

    def add(self, scope: Scope, status: int, seconds: float) -> None:
        """A request is answered. What it asked for is a pattern of the server's, or none of them: never its path."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = scope["state"].get("route", "none")
        key = method, route, status
        self.answered[key] = self.answered.get(key, 0) + 1
        spread = self.seconds.get((method, route))
        if spread is None:
            spread = self.seconds[method, route] = Histogram(SECONDS)
        spread.observe(seconds)


class RunCounts:
    """How many runs the store has, by status. Asked often, it counts seldom: more so the longer counting takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, int] = {}
        self.held: dict[str, HeldRuns] = {}
        """By workflow, those that wait for input or are parked, when the runs were counted last."""
        self._until = float("-inf")

    async def get(self) -> dict[str, int]:
        """By status, plus `idle` and `owned`."""
        began = monotonic()
        if began < self._until:
            return self._found
        self._found, self.held = await self._store.counts(), await self._store.held_counts()
        ended = monotonic()
        self._until = ended + max(_FRESH_S, _SHARE * (ended - began))
        return self._found
